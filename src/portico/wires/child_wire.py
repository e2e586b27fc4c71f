"""An upstream that is a child process: one message a line."""

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Callable, Mapping

from msgspec import Struct

from portico.process.child_process import ChildInput, ChildOutput, ChildProcess
from portico.process.environment import DOOR_TOKEN, secrets
from portico.process.stderr_lines import StderrLines
from portico.process.stderr_tail import StderrTail
from portico.protocol.line_reader import CR, LF, LineReader, one_line
from portico.state.background import first_of
from portico.wires.wire import MAX_MESSAGE, Failure, Outgoing, Receiver, Wire, made

HIGH_WATER = 1024 * 1024
"""How much may wait for a child to read before those who send wait too."""

_NO_ENV: Mapping[str, str] = {}
_UV, _NODE = "uv (https://docs.astral.sh/uv/)", "Node.js (https://nodejs.org/)"
_PART_OF: Mapping[str, str] = {"uv": _UV, "uvx": _UV, "node": _NODE, "npx": _NODE}
"""What brings a command that many servers are started with."""
_LAST_WORDS_S = 0.2
"""How long an ended child's pipes may stay open in a grandchild before we stop listening."""


_EXHAUSTED = {
    errno.EAGAIN: "this user may have no more processes; end some, or raise `ulimit -u`",
    errno.EMFILE: "Portico has too many open files; raise `ulimit -n`",
    errno.ENFILE: "the system has too many open files",
    errno.ENOMEM: "there is not enough memory",
}


class Command(Struct, frozen=True):
    """A server to start: never through a shell."""

    argv: tuple[str, ...]
    title: str = ""
    env: Mapping[str, str] = _NO_ENV
    """Added to the environment. Its values are kept out of error messages."""
    cwd: str | None = None
    environment: Mapping[str, str] | None = None
    """The whole environment; None for our own."""
    max_line: int = MAX_MESSAGE
    overheard: Callable[[str], None] | None = None
    """Gets each line of its stderr, secrets hidden; without it, only the last ones are kept."""
    stdin_grace_s: float = 2.0
    """How long it may take to leave once its input is closed."""
    term_grace_s: float = 1.0
    """How long it may take to leave after SIGTERM."""

    @property
    def variables(self) -> dict[str, str]:
        """All that the child will find in its environment."""
        whole = dict(os.environ if self.environment is None else self.environment)
        whole.pop(DOOR_TOKEN, None)
        return {**whole, **self.env}

    @property
    def name(self) -> str:
        """The title, else the command's own name."""
        return self.title or os.path.basename(self.argv[0])

    def wire(self) -> "ChildWire":
        """A child that has not been started."""
        return ChildWire(self)

    def older(self) -> None:
        """Standard streams have no older form."""
        return


class ChildWire(Wire):
    """A running child, fed lines on its stdin."""

    transport = "stdio"
    _receiver: Receiver

    def __init__(self, command: Command) -> None:
        self._command = command
        self._lines = LineReader(command.max_line)
        self.ring = StderrTail()
        """The last of its stderr."""
        self.process: ChildProcess | None = None
        self.stdin: ChildInput | None = None
        self._sources: list[ChildOutput] = []
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None
        self._failure: Failure | None = None
        self._closing = False

    @property
    def server(self) -> str:
        """What people call it."""
        return self._command.name

    async def open(self, receiver: Receiver) -> None:
        """Start the child."""
        command = self._command
        self._receiver = receiver
        if os.name != "posix":
            raise self._fail("cannot start: child processes need Linux or macOS", "start").error()
        variables = command.variables
        self.ring = StderrTail(secrets=[*command.env.values(), *secrets(variables)])
        try:
            process = await ChildProcess.start(command.argv, variables, command.cwd)
        except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
            raise self._fail(_no_start(command, error), "start").error() from None
        self.process = process
        self.stdin = ChildInput(process.stdin, HIGH_WATER)
        listener = command.overheard
        hear = self.ring.add if listener is None else StderrLines(self.ring, listener).add
        out, err = ChildOutput(process.stdout, self._take), ChildOutput(process.stderr, hear)
        self._sources = [out, err]
        self._watcher = asyncio.create_task(self._watch(process, self.stdin, out, err))

    async def send(self, message: Outgoing) -> None:
        """Write one line; waits while the child does not read. First come, first served."""
        stdin = self.stdin
        assert stdin is not None
        self._waiting += 1
        try:
            async with self._turn:
                await stdin.room.wait()
                if self._failure is not None:
                    raise self._failure.error()
                # If it is closed, that is being looked into, and will be told.
                if not stdin.closing:
                    stdin.write(one_line(made(message.data)))
        finally:
            self._waiting -= 1

    def send_now(self, message: Outgoing) -> bool:
        """Write one line unless the child is behind with reading."""
        stdin, data = self.stdin, message.data
        if stdin is None or self._failure is not None:
            return False
        if stdin.size > HIGH_WATER or self._waiting:
            return False
        line = data if isinstance(data, bytes) else data()
        if LF in line or CR in line:
            line = one_line(line)
        stdin.write(line)
        return True

    async def close(self) -> None:
        """Close its input, then SIGTERM, then SIGKILL, to the whole group."""
        self._closing = True
        if self.process is None:
            return
        if self._watcher is not None:
            self._watcher.cancel()
        command, stdin = self._command, self.stdin
        assert stdin is not None
        try:
            await self.process.end(command.stdin_grace_s, command.term_grace_s, stdin.close)
        finally:
            for source in self._sources:
                source.close()
            stdin.abort()  # what it never read is not waited for

    def _take(self, data: bytes) -> bool:
        """Hand on the messages that these bytes complete; True if one was waited for."""
        if self._closing or self._failure is not None:
            return False
        receiver = self._receiver
        answered = receiver.answered
        reader = self._lines
        is_whole = data[-1:] == b"\n" and not reader.pending and len(data) <= reader.limit
        lines = data[:-1].split(b"\n") if is_whole else reader.feed(data)  # mostly they are
        for line in lines:
            if line is None:
                why = f"sent a message longer than {self._lines.limit} bytes"
                receiver.spoiled(self._lines.ends, why)
            elif line and not line.isspace():
                receiver.received(line)
        if not lines and self._lines.pending > 4 * self._lines.limit:
            # A line without an end: there is no next message to wait for.
            self._tell(f"sent {self._lines.pending} bytes without a newline", "too_large")
            assert self.process is not None
            self.process.signal(signal.SIGKILL)
        return receiver.answered > answered

    async def _watch(
        self, process: ChildProcess, stdin: ChildInput, out: ChildOutput, err: ChildOutput
    ) -> None:
        """Report the child's end, or that it is deaf or dumb, as soon as its last words are in."""
        ends = (process.exited, out.ended, stdin.refused)
        await first_of(*(event.wait() for event in ends))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                for event in (process.exited, out.ended, err.ended):
                    await event.wait()
        process.signal(signal.SIGKILL)
        self._tell(*_how_it_ended(process.returncode, out.ended.is_set()))
        if await process.look():
            process.signal(signal.SIGKILL)

    def _tell(self, why: str, kind: str) -> None:
        failure = self._fail(why, kind)
        if self.stdin is not None:
            self.stdin.abort()  # whoever waits to write is told too
        self._receiver.lost(failure)

    def _fail(self, why: str, kind: str) -> Failure:
        self._failure = self._failure or Failure(
            server=self._command.name,
            why=why,
            kind=kind,
            exit_code=self.process.returncode if self.process is not None else None,
            stderr=self.ring.tail(),
        )
        return self._failure


def _no_start(command: Command, error: OSError | ValueError) -> str:
    if command.cwd is not None and not os.path.isdir(command.cwd):
        return f"cannot start: there is no folder {command.cwd}"
    return f"cannot start: {_what_is_wrong(command, error)}"


def _what_is_wrong(command: Command, error: OSError | ValueError) -> str:
    program = command.argv[0]
    path = os.path.join(command.cwd or "", program) if "/" in program else ""
    if isinstance(error, FileNotFoundError):
        if os.path.isfile(path):  # a script, then; an end of line as of Windows is part of the name
            return f"what the first line of {program!r} names, to run it, is not there"
        return f"there is no command {program!r}{_remedy(command)}"
    if os.path.isdir(path):
        return f"{program!r} is a folder"
    if isinstance(error, PermissionError) and os.path.isfile(path):
        return f"{program!r} may not be executed; `chmod +x` it, or name what runs it"
    if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        return f"{program!r} is no program, nor does it begin with #! and the name of one"
    if isinstance(error, OSError) and error.errno in _EXHAUSTED:
        return _EXHAUSTED[error.errno]
    return str(getattr(error, "strerror", None) or error)


def _remedy(command: Command) -> str:
    """What to do about a command that is not there; empty if that cannot be known."""
    program = command.argv[0]
    if program in _PART_OF:
        return f"; install {_PART_OF[program]}"
    if "/" not in program and os.path.isfile(os.path.join(command.cwd or "", program)):
        return f"; for the file of that name write ./{program}, or name what runs it"
    return ""


def _how_it_ended(code: int | None, is_dumb: bool) -> tuple[str, str]:
    if code is None:
        return "closed its output" if is_dumb else "closed its input", "closed"
    how = f"exited with code {code}" if code >= 0 else f"was ended by {_name(-code)}"
    return how, "exited"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
