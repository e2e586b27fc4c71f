"""Private files and folders of the user; files are written atomically."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
# A link could point to a file that others write to; a pipe would make us wait for its writer.
READ = os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0)
_STALE_S = 3600
"""An older draft has lost its writer: writing one takes milliseconds."""
Stamp = tuple[int, ...]


def stamp(path: str) -> Stamp | None:
    """Return a value that changes with a file's content, owner or mode; None without a file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    mode, owner = status.st_mode, status.st_uid
    return (status.st_mtime_ns, status.st_size, status.st_ino, mode, owner)


def make_folder(folder: str) -> None:
    """Create a folder and its missing parents, private to the user."""
    # `os.makedirs` creates parents by the umask: other users could replace our folder.
    try:
        os.mkdir(folder, 0o700)
    except FileNotFoundError:
        above = os.path.dirname(os.path.abspath(folder))
        make_folder(above)
        os.makedirs(folder, 0o700, exist_ok=True)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise


def make_private(folder: str) -> None:
    """Create the folder if needed, and make it private; raise OSError on failure."""
    make_folder(folder)
    if os.name == "posix" and os.stat(folder).st_mode & 0o077:
        os.chmod(folder, 0o700)


def is_writable(folder: str) -> bool:
    """True if a file can be created in a folder, which may not exist yet."""
    while not os.path.exists(folder) and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
    return os.access(folder, os.W_OK | os.X_OK)


def read(
    path: str, max_size: int, *, follow: bool = False, dir_fd: int | None = None
) -> tuple[bytes, os.stat_result]:
    """Return a file's content and status; raise OSError if it is larger, or is a link."""
    flags = READ & ~_NO_FOLLOW if follow else READ
    with os.fdopen(os.open(path, flags, dir_fd=dir_fd), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        if status.st_size > max_size:
            raise OSError(errno.EFBIG, "it is too large")
        return file.read(), status


@contextmanager
def draft(path: str, data: bytes, like: str | None = None) -> Iterator[str]:
    """Write a new file beside `path`, to be moved there; it is removed if it is not moved.

    It is private to the user, or has the owner and mode of `like`.
    """
    folder, name = os.path.split(path)
    made = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.draft")
    try:
        handle = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            if like is not None and os.name == "posix":
                was = os.stat(like)
                with suppress(OSError):  # only root can give files away
                    os.fchown(handle, was.st_uid, was.st_gid)
                os.fchmod(handle, was.st_mode & 0o7777)
            os.fsync(handle)
        yield made
    finally:
        with suppress(OSError):
            os.unlink(made)


def replace(path: str, data: bytes) -> None:
    """Replace a file atomically; OSError leaves it unchanged."""
    with draft(path, data) as made:
        os.replace(made, path)


def create(path: str, data: bytes) -> None:
    """Create a file atomically; raise FileExistsError if it exists."""
    with draft(path, data) as made:
        os.link(made, path)


def sync_folder(folder: str) -> None:
    """Make a move into this folder survive a crash; otherwise either version may remain."""
    with suppress(OSError):  # some file systems do not support it
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def dated(folder: str, ending: str = "") -> list[tuple[float, str]]:
    """Return the modification time and path of each file with this ending, oldest first."""
    found: list[tuple[float, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(ending):
                with suppress(OSError):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
    return sorted(found)


def keep_newest(count: int, folder: str, ending: str = "") -> None:
    """Remove all but the newest files with this ending."""
    for _, path in dated(folder, ending)[:-count]:
        with suppress(OSError):
            os.unlink(path)


def remove_old_drafts(folder: str, now: float) -> None:
    """Remove the drafts of writers that were killed."""
    for at, path in dated(folder, ".draft"):
        if os.path.basename(path).startswith(".") and now - at > _STALE_S:
            with suppress(OSError):
                os.unlink(path)
