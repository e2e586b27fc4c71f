"""Ends what a killed Portico leaves behind.

A process that is killed can clean up nothing. So a second one, which runs this very module, hears
of every child over a pipe, and ends those it still knows when the pipe closes. It lives as long as
we do: it imports only what an interpreter has loaded anyway, to stay small.
"""

from __future__ import annotations

import _thread
import os
import sys
import time

TYPE_CHECKING = False  # as in typing, which is too large for the guardian
if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import Popen

_GRACE_S = 0.5
_KILL_S = 1.0
_POLL_S = 0.02
_PAGE = 4096
# To compile this file would cost the guardian a megabyte, so that it gets it compiled.
_BOOT = "import marshal, sys; exec(marshal.load(sys.stdin.buffer))"
_KILL, _TERM = 9, 15  # the signal module brings a megabyte of enums

MARK = "PORTICO_CHILD"
"""A variable that each child inherits from us and hands down, by which the guardian knows them.

A child leaves as soon as we do, and then nothing else tells whose those were that it started in
sessions of their own.
"""


class Family:
    """All who descend from some leaders of groups, also those who moved to a group of their own."""

    def __init__(self, leaders: set[int], marks: set[str] | None = None, since: int = 0) -> None:
        """`since` is the start of the first: whoever is older descends from none of them."""
        self.leaders = leaders
        self._marks = marks or set()
        self._since = since
        self.strays: dict[int, int] = {}
        """Those outside the groups, with their start: a number alone may be reused."""

    def look(self) -> bool:
        """Find all, while their parents live: later nothing leads to them. False if none live."""
        if not (self.leaders or self.strays or self._marks):
            return False
        table = _processes()
        if not table:  # no /proc: the groups are all there is to know
            return any(_sent(os.killpg, leader, 0) for leader in self.leaders)
        children: dict[int, list[int]] = {}
        for pid, (parent, *_) in table.items():
            children.setdefault(parent, []).append(pid)
        found = {
            pid for pid, start in self.strays.items() if pid in table and table[pid][3] == start
        }
        found |= {pid for pid, (_, *ids, _) in table.items() if not self.leaders.isdisjoint(ids)}
        if self._marks:
            young = {pid for pid, (*_, start) in table.items() if start >= self._since} - found
            found |= {pid for pid in young if not self._marks.isdisjoint(_marks_of(pid))}
        todo = list(found)
        while todo:
            new = [pid for pid in children.get(todo.pop(), ()) if pid not in found]
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


class Guardian:
    """Our end of the pipe. It starts with the first child, and anew if it has died."""

    def __init__(self) -> None:
        self._groups: dict[str, int] = {}
        self._popen: Popen[bytes] | None = None
        self._lock = _thread.allocate_lock()
        self._pipe = -1
        self._hooked = False

    @property
    def pid(self) -> int | None:
        """The guardian's number, if one runs."""
        return self._popen.pid if self._popen is not None and self._popen.poll() is None else None

    def expect(self) -> str:
        """A mark for a child that is about to start; whoever bears it will be ended."""
        mark = os.urandom(8).hex()
        with self._lock:
            if self.pid is None:
                self._start()
            self._groups[mark] = 0
            self._tell(f"+{mark} 0\n")
        return mark

    def register(self, mark: str, group: int) -> None:
        """The child with this mark leads this group."""
        with self._lock:
            self._groups[mark] = group
            self._tell(f"+{mark} {group}\n")

    def forget(self, mark: str) -> None:
        """This child and its group are no more; their number may soon be another's."""
        with self._lock:
            if self._groups.pop(mark, None) is not None:
                self._tell(f"-{mark}\n")

    def _tell(self, line: str) -> None:
        if self._popen is None:
            return
        try:
            os.write(self._pipe, line.encode())
        except OSError:  # it has died, or reads nothing any more
            self._start()

    def _start(self) -> None:
        import contextlib
        import marshal
        import signal
        import subprocess

        self._drop(kill=True)
        self._hook()
        get_code = getattr(__spec__.loader, "get_code", None)
        if not sys.executable or getattr(sys, "frozen", False) or get_code is None:
            return  # a program of its own: there is no interpreter to run this file
        # Blocked from its first moment on: whoever ends us all politely must not end it first.
        mask = signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
        )
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BOOT, "portico-guardian"],
                stdin=subprocess.PIPE,
                # Whoever waits for the end of our own output must not wait for the guardian.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            return  # the child will say better what there is too little of
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        assert self._popen.stdin is not None
        self._pipe = self._popen.stdin.fileno()
        known = "".join(f"+{mark} {group}\n" for mark, group in self._groups.items())
        with contextlib.suppress(OSError):  # it has died already: the next child starts another
            os.write(self._pipe, marshal.dumps(get_code(__name__)))
            os.write(self._pipe, known.encode())
        os.set_blocking(self._pipe, False)

    def _hook(self) -> None:
        import atexit

        if not self._hooked:
            self._hooked = True
            atexit.register(self._leave)
            # A copy of the pipe in a fork of ours would hide our end from the guardian.
            os.register_at_fork(after_in_child=self._forked)

    def _leave(self) -> None:
        import contextlib
        import subprocess

        if self._groups and self.pid is None:
            self._start()  # somebody was not closed, and would be left
        if self._popen is not None and self._popen.stdin is not None:
            self._popen.stdin.close()
            if not self._groups:  # then it goes at once, and nobody finds a trace of us
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._popen.wait(_GRACE_S)
        self._drop(kill=False)

    def _forked(self) -> None:
        self._lock = _thread.allocate_lock()
        self._groups.clear()
        self._drop(kill=False)

    def _drop(self, kill: bool) -> None:
        popen, self._popen = self._popen, None
        if popen is None:
            return
        if kill:  # else one that was only asleep would end the groups once its pipe closes
            popen.kill()
            popen.wait()
        if popen.stdin is not None:
            popen.stdin.close()
        popen.returncode = popen.returncode or 0  # it may outlive us: that is what it is for


GUARDIAN = Guardian()
"""One for all children of this process."""


def _processes() -> dict[int, tuple[int, int, int, int]]:
    """Every living process: parent, group, session and start. Empty where there is no /proc."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return {}
    return {pid: stat for pid in pids if (stat := _stat(pid))}


def _stat(pid: int) -> tuple[int, int, int, int] | None:
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split(None, 20)
        if fields[0] in {b"Z", b"X"}:  # dead, and only not yet waited for
            return None
        return int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19])
    except (OSError, IndexError):
        return None


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY)  # a file object would take twice as long
    try:
        data = os.read(fd, _PAGE)
        while len(data) % _PAGE == 0 and (more := os.read(fd, _PAGE)):
            data += more
        return data
    finally:
        os.close(fd)


def _marks_of(pid: int) -> list[str]:
    try:
        variables = b"\0" + _read(f"/proc/{pid}/environ")
    except OSError:  # gone, or another user's
        return []
    _, _, value = variables.partition(f"\0{MARK}=".encode())
    return value.partition(b"\0")[0].decode("ascii", "replace").split(":")


def _sent(kill: Callable[[int, int], None], to: int, number: int) -> bool:
    try:
        kill(to, number)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
        return False
    return True


def start_of(pid: int) -> int | None:
    """When a process began, by the kernel's clock; None if it is dead, or there is no /proc."""
    stat = _stat(pid)
    return stat[3] if stat else None


def _guard() -> None:
    """Be the guardian: take in who is there until the pipe closes, then end them."""
    known: dict[str, tuple[int, int | None]] = {}
    for line in sys.stdin:
        mark, _, group = line[1:].rstrip().partition(" ")
        if line.startswith("+"):
            known[mark] = int(group), start_of(int(group))
        else:
            known.pop(mark, None)
    # A leader that started later than the one we knew has only got its number.
    leaders = {group for group, start in known.values() if start_of(group) in {start, None}}
    family = Family(leaders - {0}, set(known))
    if known and family.look():
        family.signal(_TERM)
        _until_gone(family, 0, _GRACE_S)
        _until_gone(family, _KILL, _KILL_S)


def _until_gone(family: Family, number: int, within_s: float) -> None:
    limit = time.monotonic() + within_s
    while family.look() and time.monotonic() < limit:
        family.signal(number)
        time.sleep(_POLL_S)


if __name__ == "__main__":
    _guard()
    os._exit(0)
