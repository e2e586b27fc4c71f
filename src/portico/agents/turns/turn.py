"""One turn of one agent over ACP: from its process to its outcome, and its end in every case.

The end has steps: `session/cancel` first, then its input is closed, then its whole process group is
terminated and killed. Each step has its own grace period, so nothing waits forever.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from portico.agents.turns.acp_connection import AcpConnection
from portico.agents.turns.callbacks import Callbacks
from portico.agents.turns.confined_files import ConfinedFiles
from portico.agents.turns.delegation import (
    AgentLaunch,
    AgentPrompt,
    DelegationPort,
    TurnOutcome,
    entries_of,
)
from portico.agents.turns.failures import AgentFailed, LoginRequired
from portico.agents.turns.lenient import text
from portico.agents.turns.permission_broker import REJECTIONS, PermissionBroker
from portico.agents.turns.permissions import is_allowed
from portico.agents.turns.prompt_blocks import prompt_blocks
from portico.agents.turns.question_text import QuestionSource
from portico.agents.turns.questions import Questions
from portico.agents.turns.reports import TurnReports
from portico.agents.turns.terminals import Terminals
from portico.agents.turns.turn_clock import IDLE, TurnClock, TurnStopwatch
from portico.agents.turns.turn_driver import ResponseEndsTurn, TurnDriver, TurnEnd
from portico.agents.turns.turn_updates import SETUP_KINDS, TurnUpdates
from portico.core.model.errors import McpError, TargetError
from portico.core.state.background import Background
from portico.upstream.rpc.rpc_error import one_line

_REPORTS_S = 10.0
"""How long the port may take for the last events."""
REFUSAL, CANCELLED_BY_AGENT = "refusal", "cancelled"
"""Stop reasons that are errors; a turn that we cancel never has an end of its own."""


class AcpTurn:
    """A turn; `run` it once. `outcome` is what is known about it at any time."""

    def __init__(
        self,
        launch: AgentLaunch,
        prompt: AgentPrompt,
        port: DelegationPort,
        connection: AcpConnection | None = None,
        driver: TurnDriver | None = None,
        endings: Background | None = None,
    ) -> None:
        self._launch = launch
        self._endings = endings
        self._prompt = prompt
        self._warm = connection
        self._connection = connection
        self._driver: TurnDriver = driver or ResponseEndsTurn()
        self._loop = asyncio.get_running_loop()
        self._stopped: asyncio.Future[str | Exception] = self._loop.create_future()
        self._reports = TurnReports(port, self._stop)
        self._questions = Questions(port.ask, self._stop)
        self._folder = prompt.cwd
        self._updates = TurnUpdates(
            launch.max_text,
            is_new_session=not prompt.session_id,
            progress=self._reports.progress,
            record=self._reports.record,
            said=prompt.on_text,
        )
        source = QuestionSource(
            agent=launch.name, task_id=prompt.task_id, prompt=prompt.text, folder=self._folder
        )
        self._broker = PermissionBroker(
            launch,
            source,
            prompt.servers,
            self._questions,
            self._reports.record,
            self._updates.known_call,
        )
        self._terminals = Terminals(launch.variables(), self._touch, prompt.family)
        self._callbacks = Callbacks(
            launch,
            ConfinedFiles(self._folder),
            self._broker,
            self._terminals,
            self._questions,
            source,
            self._reports.record,
        )
        self._clock: TurnClock | None = None
        self._stopwatch = TurnStopwatch(self._loop.time)
        self._session_id = prompt.session_id
        self._is_responsive = False
        self._result: Mapping[str, Any] = {}
        self._dropped = ""

    async def run(self) -> TurnOutcome:
        """Return the outcome; raises TargetError if the turn could not begin.

        Cancelling it ends the agent, step by step, before CancelledError is raised. The process of
        a finished turn ends among the `endings`, if they are given.
        """
        has_ended = False
        try:
            await self._start()
            end = await self._finish_prompt()
            has_ended = True
            return self.outcome(*end)
        finally:
            self._questions.cancel()
            try:
                if has_ended and self._endings is not None:
                    self._endings.start(self._close())
                else:
                    await self._close()
            finally:
                await self._reports.close(_REPORTS_S)

    # The handler of the connection.

    def updated(self, session_id: str, update: dict[str, Any], raw: bytes) -> None:
        """Take an update of the agent."""
        self._touch()
        if update.get("sessionUpdate") not in SETUP_KINDS:
            self._stopwatch.updated()
        self._updates.add(session_id, update, raw)
        self._driver.updated(session_id, update)

    def dropped(self, what: str) -> None:
        """Keep the event of a message that was dropped; it may have been the result."""
        self._touch()
        self._reports.record(what)
        if self._clock is not None:  # the turn has begun
            self._dropped = what

    async def answer(self, method: str, params: dict[str, Any]) -> Mapping[str, Any]:
        """Answer a request of the agent."""
        self._touch()
        result = await self._callbacks.answer(method, params)
        if is_allowed(params, result):
            self._updates.allowed(params)
        return result

    def outcome(
        self, end: TurnEnd | None = None, stop_reason: str = "", error: str = ""
    ) -> TurnOutcome:
        """Return what the agent did so far; without an end, the turn was interrupted."""
        updates, connection = self._updates, self._connection
        reason = end.stop_reason if end is not None else stop_reason
        said = updates.text.value()
        error = error or self._problem_of(reason)
        if self._dropped and said and not error:
            said = f"{said}\n\n({self._dropped}, so this text may be incomplete)"
        elif self._dropped:
            error = error or self._dropped
        return TurnOutcome(
            text=said,
            stop_reason=reason,
            is_error=bool(error),
            error=error,
            usage=updates.usage.result(end.result if end is not None else self._result),
            session_id=self._session_id,
            can_resume=bool(connection is not None and connection.resume_method),
            permissions=dict(self._broker.decisions),
            updates=dict(updates.kinds),
            tool_calls=tuple(updates.tool_calls.values()),
            files_reported=tuple(updates.changed),
            plan=updates.plan,
            unknown_updates=tuple(updates.unknown),
            garbage=connection.exchange.garbage if connection is not None else 0,
            timings=self._stopwatch.timings(self._warm is not None),
        )

    def _problem_of(self, reason: str) -> str:
        """Return why a stop reason is an error; empty if it is not."""
        name = self._launch.name
        if reason == REFUSAL:
            return f"{name} refused the task"
        if reason != CANCELLED_BY_AGENT:
            return ""
        is_rejected = any(self._broker.decisions[one] for one in REJECTIONS)
        why = ", after a permission request was rejected" if is_rejected else ""
        return f"{name} cancelled the task by itself{why}"

    async def _start(self) -> None:
        """Start the process if there is none, and open the session, within the start timeout."""
        try:
            async with asyncio.timeout(self._launch.timeouts.start):
                await self._open_session()
        except TimeoutError:
            assert self._connection is not None
            raise self._connection.start_timeout() from None
        except McpError as error:
            name, why = self._launch.name, one_line(error)
            message = f"{name} did not open a session: {why} ({error.code})"
            raise AgentFailed(message, kind="refused", server=name) from None
        await self._wait_until_ready()
        if self._stopped.done():
            self._raise_stopped()  # the owner failed: the prompt is not sent

    async def _open_session(self) -> None:
        if self._warm is not None:
            try:
                await self._enter(self._warm)
                return
            except TargetError:
                if not self._warm.is_over:
                    raise
                # It died while it waited; a new process is as good.
                await self._warm.close()
                self._warm = None
        self._reports.progress(f"starting {self._launch.name}")
        self._connection = AcpConnection(self._launch, self._folder, self._prompt.family)
        await self._connection.open()
        await self._enter(self._connection)

    async def _enter(self, connection: AcpConnection) -> None:
        """Open the session on a connection."""
        connection.handler = self
        has_http = connection.profile.has("mcpCapabilities", "http")
        servers = entries_of(self._prompt.servers, has_http, self._reports.record)
        if self._prompt.session_id:
            id = self._prompt.session_id
            await connection.resume_session(id, self._folder, servers)
        else:
            result = await connection.new_session(self._folder, servers)
            id = text(result.get("sessionId"))
        self._session_id = self._updates.session_id = id
        if self._launch.mode:
            await connection.set_mode(id, self._launch.mode)
        for option, value in self._launch.config_options.items():
            await connection.set_config_option(id, option, value)

    async def _wait_until_ready(self) -> None:
        if self._prompt.on_session is not None:
            assert self._connection is not None
            can_resume = bool(self._connection.resume_method)
            await self._prompt.on_session(self._session_id if can_resume else "")
        if self._prompt.before_prompt is None:
            return
        try:
            await self._prompt.before_prompt()
        except TimeoutError as error:
            self._reports.record(f"{error}; prompting it")

    async def _finish_prompt(self) -> tuple[TurnEnd | None, str, str]:
        """Send the prompt; return the end of the turn, or the reason and the error of its stop."""
        connection = self._connection
        assert connection is not None
        self._stopwatch.ready()
        self._updates.begin()
        timeouts = self._launch.timeouts
        hard_s = max(0.0, timeouts.hard - self._stopwatch.elapsed_s)
        self._clock = self._questions.clock = TurnClock(timeouts.idle, hard_s, self._stop)
        blocks = prompt_blocks(self._prompt, connection.profile)
        turn = asyncio.create_task(self._driver.run(connection, self._session_id, blocks))
        self._reports.progress(f"{self._launch.name} is working")
        try:
            await asyncio.wait((turn, self._stopped), return_when=asyncio.FIRST_COMPLETED)
            self._stopwatch.ended()
            if turn.done():
                return self._ended(turn)
            return await self._insist(turn)
        except asyncio.CancelledError:
            await self._cancel(turn)
            raise
        finally:
            self._clock.stop()
            self._is_responsive = turn.done()
            turn.cancel()

    def _ended(self, turn: "asyncio.Task[TurnEnd]") -> tuple[TurnEnd | None, str, str]:
        try:
            return turn.result(), "", ""
        except LoginRequired:
            raise  # nothing was done
        except McpError as error:
            why = f"{self._launch.name} failed: {one_line(error)} ({error.code})"
            return None, "failed", why
        except TargetError as error:
            return None, "failed", str(error)

    async def _insist(self, turn: "asyncio.Task[TurnEnd]") -> tuple[TurnEnd | None, str, str]:
        """End a turn that was stopped, by a timeout or because its owner failed."""
        await self._cancel(turn)
        reason = self._raise_stopped()
        name, timeouts = self._launch.name, self._launch.timeouts
        if reason == IDLE:
            return None, reason, f"{name} was stopped: it sent nothing for {timeouts.idle:g} s"
        return None, reason, f"{name} was stopped: it ran for more than {timeouts.hard:g} s"

    def _raise_stopped(self) -> str:
        """Raise the error of the owner, or return the timeout that stopped the turn."""
        reason = self._stopped.result()
        if isinstance(reason, Exception):
            raise reason
        return reason

    async def _cancel(self, turn: "asyncio.Task[TurnEnd]") -> None:
        """Request the end of the turn, and give the agent some time."""
        self._questions.cancel()
        connection = self._connection
        assert connection is not None
        if turn.done() or connection.is_over:
            return
        try:
            async with asyncio.timeout(self._launch.grace.cancel_s):
                await connection.cancel(self._session_id)
                await asyncio.wait((turn,))
        except (TimeoutError, TargetError):
            return
        if turn.exception() is None:
            self._result = turn.result().result  # it may report usage

    async def _close(self) -> None:
        """End the process and the terminals."""
        connection = self._connection
        try:
            if connection is not None:
                try:
                    if self._is_responsive:
                        await connection.close_session(self._session_id)
                finally:
                    await connection.close()
        finally:
            await self._terminals.close()

    def paused(self) -> AbstractContextManager[None]:
        """Suspend the idle timeout: the agent waits for a person."""
        return nullcontext() if self._clock is None else self._clock.paused()

    def _touch(self) -> None:
        if self._clock is not None:
            self._clock.touch()

    def _stop(self, reason: str | Exception) -> None:
        if not self._stopped.done():
            self._stopped.set_result(reason)
