"""The work that a child and its descendants have done, by the kernel's counts."""

import contextlib
import os

from msgspec import Struct

from portico.upstream.process.process_tree import processes, start_of

_MIN_TICKS = 20
"""A fifth of a second: a process that only waits needs less, even in minutes."""
_MIN_BYTES = 64 * 1024


class ProcessWork(Struct, frozen=True):
    """The state of a family of processes at one time."""

    pids: frozenset[int]
    ticks: int
    """The time on a processor, in ticks of the kernel's clock."""
    moved: int
    """The bytes read and written."""

    def differs(self, before: "ProcessWork") -> bool:
        """True if a process has begun or ended since then, or has worked."""
        return (
            self.pids != before.pids
            or abs(self.ticks - before.ticks) >= _MIN_TICKS
            or abs(self.moved - before.moved) >= _MIN_BYTES
        )


def work_of(leader: int) -> ProcessWork | None:
    """Return the work of a child and of its session so far; None where the kernel does not say."""
    try:
        table = processes(start_of(leader) or 0)
    except OSError:  # no file descriptors left
        return None
    if not table:
        return None
    family = frozenset(pid for pid, (_, _, session, _) in table.items() if session == leader)
    ticks = moved = 0
    for pid in family:
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            stat = _read(pid, "stat").rpartition(b")")[2].split(None, 16)
            ticks += sum(map(int, stat[11:15]))
            lines = _read(pid, "io").splitlines()
            moved += sum(int(line.split()[1]) for line in lines[:2])
    return ProcessWork(family, ticks, moved)


def _read(pid: int, name: str) -> bytes:
    fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)
