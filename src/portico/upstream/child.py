"""An upstream that is a child process: one message a line, its whole group gone at the end."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from typing import cast

from msgspec import Struct

from portico.model.version import Version
from portico.protocol.lines import LineReader
from portico.upstream.ring import Ring
from portico.upstream.wire import MAX_MESSAGE, Failure, Outgoing, Receiver

_NO_ENV: Mapping[str, str] = {}
_LAST_WORDS_S = 0.2
"""How long an ended child's pipes may stay open in a grandchild before we stop listening."""
_POLL_S = 0.01


class Command(Struct, frozen=True):
    """A server to start: never through a shell."""

    argv: tuple[str, ...]
    title: str = ""
    env: Mapping[str, str] = _NO_ENV
    """Added to our own environment. Its values are kept out of error messages."""
    cwd: str | None = None
    max_line: int = MAX_MESSAGE
    stdin_grace_s: float = 2.0
    """How long it may take to leave once its input is closed."""
    term_grace_s: float = 1.0
    """How long it may take to leave after SIGTERM."""

    @property
    def name(self) -> str:
        """The title, else the command's own name."""
        return self.title or os.path.basename(self.argv[0])

    def wire(self) -> "ChildProcess":
        """A child that has not been started."""
        return ChildProcess(self)

    def older(self) -> None:
        """Standard streams have no older form."""
        return


class ChildProcess(asyncio.SubprocessProtocol):
    """A running child, fed lines on its stdin."""

    transport = "stdio"
    mirrors = False

    def __init__(self, command: Command) -> None:
        self._command = command
        self._lines = LineReader(command.max_line)
        self._ring = Ring(secrets=command.env.values())
        self._process: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._receiver: Receiver | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._ends = {1: asyncio.Event(), 2: asyncio.Event()}
        self._exited = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._failure: Failure | None = None
        self._closing = False
        self._buried = False

    @property
    def pid(self) -> int:
        """The child's process id, which is also its group's."""
        assert self._process is not None
        return self._process.get_pid()

    async def open(self, receiver: Receiver) -> None:
        """Start the child, as the leader of a session and process group of its own."""
        self._receiver = receiver
        starting = asyncio.create_task(self._start())
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # Half a start cannot be undone, a whole one can.
            await asyncio.gather(starting, return_exceptions=True)
            await self.close()
            raise
        except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
            raise self._fail(_no_start(self._command, error), "start").error() from None

    async def send(self, message: Outgoing) -> None:
        """Write one line; waits while the child does not read."""
        if not self._room.is_set():
            await self._room.wait()
        if self._failure is not None:
            raise self._failure.error()
        assert self._stdin is not None
        if not self._stdin.is_closing():  # closed: its end is being looked into, and will be told
            self._stdin.writelines((message.data, b"\n"))

    def abandon(self, id: bytes) -> None:
        """All requests share the two pipes: there is nothing to close."""

    def settle(self, version: Version) -> None:
        """Every version is framed alike."""

    async def close(self) -> None:
        """Close its input, then SIGTERM, then SIGKILL, to the whole group."""
        self._closing = True
        if self._process is None:
            return
        try:
            if self._stdin is not None:
                self._stdin.close()
            if not await self._gone(self._command.stdin_grace_s):
                self._signal(signal.SIGTERM)
                await self._gone(self._command.term_grace_s)
            if self._exited.is_set():
                await self._end_the_rest()
        finally:
            # Also when we are cancelled half-way: nothing of it may stay.
            self._bury()
            if self._watcher is not None:
                self._watcher.cancel()
            self._process.close()
            await self._gone(self._command.term_grace_s)

    async def _start(self) -> None:
        process, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: self,
            *self._command.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **self._command.env},
            cwd=self._command.cwd,
            start_new_session=True,
        )
        self._process = process
        self._stdin = cast(asyncio.WriteTransport, process.get_pipe_transport(0))
        self._watcher = asyncio.create_task(self._watch())

    # What the event loop tells us.

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Lines on stdout are messages, anything on stderr is for people."""
        if fd == 2:
            self._ring.add(data)
            return
        if self._closing or self._failure is not None:
            return
        assert self._receiver is not None
        for line in self._lines.feed(data):
            if line is None:
                why = f"sent a message longer than {self._lines.limit} bytes"
                self._receiver.spoiled(self._lines.ends, why)
            elif line and not line.isspace():
                self._receiver.received(line)
        if self._lines.pending > 4 * self._lines.limit:
            # A line without an end: there is no next message to wait for.
            self._tell(f"sent {self._lines.pending} bytes without a newline", "too_large")
            self._signal(signal.SIGKILL)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """One of its pipes was closed."""
        if fd in self._ends:
            self._ends[fd].set()

    def process_exited(self) -> None:
        """The child itself has ended; what it started may not have."""
        self._exited.set()

    def pause_writing(self) -> None:
        """The child does not read: senders wait."""
        self._room.clear()

    def resume_writing(self) -> None:
        """The child reads again."""
        self._room.set()

    async def _watch(self) -> None:
        """Report the child's end as soon as its last words are in."""
        over = [asyncio.create_task(e.wait()) for e in (self._exited, self._ends[1])]
        try:
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
            everything = (self._exited, *self._ends.values())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(
                    asyncio.gather(*(event.wait() for event in everything)), _LAST_WORDS_S
                )
        finally:
            for task in over:
                task.cancel()
        if not self._closing:
            self._bury()
            self._tell(*self._how_it_ended())

    def _how_it_ended(self) -> tuple[str, str]:
        assert self._process is not None
        code = self._process.get_returncode()
        if code is None:
            return "closed its output", "closed"
        how = f"exited with code {code}" if code >= 0 else f"was ended by {_name(-code)}"
        return how, "exited"

    def _tell(self, why: str, kind: str) -> None:
        failure = self._fail(why, kind)
        self._room.set()
        assert self._receiver is not None
        self._receiver.lost(failure)

    def _fail(self, why: str, kind: str) -> Failure:
        code = self._process.get_returncode() if self._process is not None else None
        self._failure = self._failure or Failure(
            server=self._command.name,
            why=why,
            kind=kind,
            exit_code=code,
            stderr=self._ring.tail(),
        )
        return self._failure

    async def _gone(self, within_s: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._exited.wait(), within_s)
        return self._exited.is_set()

    async def _end_the_rest(self) -> None:
        """Give what the child left behind a moment to go; it is no child of ours to wait for."""
        self._signal(signal.SIGTERM)
        for _ in range(int(_LAST_WORDS_S / _POLL_S)):
            if not self._signal(0):
                return
            await asyncio.sleep(_POLL_S)

    def _bury(self) -> None:
        """Kill the whole group, once: later its number may be somebody else's."""
        self._signal(signal.SIGKILL)
        self._buried = self._exited.is_set()

    def _signal(self, number: int) -> bool:
        """Signal the whole group; False if there is nobody left in it."""
        if self._buried:
            return False
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
            return False
        return True


def _no_start(command: Command, error: OSError | ValueError) -> str:
    if command.cwd is not None and not os.path.isdir(command.cwd):
        return f"cannot start: there is no folder {command.cwd}"
    if isinstance(error, FileNotFoundError):
        return f"cannot start: there is no command {command.argv[0]!r}"
    return f"cannot start: {getattr(error, 'strerror', None) or error}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
