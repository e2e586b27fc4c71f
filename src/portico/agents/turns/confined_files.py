"""Files within one folder. Links are resolved, and may lead neither out of it nor into git's.

A path is resolved once, then opened name by name from the folder's own descriptor without following
links: a link that appears in between makes the operation fail, and cannot lead out.

The settings and hooks of git are programs that your next git command runs. Git takes a folder for
one of its own by its name, by a link or a `gitdir:` file that leads to it, or by its contents, as
with `git init --bare` and `--separate-git-dir`. The contents cover all cases but the first.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from portico.core.model.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND, McpError
from portico.core.state.held_folder import HeldFolder

_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""Characters that macOS ignores in names, as git knows them (`core.protectHFS`)."""
_NAMES = frozenset({".git", "git~1"})
"""Its name, and the short form of it on Windows drives (`core.protectNTFS`)."""
_SIGNS = ("HEAD", "objects", "refs", "commondir")


def has_git_name(path: str) -> bool:
    """True if a path has a part that is `.git` on any file system."""
    return any(_plain(part) in _NAMES for part in path.split("/"))


def _plain(name: str) -> str:
    """Return a name as the most tolerant file systems compare it."""
    without_stream = name.split(":", 1)[0]
    return _IGNORED.sub("", without_stream).casefold().rstrip(". ")


def is_in_git(folder: str) -> bool:
    """True for a folder of git, and all folders in it; takes a resolved path."""
    path = Path(folder)
    return has_git_name(folder) or any(map(_is_git_at, (path, *path.parents)))


def _is_git_at(folder: Path) -> bool:
    return _is_git(lambda sign: os.path.lexists(folder / sign))


def holds_git(folder: int, with_name: str = "") -> bool:
    """True if an open folder is one of git, or would be with a further name in it."""
    return _is_git(lambda sign: sign.casefold() == with_name.casefold() or _has(folder, sign))


def _has(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


def _is_git(has: Callable[[str], bool]) -> bool:
    """Apply the rule of git; with `commondir` the other two are in another place."""
    head, objects, refs, elsewhere = _SIGNS
    return has(head) and (has(elsewhere) or (has(objects) and has(refs)))


MAX_FILE = 8 * 1024 * 1024
"""The largest file that is read or written, in bytes."""
_BLOCK = 64 * 1024

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ConfinedFiles:
    """The text files below a folder."""

    def __init__(self, folder: str) -> None:
        """The folder is a path without links."""
        self.folder = folder
        self._is_in_git = is_in_git(folder)

    def resolve(self, path: str) -> str:
        """Return the path without links; raise McpError if it is not in the folder."""
        if not os.path.isabs(path) or "\0" in path:
            raise McpError(f"the path {path[:200]!r} is not absolute", INVALID_PARAMS)
        real = os.path.realpath(path)
        if real != self.folder and not real.startswith(self.folder.rstrip("/") + "/"):
            raise McpError(f"{path[:200]!r} is outside the folder of the task", INVALID_PARAMS)
        return real

    def _check_outside_git(self, path: str, fd: int, name: str = "") -> None:
        """Raise McpError if an open folder on the way to a file is one of git, or becomes one."""
        if self._is_in_git or holds_git(fd, name):
            raise _in_git(path)

    def read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        """Return a text file, or some of its lines, counted from 1; takes a resolved path."""
        with self._errors(path), self._parent(path, create=False) as (parent, name):
            fd = os.open(
                name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent
            )
            with os.fdopen(fd, "rb") as file:
                _check_regular(fd, path)
                data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise McpError(f"{path[:200]!r} is larger than {MAX_FILE} bytes", INVALID_PARAMS)
        start = _after_lines(data, 0, max(0, (line or 1) - 1))
        end = len(data) if limit is None else _after_lines(data, start, limit)
        try:
            return data[start:end].decode()
        except UnicodeDecodeError:
            raise McpError(f"{path[:200]!r} is not a UTF-8 text", INVALID_PARAMS) from None

    def write(self, path: str, content: str) -> None:
        """Replace a file, or create it with the folders that it needs; takes a resolved path."""
        data = content.encode(errors="surrogatepass")
        if len(data) > MAX_FILE:
            raise McpError(f"the content exceeds {MAX_FILE} bytes", INVALID_PARAMS)
        with self._errors(path), self._parent(path, create=True) as (parent, name):
            mode = _mode_of(name, parent, path)
            # A new file takes the place of the old one: a hard link may lead out of the folder.
            temporary = f".{name[:100]}.{os.urandom(6).hex()}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(temporary, flags, 0o666, dir_fd=parent)
            try:
                with os.fdopen(fd, "wb") as file:
                    if mode is not None:
                        os.fchmod(fd, mode)
                    file.write(data)
                os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                os.unlink(temporary, dir_fd=parent)
                raise

    @contextmanager
    def _parent(self, path: str, *, create: bool) -> Iterator[tuple[int, str]]:
        """Open the folder of a file; yield its descriptor and the file's name."""
        *folders, name = os.path.relpath(path, self.folder).split("/")
        if name in (".", "..") or ".." in folders:
            raise McpError(f"{path[:200]!r} is not a file in the folder", INVALID_PARAMS)
        if has_git_name(path):
            raise _in_git(path)
        fd = HeldFolder.resolved(self.folder).fd
        try:
            for folder in folders:
                self._check_outside_git(path, fd, folder if create else "")
                if create:
                    _make_folder(folder, fd)
                inner = os.open(folder, _FOLDER_FLAGS, dir_fd=fd)
                os.close(fd)
                fd = inner
            self._check_outside_git(path, fd, name if create else "")
            yield fd, name
        finally:
            os.close(fd)

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise McpError(f"{path[:200]!r} does not exist", RESOURCE_NOT_FOUND) from None
        except OSError as error:
            raise McpError(
                f"cannot open {path[:200]!r}: {error.strerror}", INVALID_PARAMS
            ) from None


def _in_git(path: str) -> McpError:
    why = f"{path[:200]!r} is in a folder of git, which runs what is in it"
    return McpError(why, INVALID_PARAMS)


def _after_lines(data: bytes, at: int, count: int) -> int:
    """Return where this many lines after a place end; a list of them may be far larger."""
    while count > 0 and at < len(data):
        block = data[at : at + _BLOCK]
        ends = block.count(b"\n")
        if ends >= count:
            return at + _nth_end(block, count)
        count -= ends
        at += len(block)
    return at


def _nth_end(block: bytes, count: int) -> int:
    end = 0
    for _ in range(count):
        end = block.index(b"\n", end) + 1
    return end


def _make_folder(name: str, parent: int) -> None:
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)


def _check_regular(fd: int, path: str) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise McpError(f"{path[:200]!r} is not a regular file", INVALID_PARAMS)


def _mode_of(name: str, parent: int, path: str) -> int | None:
    """Return the mode of a file that exists; raise McpError for anything but a regular file."""
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise McpError(f"{path[:200]!r} is not a regular file", INVALID_PARAMS)
    return stat.S_IMODE(found.st_mode)
