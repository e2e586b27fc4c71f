"""An upstream that is a child process: one message a line."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping

from msgspec import Struct

from portico.model.version import Version
from portico.protocol.lines import LineReader
from portico.upstream.process import Process
from portico.upstream.ring import Ring
from portico.upstream.wire import MAX_MESSAGE, Failure, Outgoing, Receiver

_NO_ENV: Mapping[str, str] = {}
_LAST_WORDS_S = 0.2
"""How long an ended child's pipes may stay open in a grandchild before we stop listening."""


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


class ChildProcess:
    """A running child, fed lines on its stdin."""

    transport = "stdio"
    mirrors = False

    def __init__(self, command: Command) -> None:
        self._command = command
        self._lines = LineReader(command.max_line)
        self._ring = Ring(secrets=command.env.values())
        self._process: Process | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._reading: list[asyncio.ReadTransport] = []
        self._receiver: Receiver | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._in_ended = asyncio.Event()
        self._out_ended = asyncio.Event()
        self._err_ended = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._failure: Failure | None = None
        self._closing = False

    async def open(self, receiver: Receiver) -> None:
        """Start the child."""
        command = self._command
        self._receiver = receiver
        if os.name != "posix":
            raise self._fail("cannot start: child processes need Linux or macOS", "start").error()
        try:
            self._process = Process(command.argv, {**os.environ, **command.env}, command.cwd)
        except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
            raise self._fail(_no_start(command, error), "start").error() from None
        connecting = asyncio.create_task(self._connect(self._process))
        try:
            await asyncio.shield(connecting)
        finally:
            # Only a few turns of the event loop, and half of it could not be undone.
            await asyncio.wait({connecting})
        self._watcher = asyncio.create_task(self._watch(self._process))

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
        if self._watcher is not None:
            self._watcher.cancel()
        if self._stdin is not None:
            self._stdin.close()
        try:
            await self._process.end(self._command.stdin_grace_s, self._command.term_grace_s)
        finally:
            await self._let_go()

    async def _connect(self, process: Process) -> None:
        loop = asyncio.get_running_loop()
        err, _ = await loop.connect_read_pipe(
            lambda: _Reading(self._ring.add, self._err_ended), process.stderr
        )
        out, _ = await loop.connect_read_pipe(
            lambda: _Reading(self._take, self._out_ended), process.stdout
        )
        self._stdin, _ = await loop.connect_write_pipe(
            lambda: _Writing(self._room, self._in_ended), process.stdin
        )
        self._reading = [err, out]

    async def _let_go(self) -> None:
        """Close our ends of the pipes, and wait until the event loop has done so."""
        for transport in self._reading:
            transport.close()
        if self._stdin is not None and not self._in_ended.is_set():
            self._stdin.abort()  # what it never read is not waited for
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                for end in (self._in_ended, self._out_ended, self._err_ended):
                    await end.wait()

    def _take(self, data: bytes) -> None:
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
            assert self._process is not None
            self._process.signal(signal.SIGKILL)

    async def _watch(self, process: Process) -> None:
        """Report the child's end as soon as its last words are in."""
        over = [asyncio.create_task(event.wait()) for event in (process.exited, self._out_ended)]
        try:
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_S):
                    for event in (process.exited, self._out_ended, self._err_ended):
                        await event.wait()
        finally:
            for task in over:
                task.cancel()
        process.signal(signal.SIGKILL)
        self._tell(*_how_it_ended(process.returncode))

    def _tell(self, why: str, kind: str) -> None:
        failure = self._fail(why, kind)
        self._room.set()
        assert self._receiver is not None
        self._receiver.lost(failure)

    def _fail(self, why: str, kind: str) -> Failure:
        self._failure = self._failure or Failure(
            server=self._command.name,
            why=why,
            kind=kind,
            exit_code=self._process.returncode if self._process is not None else None,
            stderr=self._ring.tail(),
        )
        return self._failure


class _Reading(asyncio.Protocol):
    """One pipe of the child's, passed on as it comes."""

    def __init__(self, take: Callable[[bytes], None], ended: asyncio.Event) -> None:
        self._take = take
        self._ended = ended

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()


class _Writing(asyncio.BaseProtocol):
    """The child's stdin: while it does not read, senders wait."""

    def __init__(self, room: asyncio.Event, ended: asyncio.Event) -> None:
        self._room = room
        self._ended = ended

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()
        self._room.set()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()


def _no_start(command: Command, error: OSError | ValueError) -> str:
    if command.cwd is not None and not os.path.isdir(command.cwd):
        return f"cannot start: there is no folder {command.cwd}"
    if isinstance(error, FileNotFoundError):
        return f"cannot start: there is no command {command.argv[0]!r}"
    return f"cannot start: {getattr(error, 'strerror', None) or error}"


def _how_it_ended(code: int | None) -> tuple[str, str]:
    if code is None:
        return "closed its output", "closed"
    how = f"exited with code {code}" if code >= 0 else f"was ended by {_name(-code)}"
    return how, "exited"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
