"""The token of our own door: made once, kept for the user alone, and the same ever after."""

import os
import re
import secrets
import stat
from pathlib import Path

from msgspec import Struct

from portico.model.errors import PorticoError
from portico.state.files import create, make_private, read

FILE_NAME = "token"
VARIABLE = "PORTICO_TOKEN"
_TOKEN = re.compile(r"[\x21-\x7e]{16,512}")
_SHORTEST = 16
_MAX_SIZE = 1024
_MINE_ONLY = 0o077
_OTHERS = 0o027
"""Group members may read a token file that the user names; they may not write it."""


class TokenError(PorticoError):
    """The token cannot be kept or trusted; the message says what to do."""


class Given(Struct, frozen=True):
    """A token, and where a user of this machine finds it."""

    token: str
    place: str

    def __repr__(self) -> str:
        return f"Given({self.place!r})"


def token_of_door(state_dir: Path, file: str | None) -> Given:
    """The token that clients must send: the given one, else the one in this folder."""
    given = given_token(file)
    if given is None:
        return Given(door_token(state_dir), f"in the file {state_dir / FILE_NAME}")
    if len(given.token) < _SHORTEST:
        raise TokenError(
            f"the token {given.place} has {len(given.token)} characters, which can be guessed: "
            f"give at least {_SHORTEST}"
        )
    return given


def given_token(file: str | None) -> Given | None:
    """The token in this file, else in PORTICO_TOKEN; None if neither is there."""
    if file is not None:
        return Given(_one_word(_read_named(file), file), f"in the file {file}")
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    return Given(_one_word(text, VARIABLE), f"in {VARIABLE}")


def _one_word(text: str, where: str) -> str:
    token = text.strip()
    if not token:
        raise TokenError(f"{where} is empty: give a token, or leave it out")
    if len(token) > 512 or not token.isascii() or not token.isprintable() or " " in token:
        raise TokenError(f"{where} must hold one word of printable ASCII, 512 characters at most")
    return token


def _read_named(file: str) -> str:
    """The text of a file that the user named, which may be a link."""
    try:
        data, status = read(file, _MAX_SIZE, follow=True)
    except OSError as error:
        raise TokenError(
            f"{file} cannot be read: {error.strerror}; name a file that holds the token"
        ) from None
    if os.name == "posix":
        _check_named(file, status)
    return data.decode("ascii", "replace")


def _check_named(file: str, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise TokenError(f"{file} belongs to another user, who may change it: use one of your own")
    if status.st_mode & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise TokenError(f"{file} is open to others (mode {mode:04o}): run `chmod 600 {file}`")


def door_token(state_dir: Path) -> str:
    """The token in this folder; made, if there is none yet."""
    token = known_token(state_dir)
    if token is not None:
        return token
    _make_private(state_dir)
    _create(state_dir / FILE_NAME)
    token = known_token(state_dir)  # ours, or that of a process that was faster
    if token is None:
        raise TokenError(f"{state_dir / FILE_NAME} vanished while it was made; try again")
    return token


def known_token(state_dir: Path) -> str | None:
    """The token in this folder; None if none was ever made."""
    path = state_dir / FILE_NAME
    try:
        data, status = read(str(path), _MAX_SIZE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TokenError(
            f"{path} cannot be read ({error.strerror}); remove it to have a new one made"
        ) from None
    if os.name == "posix":
        _check_private(path, status)
    text = data.decode("ascii", "replace").strip()
    if not _TOKEN.fullmatch(text):
        raise TokenError(
            f"{path} holds no token; remove it to have a new one made, and give the new one to "
            "your clients"
        )
    return text


def _create(path: Path) -> None:
    try:
        create(str(path), f"{secrets.token_urlsafe(32)}\n".encode())
    except FileExistsError:
        pass  # another process was faster: its token counts
    except OSError as error:
        raise TokenError(
            f"the token cannot be kept in {path.parent} ({error.strerror}); PORTICO_HOME may name "
            "another place"
        ) from None


def _make_private(folder: Path) -> None:
    try:
        make_private(str(folder))  # a user who may write here could plant a token of their own
    except OSError as error:
        raise TokenError(
            f"{folder} cannot be made private ({error.strerror}); PORTICO_HOME may name another"
        ) from None


def _check_private(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise TokenError(f"{path} belongs to another user; remove it to have a token made")
    if status.st_mode & _MINE_ONLY:
        raise TokenError(
            f"others may read {path} (mode {stat.S_IMODE(status.st_mode):04o}): remove it to have "
            f"a new token made, or `chmod 600 {path}` if nobody can have seen it"
        )
