"""The descendants of our children, found in the process table.

The guardian and keepers run this module too, so it imports little.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PAGE = 4096
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)

MARK = "PORTICO_CHILD"
"""The variable that marks each child; its descendants inherit it.

Once a child has exited, only the mark identifies the processes it started in other sessions.
"""
GUARDIAN_NAME = "portico-guardian"
"""The guardian's name in its command line; its Portico's pid and marks follow."""
KEEPER_NAME = "portico-keeper"
"""The name of the process above an agent, of at most 15 characters: the kernel keeps no more."""


class ProcessTable:
    """A snapshot of the process table, read once for any number of trees.

    Raises OSError if no file descriptors are left to read it.
    """

    def __init__(self, trees: Iterable[ProcessTree]) -> None:
        trees = tuple(trees)
        since = min((tree.since for tree in trees), default=0)
        self.table = processes(since)
        """By pid, the parent, group, session and start time of every process that may be in a tree,
        and of our own."""
        self.children: dict[int, list[int]] = {}
        self._members: dict[int, set[int]] = {}
        for pid, (parent, group, session, _) in self.table.items():
            self.children.setdefault(parent, []).append(pid)
            self._members.setdefault(group, set()).add(pid)
            self._members.setdefault(session, set()).add(pid)
        self._marked: dict[str, set[int]] = {}
        if any(tree.marks for tree in trees):
            leaders = {leader for tree in trees for leader in tree.leaders}
            self._read_marks(since, leaders)

    def members(self, leaders: set[int]) -> set[int]:
        """Return the processes in the groups and sessions of these leaders."""
        return set().union(*(self._members.get(leader, ()) for leader in leaders))

    def marked(self, marks: set[str]) -> set[int]:
        """Return the processes outside all known groups that have one of these marks."""
        return set().union(*(self._marked.get(mark, ()) for mark in marks))

    def _read_marks(self, since: int, leaders: set[int]) -> None:
        for pid, (parent, group, session, start) in self.table.items():
            if start < since or group in leaders or session in leaders:
                continue
            marks, owner = marks_of(pid)
            for mark in marks:
                self._marked.setdefault(mark, set()).add(pid)
                # A Portico's own environment is unreadable.
                if owner == parent and owner in self.table:
                    self._marked[mark].add(owner)


class ProcessTree:
    """All descendants of some group leaders, including those that moved to another group."""

    def __init__(self, leaders: set[int], marks: set[str] | None = None, since: int = 0) -> None:
        """`since` is the first leader's start time; an older process cannot descend from one."""
        self.leaders = leaders
        self.marks = marks or set()
        self.since = since
        self.escaped: dict[int, int] = {}
        """Descendants outside the groups, with their start times, since pids are reused."""

    def find_descendants(self, snapshot: ProcessTable) -> bool:
        """Find all descendants; return False if none live."""
        table = snapshot.table
        if not table:  # without /proc, only the groups are known
            return any(_try_signal(os.killpg, leader, 0) for leader in self.leaders)
        found = {
            pid for pid, start in self.escaped.items() if pid in table and table[pid][3] == start
        }
        found |= snapshot.members(self.leaders) | snapshot.marked(self.marks)
        todo = list(found)
        while todo:
            new = [pid for pid in snapshot.children.get(todo.pop(), ()) if pid not in found]
            found.update(new)
            todo += new
        self.escaped = {pid: table[pid][3] for pid in found if table[pid][1] not in self.leaders}
        return bool(found)

    def signal(self, number: int) -> None:
        """Signal the groups and the escaped descendants."""
        for leader in self.leaders:
            _try_signal(os.killpg, leader, number)
        self.signal_escaped(number)

    def signal_escaped(self, number: int) -> bool:
        """Signal the descendants outside the groups; return False if none live."""
        sent = False
        for pid, start in self.escaped.items():
            sent = (start_of(pid) == start and _try_signal(os.kill, pid, number)) or sent
        return sent


def processes(since: int = 0) -> dict[int, tuple[int, int, int, int]]:
    """Return parent, group, session and start of our own process, and of all others that started
    since then; empty without /proc.

    A process that is known to be older is not read again: most are, and each takes 20 us.
    """
    global _known_starts  # noqa: PLW0603  (of this process: most of it does not change)
    known, starts, found = _known_starts, {}, {}
    own = os.getpid()
    for pid, inode in _pids():
        before = known.get(pid)
        if before is not None and before[0] == inode and before[1] < since and pid != own:
            starts[pid] = before
        elif stat := stat_of(pid):
            starts[pid] = inode, stat[3]
            if stat[3] >= since or pid == own:
                found[pid] = stat
    _known_starts = starts
    return found


_known_starts: dict[int, tuple[int, int]] = {}
"""By pid, the inode of its folder in /proc, which no other process gets, and its start."""


def _pids() -> list[tuple[int, int]]:
    """Return the pid and the inode of every process."""
    try:
        with os.scandir("/proc") as entries:
            return [(int(one.name), one.inode()) for one in entries if one.name.isdigit()]
    except OSError as error:
        if error.errno in _OUT_OF_FILES:
            raise
        return []


def start_of(pid: int) -> int | None:
    """Return a process's start by the kernel's clock; None if it is dead, or without /proc."""
    try:
        stat = stat_of(pid)
    except OSError:
        return None
    return stat[3] if stat else None


def stat_of(pid: int) -> tuple[int, int, int, int] | None:
    """Return parent, group, session and start of a process; None if it is dead."""
    try:
        fields = read_proc(f"/proc/{pid}/stat").rpartition(b")")[2].split(None, 20)
        if fields[0] in {b"Z", b"X"}:  # dead, but not yet reaped
            return None
        return int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19])
    except IndexError:
        return None
    except OSError as error:
        if error.errno in _OUT_OF_FILES:
            raise
        return None


def marks_of(pid: int) -> tuple[list[str], int]:
    """Return a process's marks; for a guardian, those of its Portico, and that process."""
    try:
        variables = read_proc(f"/proc/{pid}/environ")
        if not variables:
            return _marks_of_guardian(read_proc(f"/proc/{pid}/cmdline"))
    except OSError:  # ended, or of another user, or unreadable for all
        return [], 0
    _, _, value = (b"\0" + variables).partition(f"\0{MARK}=".encode())
    return value.partition(b"\0")[0].decode("ascii", "replace").split(":"), 0


def _marks_of_guardian(cmdline: bytes) -> tuple[list[str], int]:
    words = cmdline.decode("ascii", "replace").split("\0")
    if GUARDIAN_NAME not in words:
        return [], 0
    owner, marks, *_ = *words[words.index(GUARDIAN_NAME) + 1 :], "", ""
    return marks.split(":"), int(owner) if owner.isdigit() else 0


def read_proc(path: str) -> bytes:
    """Return the content of a file in /proc; raises OSError."""
    fd = os.open(path, os.O_RDONLY)  # a file object would take twice as long
    try:
        data = os.read(fd, _PAGE)
        while data and len(data) % _PAGE == 0 and (more := os.read(fd, _PAGE)):
            data += more
        return data
    finally:
        os.close(fd)


def _try_signal(kill: Callable[[int, int], None], to: int, number: int) -> bool:
    try:
        kill(to, number)
    except (ProcessLookupError, PermissionError):  # macOS returns EPERM for a group of zombies
        return False
    return True
