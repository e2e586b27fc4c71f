"""A child process that leads a group of its own, and takes all who descend from it along.

We start it and wait for it ourselves: uvloop's way of starting leaks descriptors into children, so
that one holds another's pipes open, and asyncio's way of waiting waits for grandchildren too.
Its pipes we read and write ourselves too: asyncio's transports cost more than the rest of a call.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from portico.upstream.guardian import GUARDIAN, MARK, Family, start_of

_CHUNK = 64 * 1024
_NEWLINE = b"\n"
_SHORT = 4096
_POLL_S = 0.01
_REST_S = 0.2
"""How long what the child left behind may take to go; it is no child of ours to wait for."""


class Process:
    """A running child; made on the event loop that will hear of its end."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        self._mark = GUARDIAN.expect()
        # If we are somebody's child ourselves, ours are theirs too.
        marks = f"{os.environ[MARK]}:{self._mark}" if MARK in os.environ else self._mark
        try:
            self._popen = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={**env, MARK: marks},
                cwd=cwd,
                start_new_session=True,
            )
        except (OSError, ValueError):
            GUARDIAN.forget(self._mark)
            raise
        GUARDIAN.register(self._mark, self._popen.pid)
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self.stdin, self.stdout, self.stderr = (
            self._popen.stdin,
            self._popen.stdout,
            self._popen.stderr,
        )
        self.pid = self._popen.pid
        """Its number, which is also its group's."""
        self.exited = asyncio.Event()
        # By its mark also those are found whose parents have left them, as daemons do.
        self._family = Family({self.pid}, {self._mark}, start_of(self.pid) or 0)
        self._loop = asyncio.get_running_loop()
        self._watch()

    @property
    def returncode(self) -> int | None:
        """How it ended: its exit code, or minus the signal that ended it."""
        return self._popen.returncode

    def look(self) -> None:
        """Note who has left the group, while it can still be told whose children they are."""
        self._family.look()

    def signal(self, number: int) -> bool:
        """Signal the group and all who left it; False if nobody is left."""
        if number:
            self._family.look()
        strays = self._family.signal_strays(number)
        return self._signal_group(number) or strays

    async def gone(self, within_s: float) -> bool:
        """Wait for its end."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.exited.wait(), within_s)
        return self.exited.is_set()

    async def end(self, grace_s: float, term_grace_s: float) -> None:
        """Let it leave by itself, then SIGTERM, then SIGKILL, to all of them."""
        try:
            if not await self.gone(grace_s):
                self.signal(signal.SIGTERM)
                await self.gone(term_grace_s)
            if self.exited.is_set():
                await self._end_the_rest()
        finally:
            # Also when we are cancelled half-way: nothing of it may stay.
            self.signal(signal.SIGKILL)
            if await self.gone(term_grace_s):
                GUARDIAN.forget(self._mark)

    async def _end_the_rest(self) -> None:
        self.signal(signal.SIGTERM)
        for _ in range(int(_REST_S / _POLL_S)):
            if not self.signal(0):
                return
            await asyncio.sleep(_POLL_S)

    def _signal_group(self, number: int) -> bool:
        if not self._family.leaders:
            return False  # its number may be somebody else's by now
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
            if self.exited.is_set():
                self._family.leaders.clear()
                GUARDIAN.register(self._mark, 0)
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
        self._family.look()  # as long as nobody has waited for it, its number is its own
        self._ended()

    def _wait(self) -> None:
        self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        self._popen.wait()  # over already: this only takes its exit code
        self.exited.set()
        self._signal_group(0)


class Source:
    """One pipe out of the child, passed on as it comes."""

    def __init__(self, pipe: IO[bytes], take: Callable[[bytes], None]) -> None:
        self.ended = asyncio.Event()
        self._pipe, self._fd, self._take = pipe, pipe.fileno(), take
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
            data = os.read(self._fd, _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self.close()


class Sink:
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
        self._joined: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        # A turn of asyncio's own loop costs more than a write; one of uvloop's does not.
        self.joins = not isinstance(self._loop, asyncio.BaseEventLoop)
        """True if it pays to write together what comes together."""
        os.set_blocking(self._fd, False)

    def join(self, line: bytes) -> None:
        """Write one line together with those that come in the same turn of the loop."""
        if not self._joined:
            self._loop.call_soon(self._write_joined)
        self._joined.append(line)

    def write(self, line: bytes) -> None:
        """Write one line, or keep what is left of it; once closing, nobody wants it."""
        if self._joined:
            self._write_joined()  # first come, first served
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
        self._backlog.append(memoryview(line + _NEWLINE)[-left:])
        self.size += left
        if self.size > self._high_water:
            self.room.clear()

    def close(self) -> None:
        """Close it as soon as the child has read everything."""
        self._write_joined()
        self.closing = True
        self.room.set()
        if not self._backlog:
            self.abort()

    def abort(self) -> None:
        """Close it now."""
        self.closing = True
        self.room.set()
        self.size = 0
        self._joined.clear()
        if not self._pipe.closed:
            self._backlog.clear()
            self._loop.remove_writer(self._fd)
            self._pipe.close()

    def _write_joined(self) -> None:
        if self._joined:
            lines = _NEWLINE.join(self._joined)
            self._joined.clear()
            self.write(lines)

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
