"""Files that are there whole, or not at all."""

import os
from contextlib import suppress


def write_new(path: str, data: bytes, like: str | None = None) -> None:
    """A new file, on disk when this returns; for the user alone unless `like` is open to others."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        if like is not None and os.name == "posix":
            was = os.stat(like)
            with suppress(OSError):  # only root can give files away
                os.fchown(file.fileno(), was.st_uid, was.st_gid)
            os.fchmod(file.fileno(), was.st_mode & 0o7777)
        os.fsync(file.fileno())


def replace(path: str, data: bytes) -> None:
    """Put this in the place of a file, at once; OSError leaves the file as it was."""
    folder, name = os.path.split(path)
    draft = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.draft")
    try:
        write_new(draft, data)
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise
