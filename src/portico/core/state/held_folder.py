"""Folders that are held by their descriptors, for places in which an agent can write.

An agent can replace a folder by a link between two uses of its path. A descriptor stays with its
folder, and a name that is used with it here is never followed if it is a link.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from portico.core.state import files

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NAMED = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class HeldFolder:
    """An open folder. All methods raise OSError."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    @classmethod
    def at(cls, path: str) -> Self:
        """Hold the folder at a path that no agent can change."""
        return cls(os.open(path, _FOLDER))

    @classmethod
    def resolved(cls, path: str) -> Self:
        """Hold the folder at a path that was resolved earlier; a link in it is new, and refused."""
        fd = os.open("/", _NAMED)
        try:
            for name in path.split("/"):
                if name:
                    above, fd = fd, os.open(name, _NAMED, dir_fd=fd)
                    os.close(above)
            return cls(os.open(".", _FOLDER, dir_fd=fd))
        finally:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self.fd)

    @property
    def status(self) -> os.stat_result:
        """Its owner, mode and inode."""
        return os.fstat(self.fd)

    def names(self) -> list[str]:
        """Return the names of everything in it."""
        return os.listdir(self.fd)

    def inner(self, name: str, *, is_made: bool = False) -> Self:
        """Hold a folder in this one, which may be made; a link is refused."""
        if is_made:
            with suppress(FileExistsError):
                os.mkdir(name, 0o777, dir_fd=self.fd)
        try:
            return type(self)(os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=self.fd))
        except OSError as error:
            if error.errno == errno.ELOOP:  # which of the two a link is depends on the system
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", name) from error
            raise

    @contextmanager
    def below(self, *names: str, is_made: bool = False) -> Iterator[Self]:
        """A folder some levels below, opened name by name."""
        held = type(self)(os.dup(self.fd))
        try:
            for name in names:
                inner = held.inner(name, is_made=is_made)
                os.close(held.fd)
                held = inner
            yield held
        finally:
            os.close(held.fd)

    def read(self, name: str, max_size: int) -> bytes:
        """Return the content of a regular file."""
        return files.read(name, max_size, dir_fd=self.fd)[0]

    def write(self, name: str, data: bytes) -> None:
        """Replace a file as git does: by a new one, which locks it until it takes its place."""
        lock = f"{name}.lock"
        with os.fdopen(os.open(lock, _NEW, 0o666, dir_fd=self.fd), "wb") as file:
            file.write(data)
        os.replace(lock, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def create(self, name: str) -> int:
        """Create a file, and return its descriptor."""
        return os.open(name, _NEW, 0o444, dir_fd=self.fd)

    def remove(self, name: str) -> None:
        """Remove a file, a link, or a folder with everything in it; it may be missing."""
        if self.unlinked(name):
            return
        with self.opened_up(name) as inner:
            inner.clear()
        os.rmdir(name, dir_fd=self.fd)

    def clear(self) -> None:
        """Remove everything in it, however deep."""
        while names := self.names():
            for name in names:
                if not self.unlinked(name):
                    with self.opened_up(name) as inner:
                        inner._empty_into(self)
                    os.rmdir(name, dir_fd=self.fd)

    def _empty_into(self, other: Self) -> None:
        """Remove all files, and move all folders to another: depth costs neither stack nor
        descriptors."""
        for name in self.names():
            if not self.unlinked(name):
                with self.opened_up(name):  # a folder without rights cannot be moved
                    pass
                moved = os.urandom(12).hex()
                os.rename(name, moved, src_dir_fd=self.fd, dst_dir_fd=other.fd)

    def unlinked(self, name: str) -> bool:
        """Remove anything but a folder; return False for a folder."""
        try:
            os.unlink(name, dir_fd=self.fd)
        except FileNotFoundError:
            return True
        except OSError:
            found = os.stat(name, dir_fd=self.fd, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode):
                raise
            return False
        return True

    def opened_up(self, name: str) -> Self:
        """Hold an inner folder whose owner may have no rights in it."""
        try:
            inner = self.inner(name)
        except PermissionError:
            _allow(name, self.fd)
            inner = self.inner(name)
        if inner.status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.fchmod(inner.fd, stat.S_IRWXU)
        return inner


def _allow(name: str, parent: int) -> None:
    """Give the owner all rights in a folder that cannot be opened yet."""
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(name, stat.S_IRWXU, dir_fd=parent, follow_symlinks=False)
        return
    fd = os.open(name, _NAMED, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{fd}", stat.S_IRWXU)
    finally:
        os.close(fd)
