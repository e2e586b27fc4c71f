"""The token of our own door: made once, kept for the user alone, and the same ever after."""

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from portico.config.paths import make_folder
from portico.model.errors import PorticoError

FILE_NAME = "token"
_TOKEN = re.compile(r"[\x21-\x7e]{16,512}")
_MINE_ONLY = 0o077
# A link could point to a file that others write to; a pipe would make us wait for its writer.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


class TokenError(PorticoError):
    """The token cannot be kept or trusted; the message says what to do."""


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
        with open(path, "rb", opener=lambda name, _: os.open(name, _READ)) as file:
            _check_private(path, os.fstat(file.fileno()))
            text = file.read(1024).decode("ascii", "replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TokenError(
            f"{path} cannot be read ({error.strerror}); remove it to have a new one made"
        ) from None
    if not _TOKEN.fullmatch(text):
        raise TokenError(
            f"{path} holds no token; remove it to have a new one made, and give the new one to "
            "your clients"
        )
    return text


def _create(path: Path) -> None:
    """Write a new token beside its place and link it there: whole, or not at all, and once."""
    draft = path.with_name(f".{FILE_NAME}.{secrets.token_hex(8)}")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(f"{secrets.token_urlsafe(32)}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was faster: its token counts
    except OSError as error:
        raise TokenError(
            f"the token cannot be kept in {path.parent} ({error.strerror}); PORTICO_HOME may name "
            "another place"
        ) from None
    finally:
        with suppress(OSError):  # a disk that takes nothing has no draft either
            draft.unlink()


def _make_private(folder: Path) -> None:
    try:
        make_folder(str(folder))
        status = folder.stat()
        if os.name == "posix" and status.st_mode & _MINE_ONLY:
            folder.chmod(0o700)  # whoever may write here could plant a token of their own
    except OSError as error:
        raise TokenError(
            f"{folder} cannot be made private ({error.strerror}); PORTICO_HOME may name another"
        ) from None


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise TokenError(f"{path} is no file; remove it to have a token made")
    if os.name != "posix":
        return
    if status.st_uid != os.geteuid():
        raise TokenError(f"{path} belongs to another user; remove it to have a token made")
    if status.st_mode & _MINE_ONLY:
        raise TokenError(
            f"others may read {path} (mode {stat.S_IMODE(status.st_mode):04o}): remove it to have "
            f"a new token made, or `chmod 600 {path}` if nobody can have seen it"
        )
