"""A child process that leads its own group, and ends together with all its descendants.

We start it and wait for it ourselves: uvloop leaks descriptors into children, so that one keeps
another's pipes open, and asyncio also waits for grandchildren. We read and write its pipes
ourselves too: asyncio's transports cost more than the rest of a call.
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

from portico.core.state.background import Background
from portico.upstream.process.environment import COMPOSITIONS
from portico.upstream.process.family import Family
from portico.upstream.process.guardian import GUARDIAN
from portico.upstream.process.process_tree import MARK, ProcessTree, start_of
from portico.upstream.process.read_pacing import MIN_READ, Handle, ReadPacing
from portico.upstream.process.spawn import Spawned, spawn
from portico.upstream.process.sweep import SWEEPER

_NEWLINE = b"\n"
_MAX_COPIED = 4096
_POLL_S = 0.01
_REST_S = 0.2
"""The time for the child's descendants to exit; we cannot wait for them as for our child."""
_MAX_KILLS = 5
"""How often we kill the remaining descendants before we leave them to the guardian."""


class ChildProcess:
    """A running child of the event loop that started it."""

    def __init__(self, spawned: Spawned, mark: str, family: Family | None = None) -> None:
        self.pid, self.stdin, self.stdout, self.stderr = spawned
        self.returncode: int | None = None
        """Its exit code, or minus the signal that ended it."""
        self.exited = asyncio.Event()
        self.mark = mark
        self._family = family
        self._is_gone = False  # nor is any descendant left
        # Its mark also finds descendants whose parents have exited, such as daemons.
        self._tree = ProcessTree({self.pid}, {mark}, start_of(self.pid) or 0)
        self._loop = asyncio.get_running_loop()
        self._watch()

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        family: Family | None = None,
        *,
        spared_s: float = 0.0,
    ) -> "ChildProcess":
        """Start a child, which leads a family if one is given; raise OSError or ValueError on
        failure.

        It may outlive us by `spared_s` seconds, until `spare` changes that.
        """
        mark = GUARDIAN.announce()
        if spared_s:
            GUARDIAN.spare(mark, spared_s)
        starting = asyncio.ensure_future(cls._start(argv, env, cwd, mark, family, spared_s > 0))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            _STARTING.add(starting)
            starting.add_done_callback(_abandoned)
            raise

    @classmethod
    async def _start(
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
        mark: str,
        family: Family | None,
        is_spared: bool,
    ) -> "ChildProcess":
        # If we are a child of another Portico, our children are its descendants too.
        marks = f"{os.environ[MARK]}:{mark}" if MARK in os.environ else mark
        own = {MARK: marks}
        if COMPOSITIONS in os.environ:
            own[COMPOSITIONS] = os.environ[COMPOSITIONS]
        try:
            if family is not None:
                family.expect(mark)
            spawned = await spawn(
                argv, {**env, **own}, cwd, mark, is_kept=family is not None, is_spared=is_spared
            )
        except (OSError, ValueError):
            _forget(mark, family)
            raise
        if family is not None:
            family.add(spawned.pid, mark)
        try:
            return cls(spawned, mark, family)
        except RuntimeError:  # neither a descriptor nor a thread to wait for it with
            spawned.kill()
            _forget(mark, family)
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None

    def spare(self, seconds: float) -> None:
        """Let it outlive us for this long."""
        GUARDIAN.spare(self.mark, seconds)

    async def find_descendants(self) -> bool:
        """Find all descendants outside the group, while their parents still run."""
        return await SWEEPER.find_descendants(self._tree)

    def signal(self, number: int) -> bool:
        """Signal the group and its known escaped descendants; return False if none live."""
        escaped = self._tree.signal_escaped(number)
        return self._signal_group(number) or escaped

    async def wait_exited(self, within_s: float) -> bool:
        """Wait for its exit; return False on a timeout."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.exited.wait(), within_s)
        return self.exited.is_set()

    async def end(
        self, grace_s: float, term_grace_s: float, request_exit: Callable[[], None] | None = None
    ) -> None:
        """Wait for the exit of all, then send SIGTERM, then SIGKILL.

        `request_exit` is called once the descendants are known.
        """
        try:
            if request_exit is not None:
                if not self.exited.is_set():
                    await self.find_descendants()
                request_exit()
            if not await self.wait_exited(grace_s):
                self.signal(signal.SIGTERM)
                await self.wait_exited(term_grace_s)
            if self.exited.is_set():
                await self._terminate_rest()
            else:  # it may have started more; without it they would have other parents
                await self.find_descendants()
        finally:
            # Even if we are cancelled: no process may stay.
            self.signal(signal.SIGKILL)
            if await self.wait_exited(term_grace_s) and await self._kill_rest():
                _forget(self.mark, self._family)

    async def _terminate_rest(self) -> None:
        self._is_gone = not await self.find_descendants()
        if self._is_gone:
            return
        self.signal(signal.SIGTERM)
        for _ in range(int(_REST_S / _POLL_S)):
            if not self.signal(0):
                return
            await asyncio.sleep(_POLL_S)

    async def _kill_rest(self) -> bool:
        """Kill the remaining processes; return False if one survives, as in a system call.

        The guardian knows them, and tries again after our exit.
        """
        for _ in range(_MAX_KILLS):
            self._is_gone = self._is_gone or not await self.find_descendants()
            if self._is_gone:
                return True
            self.signal(signal.SIGKILL)
        return False

    def _signal_group(self, number: int) -> bool:
        if not self._tree.leaders:
            return False  # the pid may have been reused
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS returns EPERM for a group of zombies
            if self.exited.is_set():
                self._tree.leaders.clear()
                GUARDIAN.register(self.mark, 0)
            return False
        return True

    def _watch(self) -> None:
        try:
            handle = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or an old kernel
            threading.Thread(target=self._wait, daemon=True).start()
            return
        self._loop.add_reader(handle, self._readable, handle)

    def _readable(self, handle: int) -> None:
        self._loop.remove_reader(handle)
        os.close(handle)
        self._ended(_wait_pid(self.pid))

    def _wait(self) -> None:
        code = _wait_pid(self.pid)
        with contextlib.suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._ended, code)

    def _ended(self, code: int) -> None:
        self.returncode = code
        self.exited.set()
        self._signal_group(0)


def _forget(mark: str, family: Family | None) -> None:
    GUARDIAN.forget(mark)
    if family is not None:
        family.forget(mark)


def _wait_pid(pid: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:  # the embedding program has waited for it
        return 0


_STARTING: set["asyncio.Future[ChildProcess]"] = set()
"""Starts whose caller was cancelled."""
_ENDING = Background()


def _abandoned(starting: "asyncio.Future[ChildProcess]") -> None:
    """End a child whose start was cancelled."""
    _STARTING.discard(starting)
    if starting.cancelled() or starting.exception() is not None:
        return
    process = starting.result()
    for pipe in (process.stdin, process.stdout, process.stderr):
        pipe.close()
    _ENDING.start(process.end(0, _REST_S))


class ChildOutput:
    """One pipe out of the child; its bytes are passed on as they arrive."""

    def __init__(self, pipe: IO[bytes], take: Handle) -> None:
        self.ended = asyncio.Event()
        self._pipe, self._fd, self._take = pipe, pipe.fileno(), take
        self._pace = ReadPacing()
        self._is_paused = self._is_resting = False
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._fd, False)
        self._loop.add_reader(self._fd, self._ready)

    def pause(self) -> None:
        """Read nothing until `resume`: the child waits when the pipe is full."""
        if not self._is_paused and not self.ended.is_set():
            self._is_paused = True
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Read again."""
        if self._is_paused:
            self._is_paused = False
            self._read_again()

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
        if len(data) < MIN_READ:
            self._take(data)
            return
        rest_s = self._pace.take(data, self._take)
        if rest_s and not self.ended.is_set():
            self._is_resting = True
            self._loop.remove_reader(self._fd)
            self._loop.call_later(rest_s, self._rested)

    def _rested(self) -> None:
        self._is_resting = False
        self._read_again()

    def _read_again(self) -> None:
        if not (self.ended.is_set() or self._is_paused or self._is_resting):
            self._loop.add_reader(self._fd, self._ready)


class ChildInput:
    """The pipe into the child, with a backlog of whole lines."""

    def __init__(self, pipe: IO[bytes], high_water: int) -> None:
        self.size = 0
        """The size of the backlog, in bytes."""
        self.closing = False
        self.closed_by_child = asyncio.Event()
        """Set when the child has closed its stdin."""
        self.writable = asyncio.Event()
        """Cleared while the backlog is above the high-water mark."""
        self.writable.set()
        self._high_water = high_water
        self._pipe, self._fd = pipe, pipe.fileno()
        self._backlog: deque[memoryview] = deque()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(self._fd, False)

    def write(self, line: bytes) -> None:
        """Write one line, or queue the rest of it; drop it when closing."""
        if self.closing:
            return
        left = len(line) + 1
        if not self._backlog:
            try:
                if left < _MAX_COPIED:  # a copy is cheaper than a second buffer
                    left -= os.write(self._fd, line + _NEWLINE)
                else:
                    left -= os.writev(self._fd, (line, _NEWLINE))
            except (BlockingIOError, InterruptedError):
                pass
            except OSError:  # the child has closed it
                self._close_refused()
        if left and not self.closing:
            self._keep(line, left)

    def _keep(self, line: bytes, left: int) -> None:
        if not self._backlog:
            self._loop.add_writer(self._fd, self._flush)
        if left < _MAX_COPIED:
            self._backlog.append(memoryview(line + _NEWLINE)[-left:])
        else:
            self._backlog += (memoryview(line)[1 - left :], memoryview(_NEWLINE))
        self.size += left
        if self.size > self._high_water:
            self.writable.clear()

    def close(self) -> None:
        """Close it once the child has read everything."""
        self.closing = True
        self.writable.set()
        if not self._backlog:
            self.abort()

    def abort(self) -> None:
        """Close it now."""
        self.closing = True
        self.writable.set()
        self.size = 0
        if not self._pipe.closed:
            self._backlog.clear()
            self._loop.remove_writer(self._fd)
            self._pipe.close()

    def _flush(self) -> None:
        while self._backlog:
            first = self._backlog[0]
            try:
                written = os.write(self._fd, first)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._close_refused()
                return
            self.size -= written
            if self.size <= self._high_water:
                self.writable.set()
            if written < len(first):
                self._backlog[0] = first[written:]
            else:
                self._backlog.popleft()
        self._loop.remove_writer(self._fd)
        if self.closing:
            self.abort()

    def _close_refused(self) -> None:
        self.closed_by_child.set()
        self.abort()
