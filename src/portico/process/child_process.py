"""A child process that leads a group of its own, and takes all who descend from it along.

We start it and wait for it ourselves: uvloop's way of starting leaks descriptors into children, so
that one holds another's pipes open, and asyncio's way of waiting waits for grandchildren too.
Its pipes we read and write ourselves too: asyncio's transports cost more than the rest of a call.
"""

import asyncio
import contextlib
import errno
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from portico.process.guardian import GUARDIAN
from portico.process.process_tree import MARK, ProcessTree, start_of
from portico.process.read_pacing import LEAST, Handle, ReadPacing
from portico.process.spawn import Spawned, spawn
from portico.process.sweep import SWEEPER
from portico.state.background import Background

_NEWLINE = b"\n"
_SHORT = 4096
_POLL_S = 0.01
_REST_S = 0.2
"""How long what the child left behind may take to go; it is no child of ours to wait for."""
_KILLS = 5
"""How often those who are left are killed before they are left to the guardian."""


class ChildProcess:
    """A running child, started on the event loop that its end is reported to."""

    def __init__(self, spawned: Spawned, mark: str) -> None:
        self.pid, self.stdin, self.stdout, self.stderr = spawned
        self.returncode: int | None = None
        """How it ended: its exit code, or minus the signal that ended it."""
        self.exited = asyncio.Event()
        self.mark = mark
        self._is_over = False  # nobody of its family is left
        # By its mark also those are found whose parents have left them, as daemons do.
        self._family = ProcessTree({self.pid}, {mark}, start_of(self.pid) or 0)
        self._loop = asyncio.get_running_loop()
        self._watch()

    @classmethod
    async def start(
        cls, argv: Sequence[str], env: Mapping[str, str], cwd: str | None
    ) -> "ChildProcess":
        """Start a child; raises OSError or ValueError."""
        mark = GUARDIAN.expect()
        starting = asyncio.ensure_future(cls._start(argv, env, cwd, mark))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            _STARTING.add(starting)
            starting.add_done_callback(_abandoned)
            raise

    @classmethod
    async def _start(
        cls, argv: Sequence[str], env: Mapping[str, str], cwd: str | None, mark: str
    ) -> "ChildProcess":
        # If we are somebody's child ourselves, ours are theirs too.
        marks = f"{os.environ[MARK]}:{mark}" if MARK in os.environ else mark
        try:
            spawned = await spawn(argv, {**env, MARK: marks}, cwd)
        except (OSError, ValueError):
            GUARDIAN.forget(mark)
            raise
        GUARDIAN.register(mark, spawned.pid)
        try:
            return cls(spawned, mark)
        except RuntimeError:  # neither a descriptor nor a thread to wait for it with
            spawned.close()
            os.killpg(spawned.pid, signal.SIGKILL)
            _waited(spawned.pid)
            GUARDIAN.forget(mark)
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None

    async def look(self) -> bool:
        """Note all who left the group, while their parents show whose they are."""
        return await SWEEPER.look(self._family)

    def signal(self, number: int) -> bool:
        """Signal the group and all who are known to have left it; False if there are none."""
        strays = self._family.signal_strays(number)
        return self._signal_group(number) or strays

    async def gone(self, within_s: float) -> bool:
        """Wait for its end."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.exited.wait(), within_s)
        return self.exited.is_set()

    async def end(
        self, grace_s: float, term_grace_s: float, let_go: Callable[[], None] | None = None
    ) -> None:
        """Let it leave by itself, then SIGTERM, then SIGKILL, to all of them. `let_go` is called
        once its descendants are known, to have it leave."""
        try:
            if let_go is not None:
                if not self.exited.is_set():
                    await self.look()
                let_go()
            if not await self.gone(grace_s):
                self.signal(signal.SIGTERM)
                await self.gone(term_grace_s)
            if self.exited.is_set():
                await self._end_the_rest()
        finally:
            # Also when we are cancelled half-way: nothing of it may stay.
            self.signal(signal.SIGKILL)
            if await self.gone(term_grace_s) and await self._killed():
                GUARDIAN.forget(self.mark)

    async def _end_the_rest(self) -> None:
        self._is_over = not await self.look()
        if self._is_over:
            return
        self.signal(signal.SIGTERM)
        for _ in range(int(_REST_S / _POLL_S)):
            if not self.signal(0):
                return
            await asyncio.sleep(_POLL_S)

    async def _killed(self) -> bool:
        """Kill the remaining processes; False if one survives, as in the middle of a system call.
        The guardian knows of them, and tries again once we are gone."""
        for _ in range(_KILLS):
            self._is_over = self._is_over or not await self.look()
            if self._is_over:
                return True
            self.signal(signal.SIGKILL)
        return False

    def _signal_group(self, number: int) -> bool:
        if not self._family.leaders:
            return False  # its number may be somebody else's by now
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
            if self.exited.is_set():
                self._family.leaders.clear()
                GUARDIAN.register(self.mark, 0)
            return False
        return True

    def _watch(self) -> None:
        try:
            handle = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or an old one
            threading.Thread(target=self._wait, daemon=True).start()
            return
        self._loop.add_reader(handle, self._readable, handle)

    def _readable(self, handle: int) -> None:
        self._loop.remove_reader(handle)
        os.close(handle)
        self._ended(_waited(self.pid))

    def _wait(self) -> None:
        code = _waited(self.pid)
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._ended, code)

    def _ended(self, code: int) -> None:
        self.returncode = code
        self.exited.set()
        self._signal_group(0)


def _waited(pid: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:  # the program that we are part of has waited for it
        return 0


_STARTING: set["asyncio.Future[ChildProcess]"] = set()
"""Starts that nobody waits for any more."""
_ENDING = Background()


def _abandoned(starting: "asyncio.Future[ChildProcess]") -> None:
    """End a child that came too late."""
    _STARTING.discard(starting)
    if starting.cancelled() or starting.exception() is not None:
        return
    process = starting.result()
    for pipe in (process.stdin, process.stdout, process.stderr):
        pipe.close()
    _ENDING.start(process.end(0, _REST_S))


class ChildOutput:
    """One pipe out of the child, passed on as it comes."""

    def __init__(self, pipe: IO[bytes], take: Handle) -> None:
        self.ended = asyncio.Event()
        self._pipe, self._fd, self._take = pipe, pipe.fileno(), take
        self._pace = ReadPacing()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._fd, False)
        self._loop.add_reader(self._fd, self._ready)

    def close(self) -> None:
        """Stop reading."""
        if not self.ended.is_set():
            self.ended.set()
            self._loop.remove_reader(self._fd)
            self._pipe.close()

    def _ready(self) -> None:
        try:
            data = os.read(self._fd, self._pace.size)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        if len(data) < LEAST:
            self._take(data)
            return
        rest_s = self._pace.take(data, self._take)
        if rest_s and not self.ended.is_set():
            self._loop.remove_reader(self._fd)
            self._loop.call_later(rest_s, self._rested)

    def _rested(self) -> None:
        if not self.ended.is_set():
            self._loop.add_reader(self._fd, self._ready)


class ChildInput:
    """The pipe into the child: of what it does not take at once, whole lines are kept."""

    def __init__(self, pipe: IO[bytes], high_water: int) -> None:
        self.size = 0
        """How many bytes wait for the child to read."""
        self.closing = False
        self.refused = asyncio.Event()
        """Set when the child has closed its end, and will hear nothing any more."""
        self.room = asyncio.Event()
        """Clear while more than the high water waits."""
        self.room.set()
        self._high_water = high_water
        self._pipe, self._fd = pipe, pipe.fileno()
        self._backlog: deque[memoryview] = deque()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._fd, False)

    def write(self, line: bytes) -> None:
        """Write one line, or keep what is left of it; once closing, nobody wants it."""
        if self.closing:
            return
        left = len(line) + 1
        if not self._backlog:
            try:
                if left < _SHORT:  # then to copy it is the least
                    left -= os.write(self._fd, line + _NEWLINE)
                else:
                    left -= os.writev(self._fd, (line, _NEWLINE))
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:  # nobody reads it any more
                self._refuse()
        if left and not self.closing:
            self._keep(line, left)

    def _keep(self, line: bytes, left: int) -> None:
        if not self._backlog:
            self._loop.add_writer(self._fd, self._go_on)
        if left < _SHORT:
            self._backlog.append(memoryview(line + _NEWLINE)[-left:])
        else:
            self._backlog += (memoryview(line)[1 - left :], memoryview(_NEWLINE))
        self.size += left
        if self.size > self._high_water:
            self.room.clear()

    def close(self) -> None:
        """Close it as soon as the child has read everything."""
        self.closing = True
        self.room.set()
        if not self._backlog:
            self.abort()

    def abort(self) -> None:
        """Close it now."""
        self.closing = True
        self.room.set()
        self.size = 0
        if not self._pipe.closed:
            self._backlog.clear()
            self._loop.remove_writer(self._fd)
            self._pipe.close()

    def _go_on(self) -> None:
        while self._backlog:
            first = self._backlog[0]
            try:
                written = os.write(self._fd, first)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._refuse()
                return
            self.size -= written
            if self.size <= self._high_water:
                self.room.set()
            if written < len(first):
                self._backlog[0] = first[written:]
            else:
                self._backlog.popleft()
        self._loop.remove_writer(self._fd)
        if self.closing:
            self.abort()

    def _refuse(self) -> None:
        self.refused.set()
        self.abort()
