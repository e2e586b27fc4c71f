"""The wire to a child process: one message per line of its standard streams."""

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Callable, Mapping

from msgspec import Struct

from portico.core.model.version import Version
from portico.core.protocol.line_reader import CR, LF, LineReader, one_line
from portico.core.state.background import first_of
from portico.upstream.process.child_process import ChildInput, ChildOutput, ChildProcess
from portico.upstream.process.environment import ENDPOINT_TOKEN, secrets
from portico.upstream.process.family import Family
from portico.upstream.process.process_work import ProcessWork, work_of
from portico.upstream.process.stderr_lines import StderrLines
from portico.upstream.process.stderr_tail import StderrTail
from portico.upstream.wires.wire import MAX_MESSAGE, Failure, Outgoing, Receiver, Wire, to_bytes

HIGH_WATER = 1024 * 1024
"""Bytes that may wait for the child to read before senders wait too."""

_NO_ENV: Mapping[str, str] = {}
_UV, _NODE = "uv (https://docs.astral.sh/uv/)", "Node.js (https://nodejs.org/)"
_INSTALLERS: Mapping[str, str] = {"uv": _UV, "uvx": _UV, "node": _NODE, "npx": _NODE}
"""The package of a command that starts many servers."""
_FINAL_OUTPUT_S = 0.2
"""How long to read an exited child's pipes, which a grandchild may keep open."""


_EXHAUSTED = {
    errno.EAGAIN: "your user has too many processes; stop some, or raise `ulimit -u`",
    errno.EMFILE: "Portico has too many open files; raise `ulimit -n`",
    errno.ENFILE: "the system has too many open files; close some programs",
    errno.ENOMEM: "there is not enough memory; close some programs",
}


class Command(Struct, frozen=True):
    """The command of a server; it is never run through a shell."""

    argv: tuple[str, ...]
    title: str = ""
    env: Mapping[str, str] = _NO_ENV
    """Added to the environment. Its values are kept out of error messages."""
    cwd: str | None = None
    environment: Mapping[str, str] | None = None
    """The whole environment; None for our own."""
    max_line: int = MAX_MESSAGE
    on_stderr: Callable[[str], None] | None = None
    """Receives each line of its stderr, redacted; without it, only the last lines are kept."""
    install_s: float = 0.0
    """How long it may outlive a Portico that is killed, unless it has answered by then."""
    stdin_grace_s: float = 2.0
    """How long it may take to exit after its input is closed."""
    term_grace_s: float = 1.0
    """How long it may take to exit after SIGTERM."""
    family: Family | None = None
    """The family of the agent that it is."""

    @property
    def variables(self) -> dict[str, str]:
        """The whole environment of the child."""
        whole = dict(os.environ if self.environment is None else self.environment)
        whole.pop(ENDPOINT_TOKEN, None)
        return {**whole, **self.env}

    @property
    def name(self) -> str:
        """The title, else the command's own name."""
        return self.title or os.path.basename(self.argv[0])

    def wire(self) -> "ChildWire":
        """Return a wire to a child that is not started yet."""
        return ChildWire(self)

    def older(self) -> None:
        """Return None: standard streams have no older form."""
        return


class ChildWire(Wire):
    """A running child process; messages are lines on its stdin and stdout."""

    transport = "stdio"
    _receiver: Receiver

    def __init__(self, command: Command) -> None:
        self._command = command
        self._lines = LineReader(command.max_line)
        self.stderr_tail = StderrTail()
        """The last lines of its stderr."""
        self.process: ChildProcess | None = None
        self.stdin: ChildInput | None = None
        self._outputs: list[ChildOutput] = []
        self._senders_waiting = 0
        self._send_lock = asyncio.Lock()
        self._watcher: asyncio.Task[None] | None = None
        self._failure: Failure | None = None
        self._closing = False

    @property
    def server(self) -> str:
        """The name of the server."""
        return self._command.name

    async def open(self, receiver: Receiver) -> None:
        """Start the child."""
        command = self._command
        self._receiver = receiver
        if os.name != "posix":
            raise self._fail(
                "cannot start: Portico starts servers on Linux and macOS only", "start"
            ).error()
        variables = command.variables
        self.stderr_tail = StderrTail(secrets=[*command.env.values(), *secrets(variables)])
        try:
            process = await ChildProcess.start(
                command.argv,
                variables,
                command.cwd,
                command.family,
                spared_s=command.install_s,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL in an argument
            raise self._fail(start_problem(command, error), "start").error() from None
        self.process = process
        self.stdin = ChildInput(process.stdin, HIGH_WATER)
        listener = command.on_stderr
        on_stderr = (
            self.stderr_tail.add
            if listener is None
            else StderrLines(self.stderr_tail, listener).add
        )
        out, err = (
            ChildOutput(process.stdout, self._deliver),
            ChildOutput(process.stderr, on_stderr),
        )
        self._outputs = [out, err]
        self._watcher = asyncio.create_task(self._watch(process, self.stdin, out, err))

    async def send(self, message: Outgoing) -> None:
        """Write one line, in order of calls; wait while the child does not read."""
        stdin = self.stdin
        assert stdin is not None
        self._senders_waiting += 1
        try:
            async with self._send_lock:
                await stdin.writable.wait()
                if self._failure is not None:
                    raise self._failure.error()
                # If it is closed, the watcher reports why.
                if not stdin.closing:
                    stdin.write(one_line(to_bytes(message.data)))
        finally:
            self._senders_waiting -= 1

    def send_now(self, message: Outgoing) -> bool:
        """Write one line unless the child is slow to read."""
        stdin, data = self.stdin, message.data
        if stdin is None or self._failure is not None:
            return False
        if stdin.size > HIGH_WATER or self._senders_waiting:
            return False
        line = data if isinstance(data, bytes) else data()
        if LF in line or CR in line:
            line = one_line(line)
        stdin.write(line)
        return True

    @property
    def is_blocked(self) -> bool:
        """True while the backlog is above the high-water mark."""
        stdin = self.stdin
        if stdin is None:
            return False
        return not stdin.writable.is_set() or self._senders_waiting > 0

    async def drained(self) -> None:
        """Wait until the messages sent so far are below the high-water mark, or the child ended."""
        if self.stdin is not None:
            async with self._send_lock:
                await self.stdin.writable.wait()

    def pause_reading(self) -> None:
        """Read nothing from the child's stdout until `resume_reading`."""
        if self._outputs:
            self._outputs[0].pause()

    def resume_reading(self) -> None:
        """Read the child's stdout again."""
        if self._outputs:
            self._outputs[0].resume()

    async def close(self) -> None:
        """Close its input, then send SIGTERM and SIGKILL to the whole process group."""
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
            for source in self._outputs:
                source.close()
            stdin.abort()  # unread messages are discarded

    def _deliver(self, data: bytes) -> bool:
        """Pass on the messages that these bytes complete; True if one was a pending response."""
        if self._closing or self._failure is not None:
            return False
        receiver = self._receiver
        answered = receiver.answered
        reader = self._lines
        is_whole = data[-1:] == b"\n" and not reader.pending and len(data) <= reader.limit
        lines = data[:-1].split(b"\n") if is_whole else reader.feed(data)  # the usual case
        for line in lines:
            if line is None:
                why = f"sent a message longer than {self._lines.limit} bytes"
                receiver.malformed(self._lines.ends, why)
            elif line and not line.isspace():
                receiver.received(line)
        if not lines and self._lines.pending > 4 * self._lines.limit:
            # The line may never end, so no further message can arrive.
            self._report_lost(f"sent {self._lines.pending} bytes without a newline", "too_large")
            assert self.process is not None
            self.process.signal(signal.SIGKILL)
        return receiver.answered > answered

    async def _watch(
        self, process: ChildProcess, stdin: ChildInput, out: ChildOutput, err: ChildOutput
    ) -> None:
        """Report that the child exited or closed a pipe, once its remaining output is read."""
        ends = (process.exited, out.ended, stdin.closed_by_child)
        await first_of(*(event.wait() for event in ends))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FINAL_OUTPUT_S):
                for event in (process.exited, out.ended, err.ended):
                    await event.wait()
        if not process.exited.is_set():
            await process.find_descendants()
        process.signal(signal.SIGKILL)
        self._report_lost(*exit_reason(process.returncode, out.ended.is_set()))
        if await process.find_descendants():
            process.signal(signal.SIGKILL)

    def settle(self, version: Version) -> None:
        """End it with Portico from now on: it is installed."""
        if self.process is not None and self._command.install_s:
            self.process.spare(0)

    async def child_work(self) -> ProcessWork | None:
        """Return what the child and its descendants have done so far."""
        if self.process is None:
            return None
        try:
            return await asyncio.to_thread(work_of, self.process.pid)
        except RuntimeError:  # no thread can be started
            return None

    def last_output(self) -> str:
        """Return the last lines of the child's stderr."""
        return self.stderr_tail.tail()

    def _report_lost(self, why: str, kind: str) -> None:
        failure = self._fail(why, kind)
        if self.stdin is not None:
            self.stdin.abort()  # waiting senders fail too
        self._receiver.lost(failure)

    def _fail(self, why: str, kind: str) -> Failure:
        self._failure = self._failure or Failure(
            server=self._command.name,
            why=why,
            kind=kind,
            exit_code=self.process.returncode if self.process is not None else None,
            stderr=self.stderr_tail.tail(),
        )
        return self._failure


def start_problem(command: Command, error: OSError | ValueError) -> str:
    """Return why a command cannot be started, and what to do about it."""
    if command.cwd is not None and not os.path.isdir(command.cwd):
        return f"cannot start: there is no folder {command.cwd}"
    if isinstance(error, NotADirectoryError) and command.cwd is not None:
        return f"cannot start: a link has appeared in the path of its folder, {command.cwd}"
    return f"cannot start: {_start_error(command, error)}"


def _start_error(command: Command, error: OSError | ValueError) -> str:
    program = command.argv[0]
    path = os.path.join(command.cwd or "", program) if "/" in program else ""
    if isinstance(error, FileNotFoundError):
        if os.path.isfile(path):  # a script; a CR at the end of its line is part of the name
            return f"the interpreter in the first line of {program!r} does not exist"
        return f"there is no command {program!r}{_hint(command)}"
    if os.path.isdir(path):
        return f"{program!r} is a folder, not a program"
    if isinstance(error, PermissionError) and os.path.isfile(path):
        return f"{program!r} is not executable; `chmod +x` it, or name its interpreter"
    if isinstance(error, OSError) and error.errno == errno.ENOEXEC:
        return f"{program!r} is not a program, nor a script whose first line is #! and a program"
    if isinstance(error, OSError) and error.errno in _EXHAUSTED:
        return _EXHAUSTED[error.errno]
    return str(getattr(error, "strerror", None) or error)


def _hint(command: Command) -> str:
    """Return what to do about a missing command."""
    program = command.argv[0]
    if program in _INSTALLERS:
        return f"; install {_INSTALLERS[program]}"
    if "/" not in program and os.path.isfile(os.path.join(command.cwd or "", program)):
        return f"; to run the file of that name write ./{program}, or name its interpreter"
    return "; check the path" if "/" in program else "; check its name and your PATH"


def exit_reason(code: int | None, output_closed: bool) -> tuple[str, str]:
    """Return how a child ended, in words and as the kind of a failure."""
    if code is None:
        return "closed its output" if output_closed else "closed its input", "closed"
    how = f"exited with code {code}" if code >= 0 else f"was killed by {_signal_name(-code)}"
    return how, "exited"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
