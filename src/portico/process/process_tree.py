"""Finds every process that descends from a child of ours.

The guardian runs this module too: it imports only what an interpreter has loaded anyway.
"""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False  # as in typing, which is too large for the guardian
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_PAGE = 4096
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)

MARK = "PORTICO_CHILD"
"""The variable that marks each child; its descendants inherit it.

Once a child is gone, nothing else tells which processes it started in sessions of their own.
"""
GUARDIAN_NAME = "portico-guardian"
"""How a guardian's command line names it; the owner's number and the owner's marks follow."""


class ProcessTable:
    """The process table, read once for any number of families.

    Raises OSError if there are no file descriptors left to read it with.
    """

    def __init__(self, families: Iterable[ProcessTree]) -> None:
        families = tuple(families)
        self.table = processes()
        """By number, the parent, group, session and start of every living process."""
        self.children: dict[int, list[int]] = {}
        self._members: dict[int, set[int]] = {}
        for pid, (parent, group, session, _) in self.table.items():
            self.children.setdefault(parent, []).append(pid)
            self._members.setdefault(group, set()).add(pid)
            self._members.setdefault(session, set()).add(pid)
        self._bearers: dict[str, set[int]] = {}
        if any(family.marks for family in families):
            leaders = {leader for family in families for leader in family.leaders}
            self._read_marks(min(family.since for family in families), leaders)

    def members(self, leaders: set[int]) -> set[int]:
        """The processes in the groups and sessions of these leaders."""
        return set().union(*(self._members.get(leader, ()) for leader in leaders))

    def bearers(self, marks: set[str]) -> set[int]:
        """The processes outside all known groups that have one of these marks."""
        return set().union(*(self._bearers.get(mark, ()) for mark in marks))

    def _read_marks(self, since: int, leaders: set[int]) -> None:
        for pid, (parent, group, session, start) in self.table.items():
            if start < since or group in leaders or session in leaders:
                continue
            marks, owner = _marks_of(pid)
            for mark in marks:
                self._bearers.setdefault(mark, set()).add(pid)
                if owner == parent:  # a Portico's own environment cannot be read
                    self._bearers[mark].add(owner)


class ProcessTree:
    """All descendants of some group leaders, including those that moved to another group."""

    def __init__(self, leaders: set[int], marks: set[str] | None = None, since: int = 0) -> None:
        """`since` is the start of the first leader: an older process descends from none of them."""
        self.leaders = leaders
        self.marks = marks or set()
        self.since = since
        self.strays: dict[int, int] = {}
        """Those outside the groups, with their start: a number alone may be reused."""

    def look(self, census: ProcessTable) -> bool:
        """Find all of them; False if none live."""
        table = census.table
        if not table:  # no /proc: the groups are all there is to know
            return any(_sent(os.killpg, leader, 0) for leader in self.leaders)
        found = {
            pid for pid, start in self.strays.items() if pid in table and table[pid][3] == start
        }
        found |= census.members(self.leaders) | census.bearers(self.marks)
        todo = list(found)
        while todo:
            new = [pid for pid in census.children.get(todo.pop(), ()) if pid not in found]
            found.update(new)
            todo += new
        self.strays = {pid: table[pid][3] for pid in found if table[pid][1] not in self.leaders}
        return bool(found)

    def signal(self, number: int) -> None:
        """Signal the groups and those outside of them."""
        for leader in self.leaders:
            _sent(os.killpg, leader, number)
        self.signal_strays(number)

    def signal_strays(self, number: int) -> bool:
        """Signal those outside the groups; False if there are none."""
        sent = False
        for pid, start in self.strays.items():
            sent = (start_of(pid) == start and _sent(os.kill, pid, number)) or sent
        return sent


def processes() -> dict[int, tuple[int, int, int, int]]:
    """Every living process: parent, group, session and start. Empty where there is no /proc."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError as error:
        if error.errno in _OUT_OF_FILES:
            raise
        return {}
    return {pid: stat for pid in pids if (stat := _stat(pid))}


def start_of(pid: int) -> int | None:
    """When a process began, by the kernel's clock; None if it is dead, or there is no /proc."""
    try:
        stat = _stat(pid)
    except OSError:
        return None
    return stat[3] if stat else None


def _stat(pid: int) -> tuple[int, int, int, int] | None:
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split(None, 20)
        if fields[0] in {b"Z", b"X"}:  # dead, and only not yet waited for
            return None
        return int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19])
    except IndexError:
        return None
    except OSError as error:
        if error.errno in _OUT_OF_FILES:
            raise
        return None


def _marks_of(pid: int) -> tuple[list[str], int]:
    """The marks that a process has; and of a guardian, which has its owner's, the owner."""
    try:
        variables = _read(f"/proc/{pid}/environ")
        if not variables:
            return _marks_of_guardian(_read(f"/proc/{pid}/cmdline"))
    except OSError:  # gone, or another user's, or closed to everybody
        return [], 0
    _, _, value = (b"\0" + variables).partition(f"\0{MARK}=".encode())
    return value.partition(b"\0")[0].decode("ascii", "replace").split(":"), 0


def _marks_of_guardian(cmdline: bytes) -> tuple[list[str], int]:
    words = cmdline.decode("ascii", "replace").split("\0")
    if GUARDIAN_NAME not in words:
        return [], 0
    owner, marks, *_ = *words[words.index(GUARDIAN_NAME) + 1 :], "", ""
    return marks.split(":"), int(owner) if owner.isdigit() else 0


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)  # a file object would take twice as long
    try:
        data = os.read(fd, _PAGE)
        while data and len(data) % _PAGE == 0 and (more := os.read(fd, _PAGE)):
            data += more
        return data
    finally:
        os.close(fd)


def _sent(kill: Callable[[int, int], None], to: int, number: int) -> bool:
    try:
        kill(to, number)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
        return False
    return True
