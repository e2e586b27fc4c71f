"""Calls that wait at a legacy server for a modern client's answers: whose they are, how long."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from portico.edge.transport.http_app import HttpApp
from portico.library.chain.endpoint import ChainEndpoint
from portico.upstream.connections.caller import Outbox
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.upstream import Upstream
from portico.upstream.wires.child_wire import Command
from tests.rigs.running import bad
from tests.support.backoff import until
from tests.support.clock import Clock
from tests.support.messages import modern, modern_meta, request
from tests.support.web import WAIT_S, Site, mirrored, serving

ODD = Path(__file__).parents[2] / "wrap" / "servers" / "odd.py"
CAN: dict[str, Any] = {"elicitation": {"form": {}}}
YES = {"action": "accept", "content": {"name": "Ada"}}


class Doorway:
    """A doorway over HTTP before a legacy server, in this process."""

    def __init__(self, upstream: Upstream, site: Site) -> None:
        self.upstream = upstream
        self.site = site

    async def ask(self, capabilities: dict[str, Any] = CAN, **params: Any) -> dict[str, Any]:
        """Call the tool that sends questions, and return the whole response."""
        call = {"name": "ask", "arguments": {"kind": "elicitation"}, **params}
        answer = await self.site.modern(modern("tools/call", call, capabilities))
        decoded: dict[str, Any] = answer.json()
        return decoded

    async def begin_call(self) -> tuple[str, dict[str, Any]]:
        """Begin such a call, and return its state and the answers that continue it."""
        result = (await self.ask())["result"]
        assert result["resultType"] == "input_required"
        (key,) = result["inputRequests"]
        return result["requestState"], {key: YES}

    @property
    def suspended(self) -> int:
        """How many calls wait."""
        suspended: int = self.upstream.status()["held"]
        return suspended

    async def none_suspended(self) -> None:
        """Wait until no call is suspended or running."""
        await until(
            lambda: not self.suspended and not any(line["busy"] for line in self._connections())
        )

    def _connections(self) -> list[dict[str, Any]]:
        connections: list[dict[str, Any]] = self.upstream.status()["connections"]
        return connections


@asynccontextmanager
async def doorway(
    policy: UpstreamPolicy | None = None, command: list[str] | None = None
) -> AsyncIterator[Doorway]:
    upstream = Upstream(
        Command(tuple(command or bad("stdio", "plain"))), policy or UpstreamPolicy()
    )
    try:
        async with serving(
            HttpApp(ChainEndpoint(upstream, [upstream], [], lambda *_: None))
        ) as site:
            yield Doorway(upstream, site)
    finally:
        await upstream.close()


async def test_an_answer_goes_to_the_call_that_asked() -> None:
    async with doorway() as door:
        state, answers = await door.begin_call()
        assert door.suspended == 1
        done = await door.ask(requestState=state, inputResponses=answers)
        assert done["result"]["resultType"] == "complete"
        assert '"Ada"' in done["result"]["content"][0]["text"]
        assert door.suspended == 0


async def test_what_is_left_out_is_asked_again() -> None:
    async with doorway() as door:
        state, answers = await door.begin_call()
        again = (await door.ask(requestState=state, inputResponses={}))["result"]
        assert again["inputRequests"].keys() == answers.keys()
        done = await door.ask(requestState=again["requestState"], inputResponses=answers)
        assert done["result"]["resultType"] == "complete"


async def test_a_state_that_was_changed_is_refused_and_its_call_waits_on() -> None:
    async with doorway() as door:
        state, answers = await door.begin_call()
        middle = len(state) // 2
        changed = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
        for wrong in (changed, state[:-4], "x"):
            refused = await door.ask(requestState=wrong, inputResponses=answers)
            assert refused["error"]["code"] == -32602
        done = await door.ask(requestState=state, inputResponses=answers)
        assert done["result"]["resultType"] == "complete"


async def test_a_state_is_of_use_only_to_the_call_it_was_made_for() -> None:
    async with doorway() as door:
        state, answers = await door.begin_call()
        for other in ({"arguments": {"kind": "roots"}}, {"name": "echo"}):
            refused = await door.ask(requestState=state, inputResponses=answers, **other)
            assert refused["error"]["code"] == -32602
        done = await door.ask(requestState=state, inputResponses=answers)
        assert done["result"]["resultType"] == "complete"


async def test_a_state_is_used_once() -> None:
    async with doorway() as door:
        state, answers = await door.begin_call()
        await door.ask(requestState=state, inputResponses=answers)
        again = await door.ask(requestState=state, inputResponses=answers)
        assert again["error"]["code"] == -32602
        assert "start over" in again["error"]["message"]


async def test_a_state_of_another_run_is_refused() -> None:
    async with doorway() as door:
        state, answers = await door.begin_call()
    async with doorway() as door:
        refused = await door.ask(requestState=state, inputResponses=answers)
        assert refused["error"]["code"] == -32602


async def test_who_does_not_come_back_in_time_has_to_start_over(clock: Clock) -> None:
    async with doorway(UpstreamPolicy(suspended_s=60)) as door:
        state, answers = await door.begin_call()
        await clock.advance(60)
        await door.none_suspended()
        late = await door.ask(requestState=state, inputResponses=answers)
        assert late["error"]["code"] == -32602
        # The server received the cancellation, and serves others.
        assert (await door.ask())["result"]["resultType"] == "input_required"


async def test_so_many_calls_wait_and_no_more() -> None:
    async with doorway(UpstreamPolicy(max_suspended=2)) as door:
        kept = [await door.begin_call() for _ in range(2)]
        refused = await door.ask()
        assert refused["error"]["data"]["kind"] == "busy"
        for state, answers in kept:
            done = await door.ask(requestState=state, inputResponses=answers)
            assert done["result"]["resultType"] == "complete"


async def test_a_client_that_cannot_be_asked_is_told_what_it_lacks() -> None:
    async with doorway() as door:
        less: tuple[dict[str, Any], ...] = ({}, {"sampling": {}})
        for capabilities in less:
            refused = (await door.ask(capabilities))["error"]
            assert refused["code"] == -32021
            assert refused["data"] == {"requiredCapabilities": {"elicitation": {}}}
        await door.none_suspended()


async def test_a_start_that_a_client_gave_up_on_serves_the_next(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    script = f"echo >> {starts}; sleep 1; exec {' '.join(bad('stdio', 'plain'))}"
    async with doorway(UpstreamPolicy(era="legacy"), ["/bin/sh", "-c", script]) as door:
        door.site.client.timeout = httpx2.Timeout(0.3)
        with pytest.raises(httpx2.TimeoutException):
            await door.ask()
        door.site.client.timeout = httpx2.Timeout(WAIT_S)
        assert (await door.ask())["result"]["resultType"] == "input_required"
    assert starts.read_text().count("\n") == 1


async def test_a_client_that_leaves_before_it_has_read_what_it_is_asked_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, is_in_the_way = Outbox.flush, asyncio.Event()

    async def noted(outbox: Outbox) -> None:
        is_in_the_way.set()
        await flush(outbox)

    monkeypatch.setattr(Outbox, "flush", noted)
    command = [sys.executable, "-I", "-S", str(ODD), "chatty", str(tmp_path)]
    meta = modern_meta(CAN, logLevel="debug")
    call = request("tools/call", {"name": "echo", "arguments": {}, "_meta": meta})
    async with doorway(command=command) as door:
        async with door.site.streamed(call, mirrored(call)):
            await asyncio.wait_for(is_in_the_way.wait(), WAIT_S)  # what it does not read
            assert not door.suspended
        await door.none_suspended()
