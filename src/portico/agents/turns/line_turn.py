"""A turn of an agent that takes one line of JSON-RPC, `tools/call execute_task`, and returns one.

Such an agent is unsupervised: it requests no permissions, and cannot continue a session.
"""

import asyncio
from typing import Any

import msgspec

from portico.agents.turns.agent_exchange import AgentExchange
from portico.agents.turns.bounded_text import BoundedText
from portico.agents.turns.command_turn import refuse_session
from portico.agents.turns.delegation import (
    AgentLaunch,
    AgentPrompt,
    DelegationPort,
    TurnOutcome,
)
from portico.agents.turns.lenient import decoded_fields, fields, items, short
from portico.agents.turns.prompt_blocks import prompt_text
from portico.agents.turns.reports import TurnReports
from portico.agents.turns.turn_clock import HARD, TurnStopwatch
from portico.agents.turns.turn_updates import content_text
from portico.agents.turns.usage import AgentUsage, counts_in, usage_of
from portico.core.model.errors import METHOD_NOT_FOUND, McpError, TargetError
from portico.core.protocol.codec import encode_escaped
from portico.upstream.rpc.pending_request import FOREVER, AwaitedRequest
from portico.upstream.rpc.rpc_error import one_line
from portico.upstream.wires.child_wire import ChildWire

_REPORTS_S = 10.0


class LineTurn:
    """One request to a process of its own; `run` it once."""

    def __init__(self, launch: AgentLaunch, prompt: AgentPrompt, port: DelegationPort) -> None:
        refuse_session(launch, prompt)
        self._launch = launch
        context = prompt_text("", prompt.blocks)
        self._arguments = {"prompt": prompt.text, "context": context}
        self._wire = ChildWire(launch.command(prompt.cwd, prompt.family))
        self._exchange = AgentExchange(self._wire, launch.name, _refuse, self._on_notification)
        self._loop = asyncio.get_running_loop()
        self._stopwatch = TurnStopwatch(self._loop.time)
        self._failed: asyncio.Future[Exception] = self._loop.create_future()
        self._reports = TurnReports(port, self._fail)
        self._exchange.on_dropped = self._reports.record

    async def run(self) -> TurnOutcome:
        """Return the outcome; raises TargetError if the process cannot be started."""
        try:
            self._reports.progress(f"starting {self._launch.name}")
            await self._exchange.open()
            self._stopwatch.ready()
            self._reports.progress(f"{self._launch.name} is working")
            return await self._finish()
        finally:
            try:
                await self._exchange.close()
            finally:
                await self._reports.close(_REPORTS_S)

    def outcome(
        self,
        stop_reason: str = "",
        error: str = "",
        text: str = "",
        usage: AgentUsage | None = None,
    ) -> TurnOutcome:
        """Return what is known about the turn."""
        bounded = BoundedText(self._launch.max_text)
        bounded.add(text)
        return TurnOutcome(
            text=bounded.value(),
            stop_reason=stop_reason,
            is_error=bool(error),
            error=error,
            usage=usage or AgentUsage(),
            garbage=self._exchange.garbage,
            timings=self._stopwatch.timings(),
        )

    async def _finish(self) -> TurnOutcome:
        answer: asyncio.Future[bytes] = self._loop.create_future()
        params = encode_escaped({"name": "execute_task", "arguments": self._arguments})
        self._exchange.begin(params, AwaitedRequest("tools/call", FOREVER, None, answer))
        if self._wire.stdin is not None:
            self._wire.stdin.close()  # there is no second request
        hard_s, name = self._launch.timeouts.hard, self._launch.name
        await asyncio.wait(
            (answer, self._failed), timeout=hard_s, return_when=asyncio.FIRST_COMPLETED
        )
        self._stopwatch.ended()
        if self._failed.done():
            raise self._failed.result()
        if not answer.done():
            return self.outcome(HARD, f"{name} was stopped: it ran for more than {hard_s:g} s")
        try:
            return self._ended(answer.result())
        except McpError as error:
            return self.outcome("failed", f"{name} failed: {one_line(error)} ({error.code})")
        except TargetError as error:
            return self.outcome("failed", str(error))

    def _ended(self, raw: bytes) -> TurnOutcome:
        result = decoded_fields(raw) or {}
        text = result_text(raw)
        usage = usage_of(counts_in(fields(result.get("usage"))))
        error = (
            short(text) or "the agent reported a failure" if result.get("isError") is True else ""
        )
        return self.outcome("failed" if error else "end_turn", error, text, usage)

    def _on_notification(self, method: str, params: bytes, about: bytes) -> None:
        found = decoded_fields(params) or {}
        percent, message = found.get("percent"), short(found.get("message"))
        if message:
            self._reports.progress(message)
        elif isinstance(percent, int | float):
            self._reports.progress(f"{percent:g} % done")

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_result(error)


def result_text(raw: bytes) -> str:
    """Return the text of a result: its content blocks, a string, or any other JSON as it is."""
    try:
        result: Any = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return raw.decode(errors="replace")
    if isinstance(result, str):
        return result
    content = fields(result).get("content")
    if isinstance(content, list):
        return "\n".join(filter(None, map(content_text, items(content))))
    return content if isinstance(content, str) else raw.decode(errors="replace")


async def _refuse(method: str, params: bytes, about: bytes) -> bytes:
    raise McpError(f"this client does not support {method[:80]}", METHOD_NOT_FOUND)
