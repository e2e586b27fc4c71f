"""A turn of an agent that is one command per prompt: its output is the result.

Such an agent is unsupervised: it requests no permissions, and cannot continue a session.
"""

import asyncio
import codecs

from portico.agents.turns.bounded_text import BoundedText
from portico.agents.turns.delegation import (
    AgentLaunch,
    AgentPrompt,
    DelegationPort,
    TurnOutcome,
)
from portico.agents.turns.failures import AgentFailed
from portico.agents.turns.lenient import short
from portico.agents.turns.prompt_blocks import prompt_text
from portico.agents.turns.reports import TurnReports
from portico.agents.turns.turn_clock import HARD, TurnStopwatch
from portico.agents.turns.turn_updates import PRINTED
from portico.upstream.process.child_process import ChildInput, ChildOutput, ChildProcess
from portico.upstream.process.environment import secrets
from portico.upstream.process.stderr_tail import StderrTail
from portico.upstream.wires.child_wire import HIGH_WATER, exit_reason, start_problem
from portico.upstream.wires.wire import quoted_stderr

PLACEHOLDER = "{prompt}"
"""The prompt's place in an argument; without one, the prompt is written to stdin."""
_FINAL_OUTPUT_S = 1.0
"""How long to read an exited command's output, which its descendants may keep open."""
_REPORTS_S = 10.0


class CommandTurn:
    """A run of a command; `run` it once. `outcome` is what is known about it at any time."""

    def __init__(self, launch: AgentLaunch, prompt: AgentPrompt, port: DelegationPort) -> None:
        refuse_session(launch, prompt)
        self._launch = launch
        self._text = prompt_text(prompt.text, prompt.blocks)
        self._command = launch.command(prompt.cwd, prompt.family)
        self._output = BoundedText(launch.max_text)
        self._said = prompt.on_text
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        variables = self._command.variables
        self._stderr = StderrTail(secrets=[*launch.env.values(), *secrets(variables)])
        self._loop = asyncio.get_running_loop()
        self._stopwatch = TurnStopwatch(self._loop.time)
        self._failed: asyncio.Future[Exception] = self._loop.create_future()
        self._reports = TurnReports(port, self._fail)

    async def run(self) -> TurnOutcome:
        """Return the outcome; raises TargetError if the command cannot be started."""
        try:
            process = await self._start()
            try:
                return await self._finish(process)
            finally:
                await process.end(0, self._launch.grace.term_s)
        finally:
            await self._reports.close(_REPORTS_S)

    def outcome(self, stop_reason: str = "", error: str = "") -> TurnOutcome:
        """Return what the command printed so far."""
        return TurnOutcome(
            text=self._output.value(),
            stop_reason=stop_reason,
            is_error=bool(error),
            error=error,
            timings=self._stopwatch.timings(),
        )

    async def _start(self) -> ChildProcess:
        argv = filled(self._launch.argv, self._text)
        name = self._launch.name
        self._reports.progress(f"starting {name}")
        try:
            process = await ChildProcess.start(
                argv, self._command.variables, self._command.cwd, self._command.family
            )
        except (OSError, ValueError) as error:
            why = f"{name} {start_problem(self._command, error)}"
            raise AgentFailed(why, kind="start", server=name) from None
        self._stopwatch.ready()
        self._reports.progress(f"{name} is working")
        return process

    async def _finish(self, process: ChildProcess) -> TurnOutcome:
        stdin = ChildInput(process.stdin, HIGH_WATER)
        pipes = [
            ChildOutput(process.stdout, self._add),
            ChildOutput(process.stderr, self._stderr.add),
        ]
        if argv_takes_prompt(self._launch.argv):
            stdin.close()
        else:
            stdin.write(self._text.encode(errors="replace"))
            stdin.close()
        try:
            exited = asyncio.ensure_future(process.exited.wait())
            hard_s = self._launch.timeouts.hard
            await asyncio.wait(
                (exited, self._failed), timeout=hard_s, return_when=asyncio.FIRST_COMPLETED
            )
            exited.cancel()
            self._stopwatch.ended()
            if self._failed.done():
                raise self._failed.result()
            if not process.exited.is_set():
                name = self._launch.name
                return self.outcome(HARD, f"{name} was stopped: it ran for more than {hard_s:g} s")
            await _drained(pipes)
            return self._ended(process)
        finally:
            stdin.abort()
            for pipe in pipes:
                pipe.close()

    def _ended(self, process: ChildProcess) -> TurnOutcome:
        self._print(self._decode(b"", True))
        if not process.returncode:
            return self.outcome("end_turn")
        how, _ = exit_reason(process.returncode, output_closed=True)
        return self.outcome(
            "failed", f"{self._launch.name} {how}{quoted_stderr(self._stderr.tail())}"
        )

    def _add(self, data: bytes) -> None:
        self._stopwatch.updated()
        text = self._decode(data)
        self._print(text)
        line = short(text.strip()[-400:].rpartition("\n")[2])
        if line:
            self._reports.progress(f"{PRINTED}{line}")

    def _print(self, text: str) -> None:
        self._output.add(text)
        if self._said is not None and text:
            self._said(text)

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_result(error)


def refuse_session(launch: AgentLaunch, prompt: AgentPrompt) -> None:
    """Raise AgentFailed for a prompt that continues a session."""
    if prompt.session_id:
        why = f"{launch.name} cannot continue a session: start a new task instead"
        raise AgentFailed(why, kind="unsupported", server=launch.name)


def argv_takes_prompt(argv: tuple[str, ...]) -> bool:
    """True if an argument has the place of the prompt."""
    return any(PLACEHOLDER in word for word in argv[1:])


def filled(argv: tuple[str, ...], prompt: str) -> list[str]:
    """Return the command with the prompt in its place, where it cannot become an option."""
    # An agent would read a prompt such as `--yolo` as its own option.
    whole = f" {prompt}" if prompt.startswith("-") else prompt
    program, *args = argv
    return [
        program,
        *(whole if arg == PLACEHOLDER else arg.replace(PLACEHOLDER, prompt) for arg in args),
    ]


async def _drained(pipes: list[ChildOutput]) -> None:
    """Wait for the end of the output, up to a time."""
    try:
        async with asyncio.timeout(_FINAL_OUTPUT_S):
            for pipe in pipes:
                await pipe.ended.wait()
    except TimeoutError:
        pass
