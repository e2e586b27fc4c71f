"""The token that clients of our HTTP endpoint send: created once, readable by the user only."""

import os
import re
import secrets
import stat
from pathlib import Path

from msgspec import Struct

from portico.core.model.errors import PorticoError
from portico.core.state.files import create, make_private, read

FILE_NAME = "token"
TASK_PREFIX = "portico-task-"
"""The beginning of the tokens of tasks, which their agents send."""
VARIABLE = "PORTICO_TOKEN"
_TOKEN = re.compile(r"[\x21-\x7e]{16,512}")
MIN_LENGTH = 16
_MAX_SIZE = 1024
_GROUP_AND_OTHERS = 0o077
_UNSAFE_MODE = 0o027
"""The group may read a token file that the user names, but not write it."""


class TokenError(PorticoError):
    """The token cannot be stored or trusted."""


class LocatedToken(Struct, frozen=True):
    """A token, and where the user finds it."""

    token: str
    place: str

    def __repr__(self) -> str:
        return f"LocatedToken({self.place!r})"


def required_token(state_dir: Path, file: str | None) -> LocatedToken:
    """Return the token that clients must send: the given one, else the one in this folder."""
    given = given_token(file)
    if given is None:
        return LocatedToken(saved_token(state_dir), f"in the file {state_dir / FILE_NAME}")
    if len(given.token) < MIN_LENGTH:
        raise TokenError(
            f"the token {given.place} has {len(given.token)} characters, which is too few; "
            f"use at least {MIN_LENGTH}"
        )
    return given


def given_token(file: str | None) -> LocatedToken | None:
    """Return the token in this file, else in PORTICO_TOKEN; None if neither is set."""
    if file is not None:
        return LocatedToken(_checked(_read_named(file), file), f"in the file {file}")
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    return LocatedToken(_checked(text, VARIABLE), f"in {VARIABLE}")


def new_task_token() -> str:
    """Return an unguessable token for one task."""
    return TASK_PREFIX + secrets.token_urlsafe(32)


def _checked(text: str, where: str) -> str:
    token = text.strip()
    if not token:
        raise TokenError(f"{where} is empty: set a token, or omit it")
    if len(token) > 512 or not token.isascii() or not token.isprintable() or " " in token:
        raise TokenError(f"{where} must be one word of printable ASCII, of at most 512 characters")
    return token


def _read_named(file: str) -> str:
    """Return the text of a file that the user named, which may be a link."""
    try:
        data, status = read(file, _MAX_SIZE, follow=True)
    except OSError as error:
        raise TokenError(
            f"{file} cannot be read: {error.strerror}; name a file that contains the token"
        ) from None
    if os.name == "posix":
        _check_named(file, status)
    return data.decode("ascii", "replace")


def _check_named(file: str, status: os.stat_result) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise TokenError(f"{file} belongs to another user: use a file of your own")
    if status.st_mode & _UNSAFE_MODE:
        mode = stat.S_IMODE(status.st_mode)
        raise TokenError(
            f"{file} is accessible to others (mode {mode:04o}): run `chmod 600 {file}`"
        )


def saved_token(state_dir: Path) -> str:
    """Return the token in this folder; create it if there is none."""
    token = read_token(state_dir)
    if token is not None:
        return token
    _make_private(state_dir)
    _create(state_dir / FILE_NAME)
    token = read_token(state_dir)  # ours, or that of a faster process
    if token is None:
        raise TokenError(f"{state_dir / FILE_NAME} was removed while Portico created it; try again")
    return token


def read_token(state_dir: Path) -> str | None:
    """Return the token in this folder; None if there is none."""
    path = state_dir / FILE_NAME
    try:
        data, status = read(str(path), _MAX_SIZE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TokenError(
            f"{path} cannot be read ({error.strerror}); delete it to create a new token"
        ) from None
    if os.name == "posix":
        _check_private(path, status)
    text = data.decode("ascii", "replace").strip()
    if not _TOKEN.fullmatch(text):
        raise TokenError(
            f"{path} does not contain a token; delete it to create one, and update your clients"
        )
    return text


def _create(path: Path) -> None:
    try:
        create(str(path), f"{secrets.token_urlsafe(32)}\n".encode())
    except FileExistsError:
        pass  # a faster process created it
    except OSError as error:
        raise TokenError(
            f"the token cannot be saved in {path.parent} ({error.strerror}); set PORTICO_HOME to "
            "another folder"
        ) from None


def _make_private(folder: Path) -> None:
    try:
        make_private(str(folder))  # other users could plant a token here
    except OSError as error:
        raise TokenError(
            f"{folder} cannot be made private ({error.strerror}); set PORTICO_HOME to another"
        ) from None


def _check_private(path: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise TokenError(f"{path} belongs to another user; delete it to create a new token")
    if status.st_mode & _GROUP_AND_OTHERS:
        raise TokenError(
            f"{path} is readable by others (mode {stat.S_IMODE(status.st_mode):04o}): delete it to "
            f"create a new token, or run `chmod 600 {path}` if it was not read"
        )
