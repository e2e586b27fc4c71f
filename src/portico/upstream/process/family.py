"""The families of agents: which agent a process descends from.

A process may call Portico from anywhere below an agent: in a session of its own, as an orphan, with
an empty environment. Its keeper is among its parents all the same. Where agents have no keeper, the
groups, sessions and marks of the process and of its parents are left.
"""

import os

from portico.core.model.errors import PorticoError
from portico.upstream.process.process_tree import KEEPER_NAME, marks_of, read_proc, stat_of

_TRIES = 10
ProcessStat = tuple[int, int, int, int]
"""The parent, group, session and start of a process."""


class Family:
    """The processes that we started for one agent, with all their descendants."""

    def __init__(self) -> None:
        self._leaders: dict[str, int] = {}

    def expect(self, mark: str) -> None:
        """Add the process that is about to start with this mark."""
        _BY_MARK[mark] = self

    def add(self, leader: int, mark: str) -> None:
        """Add a process that has started."""
        self._leaders[mark] = leader
        _BY_LEADER[leader] = self

    def forget(self, mark: str) -> None:
        """Forget a process that has ended with all its descendants."""
        _BY_MARK.pop(mark, None)
        _BY_LEADER.pop(self._leaders.pop(mark, 0), None)


_BY_MARK: dict[str, Family] = {}
_BY_LEADER: dict[int, Family] = {}


def family_of(pid: int) -> Family | None:
    """Return the family of our own agents that a process belongs to; None if it has none.

    Raises PorticoError if that is unknown, such as after the exit of the process.
    """
    if not _BY_MARK or not pid:  # the pid is 0 in a sandbox into which we cannot see
        return None
    lineage = _lineage(pid)
    above = {one for one, _ in lineage}
    near = {leader for _, (_, group, session, _) in lineage for leader in (group, session)}
    for leaders in (above, near):  # a process cannot choose its parents
        for leader in leaders & _BY_LEADER.keys():
            return _BY_LEADER[leader]
    own = os.getpid()
    if any(parent == own and _is_keeper(one) for one, (parent, *_) in lineage):
        raise PorticoError(f"the agent above process {pid} has ended")
    marks = (mark for one in above for mark in marks_of(one)[0])
    return next((_BY_MARK[mark] for mark in marks if mark in _BY_MARK), None)


def gateways_above() -> list[int]:
    """Return the Porticos below whose agents this process runs, the nearest first."""
    return [parent for one, (parent, *_) in _lineage(os.getpid()) if _is_keeper(one)]


def is_below_agent() -> bool:
    """True if this process runs below an agent, or if that is unknown."""
    try:
        return bool(gateways_above())
    except PorticoError:
        return True


def refuse_below_agent(command: str) -> None:
    """Raise PorticoError if this command runs below an agent: only a person may use it."""
    if gateways_above():
        raise PorticoError(
            f"{command} is refused: it was started by an agent that works on a delegated task, "
            "and only a person may use it; run it in your own terminal"
        )


def _lineage(pid: int) -> list[tuple[int, ProcessStat]]:
    """Return a process and all its parents; empty without /proc. Raises PorticoError."""
    if not _has_proc():
        return []
    for _ in range(_TRIES):
        found, one = [], pid
        while one and (stat := _stat(one)) is not None:
            found.append((one, stat))
            one = stat[0]
        if not one or _is_hidden(one):
            return found
        if not found:
            break  # else a parent has just exited, and its children have another one
    raise PorticoError(f"process {pid} has exited, or starts others too fast")


def _stat(pid: int) -> ProcessStat | None:
    try:
        return stat_of(pid)
    except OSError as error:  # no file descriptors left
        raise PorticoError(f"cannot read /proc: {error.strerror}") from None


def _has_proc() -> bool:
    """True if /proc shows the processes by the pids that we know; that of a sandbox may not."""
    try:
        return os.readlink("/proc/self") == str(os.getpid())
    except OSError:
        return False


def _is_hidden(pid: int) -> bool:
    """True for a process of another user, which some systems do not show."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _is_keeper(pid: int) -> bool:
    try:
        return read_proc(f"/proc/{pid}/comm") == f"{KEEPER_NAME}\n".encode()
    except OSError:
        return False
