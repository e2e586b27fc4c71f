"""The children of each Portico, in a file that it holds locked: how others find its orphans.

The kernel releases the lock when a process ends, however it ends. The guardian ends the children
then. A child that lives on without a Portico and without a guardian is an orphan, which the next
Portico ends.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from functools import cache

from msgspec import Struct

from portico.core.config.paths import state_folder
from portico.core.model.errors import PorticoError
from portico.core.model.wording import counted
from portico.core.state.files import make_private
from portico.core.state.report import report
from portico.upstream.process.guardian_process import end_children
from portico.upstream.process.process_tree import GUARDIAN_NAME, processes, read_proc, start_of

_FOLDER = "children"
_OPEN = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
_MAX_SIZE = 1024 * 1024
_MIN_LINES = 256
_FORGOTTEN_S = 30 * 86_400


class ChildRecord(Struct, frozen=True):
    """A child as its Portico wrote it down."""

    mark: str
    pid: int
    start: int
    """By the kernel's clock, since pids are reused."""

    def line(self) -> bytes:
        """Format it for the file."""
        return f"+{self.mark} {self.pid} {self.start}\n".encode()


class ChildrenFile:
    """The file of this process; without a folder to write to, nothing is recorded."""

    def __init__(self) -> None:
        self._fd = -1
        self._path = ""
        self._has_tried = False
        self._children: dict[str, ChildRecord] = {}
        self._lines = 0

    def add(self, mark: str, pid: int) -> None:
        """Record a child that has started."""
        start = start_of(pid)
        if start is None:  # it has ended, or there is no /proc
            return
        child = self._children[mark] = ChildRecord(mark, pid, start)
        self._append(child.line())

    def remove(self, mark: str) -> None:
        """Remove a child that has ended with all its descendants."""
        if self._children.pop(mark, None) is not None:
            self._append(f"-{mark}\n".encode())

    def close(self) -> None:
        """Remove the file, unless children remain."""
        if self._fd >= 0 and not self._children:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        self.drop()

    def drop(self) -> None:
        """Leave the file to the process that opened it."""
        if self._fd >= 0:
            os.close(self._fd)
        self.__init__()  # type: ignore[misc]

    def _append(self, line: bytes) -> None:
        with contextlib.suppress(OSError, PorticoError):
            if not self._has_tried:
                self._has_tried = True
                self._fd, self._path = _created()
            if self._fd < 0:
                return
            self._lines += 1
            if self._lines > 2 * len(self._children) + _MIN_LINES:
                os.ftruncate(self._fd, 0)
                self._lines = len(self._children)
                line = b"".join(child.line() for child in self._children.values())
            os.write(self._fd, line)


def orphans() -> list[ChildRecord]:
    """Return the children that live on although their Portico and its guardian have ended."""
    guarded = _owners_of_guardians()
    found = []
    for path, owner in _files():
        if owner not in guarded:
            with _unlocked(path) as fd:
                found += [] if fd is None else _living(fd)
    return found


def end_orphans(found: list[ChildRecord]) -> None:
    """End these children with their groups and sessions, but nothing that only has their mark:
    whatever a person runs in a terminal that an agent opened has it too."""
    end_children({one.mark: (one.pid, one.start, 0) for one in found}, by_mark=False)


def _created() -> tuple[int, str]:
    """Create the file of this process and lock it; raises OSError."""
    import fcntl

    folder = os.path.join(state_folder(), _FOLDER)
    make_private(folder)
    with contextlib.suppress(RuntimeError):  # no more threads
        threading.Thread(target=_clean_up, name="portico-orphans", daemon=True).start()
    while True:
        path = os.path.join(folder, f"{os.getpid()}-{pids_name()}-{os.urandom(4).hex()}")
        fd = os.open(path, _OPEN | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError:  # an unlocked file would say that we have ended
            os.close(fd)
            os.unlink(path)
            raise
        if os.fstat(fd).st_nlink:  # another process may have removed it as stale
            return fd, path
        os.close(fd)


def _clean_up() -> None:
    """End all orphans, and remove the files of processes that have ended."""
    guarded = _owners_of_guardians()
    for path, owner in _files():
        with _unlocked(path) as fd:
            if fd is None:
                continue
            left = _living(fd) if owner not in guarded else []
            if left:
                end_orphans(left)
                report(f"ended {counted(len(left), 'server')} of a Portico that was killed")
            if not _living(fd):
                with contextlib.suppress(OSError):
                    os.unlink(path)
    for path, _ in _files(are_ours=False):  # as of another start of the machine
        with contextlib.suppress(OSError):
            if os.stat(path).st_mtime < time.time() - _FORGOTTEN_S:
                os.unlink(path)


def _files(*, are_ours: bool = True) -> list[tuple[str, int]]:
    """The file of each Portico whose pids mean the same as ours, or do not, and its pid."""
    folder = os.path.join(state_folder(), _FOLDER)
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    words = [(name, *name.split("-")) for name in sorted(names)]
    return [
        (os.path.join(folder, name), int(pid))
        for name, pid, *rest in words
        if pid.isdecimal() and (rest[:1] == [pids_name()]) == are_ours
    ]


@cache
def pids_name() -> str:
    """Return a name for our set of pids: that of one start of the machine, and one container."""
    try:
        boot = read_proc("/proc/sys/kernel/random/boot_id").decode()[:8]
        return f"{boot}{os.stat('/proc/self/ns/pid').st_ino:x}"
    except OSError:
        return ""


@contextlib.contextmanager
def _unlocked(path: str) -> Iterator[int | None]:
    """Open a file whose lock is free; None if a Portico holds it."""
    import fcntl

    try:
        fd = os.open(path, _OPEN)
    except OSError:
        yield None
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        yield None
    else:
        yield fd
    finally:
        os.close(fd)


def _living(fd: int) -> list[ChildRecord]:
    """The children in a file that still run."""
    found: dict[str, ChildRecord] = {}
    for line in os.pread(fd, _MAX_SIZE, 0).decode(errors="replace").splitlines():
        mark, *numbers = line[1:].split(" ")
        if line[:1] == "+" and len(numbers) == 2 and all(one.isdecimal() for one in numbers):
            found[mark] = ChildRecord(mark, int(numbers[0]), int(numbers[1]))
        elif line[:1] == "-":
            found.pop(mark, None)
    return [child for child in found.values() if start_of(child.pid) == child.start]


def _owners_of_guardians() -> set[int]:
    """The Porticos whose guardians run, and so still end or spare their children."""
    owners = set()
    for pid in processes():
        with contextlib.suppress(OSError, ValueError):
            words = read_proc(f"/proc/{pid}/cmdline").split(b"\0")
            at = words.index(GUARDIAN_NAME.encode())
            owners.add(int(words[at + 1]))
    return owners
