"""A server that fails repeatedly: backoff between starts, clear errors, and recovery."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from portico.core.state.report import failed
from portico.edge.transport.http_app import HttpApp
from portico.library.chain.endpoint import ChainEndpoint
from portico.upstream.connections.backoff import BackoffLimits
from portico.upstream.connections.handshake import HandshakeLimits
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.upstream import Upstream
from portico.upstream.wires.child_wire import Command
from tests.rigs.running import bad
from tests.support.clock import Clock
from tests.support.messages import initialize, modern
from tests.support.web import Site, serving, tool_call
from tests.wrap.faults import Steady, Wrap, bounded, until

NAME = "the ill one"
_ids = itertools.count(1)
_SWITCH = (
    'echo . >> "$1/starts"; '
    'if [ -e "$1/down" ]; then echo "no API key" >&2; exit 3; fi; '
    'shift; exec "$@"'
)


class Switch:
    """A command that counts its starts, and fails while it is disabled."""

    def __init__(self, folder: Path, *mode: str) -> None:
        self._down, self._starts = folder / "down", folder / "starts"
        self.argv = ("sh", "-c", _SWITCH, "sh", str(folder), *bad("stdio", *(mode or ("plain",))))

    def off(self) -> None:
        self._down.touch()

    def on(self) -> None:
        self._down.unlink()

    @property
    def starts(self) -> int:
        return len(self._starts.read_text().split()) if self._starts.exists() else 0


@asynccontextmanager
async def doorway(switch: Switch, backoff: BackoffLimits, **plan: Any) -> AsyncIterator[Site]:
    """A doorway before the command, whose patience is short enough for a test."""
    upstream = Upstream(
        Command(switch.argv, title=NAME),
        UpstreamPolicy(backoff=backoff, sharing="shared", **plan),
    )
    try:
        async with serving(HttpApp(ChainEndpoint(upstream, [upstream], [], failed))) as site:
            yield site
    finally:
        await upstream.close()


async def call(site: Site, session: dict[str, str], tool: str, **arguments: Any) -> dict[str, Any]:
    """The one answer to a call."""
    return answer_in(await site.post(tool_call(tool, next(_ids), **arguments), session))


def answer_in(response: httpx2.Response) -> dict[str, Any]:
    """The one answer that a response carries, as its body or on a stream."""
    if response.headers["content-type"].startswith("text/event-stream"):
        lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: {")]
        assert len(lines) == 1
        answer: dict[str, Any] = json.loads(lines[0])
    else:
        answer = response.json()
    return answer


def kind(answer: dict[str, Any]) -> str:
    """How a call ended."""
    if "result" in answer:
        return "answered"
    assert NAME in answer["error"]["message"]
    found: str = answer["error"]["data"]["kind"]
    return found


@pytest.mark.slow
@pytest.mark.xdist_group("faults-stdio")
def test_a_server_that_cannot_start_is_left_alone_and_stays_listed(tmp_path: Path) -> None:
    """With the pauses as they are for everybody: a second or two until the breaker opens."""
    switch = Switch(tmp_path)
    with (
        Wrap(tmp_path / "home", "--name", NAME, "--", *switch.argv) as wrap,
        wrap.client() as client,
    ):
        assert client.said("echo", text="x") == "x"
        listed = client.ask("tools/list")["result"]
        assert switch.starts == 1
        switch.off()
        with bounded(wrap):
            seen = [client.call("bad", mode="killed")]
            while kind(seen[-1]) != "breaker":
                seen.append(client.call("echo", text="x"))
                assert client.ask("tools/list")["result"] == listed
        ends = [kind(answer) for answer in seen]
        assert ends.count("exited") == 5  # the number that opens the breaker
        assert set(ends) - {"backoff"} == {"exited", "breaker"}
        assert switch.starts == 1 + 4
        last = seen[ends.index("exited", 1)]["error"]
        assert last["data"]["exit_code"] == 3
        assert "no API key" in last["message"]
        assert last["data"]["stderr"] == "no API key"
        assert 0 < seen[-1]["error"]["data"]["retry_after_s"] <= 15
        assert "; last failure: exited with code 3" in seen[-1]["error"]["message"]
        for _ in range(50):
            assert kind(client.call("echo", text="x")) == "breaker"
        assert switch.starts == 5


@pytest.mark.slow
@pytest.mark.xdist_group("faults-stdio")
def test_no_number_of_new_clients_makes_a_storm_of_starts(tmp_path: Path) -> None:
    """Each has a way of its own, and nothing is known of the server yet."""
    switch = Switch(tmp_path)
    switch.off()
    options = ("--name", NAME, "--sharing", "per-client")
    with Wrap(tmp_path / "home", *options, "--", *switch.argv) as wrap:
        ends = []
        for _ in range(30):
            with wrap.client() as client:
                ends.append(kind(client.hello))
        assert ends == ["exited"] * 5 + ["breaker"] * 25
        assert switch.starts == 5
        assert until(lambda: wrap.kin() <= 1)  # the guardian alone is left


async def test_before_a_long_pause_a_call_fails_at_once_and_starts_nothing(tmp_path: Path) -> None:
    switch = Switch(tmp_path)
    async with doorway(switch, BackoffLimits(first_pause_s=60, max_pause_s=60)) as site:
        session = await site.session()
        switch.off()
        assert kind(await call(site, session, "bad", mode="killed")) == "exited"
        assert kind(await call(site, session, "echo", text="x")) == "exited"
        for _ in range(5):
            answer = await call(site, session, "echo", text="x")
            assert kind(answer) == "backoff"
            assert "; last failure: exited with code 3" in answer["error"]["message"]
            assert 20 < answer["error"]["data"]["retry_after_s"] <= 60
        assert switch.starts == 2


@pytest.mark.slow
async def test_the_breaker_closes_when_the_server_works_again(tmp_path: Path, clock: Clock) -> None:
    switch = Switch(tmp_path)
    backoff = BackoffLimits(first_pause_s=0.01, max_pause_s=0.02, failures=3, open_s=60)
    async with doorway(switch, backoff) as site:
        session = await site.session()
        assert kind(await call(site, session, "echo", text="x")) == "answered"
        switch.off()
        ends = [kind(await call(site, session, "bad", mode="killed"))]
        while ends[-1] != "breaker":
            ends.append(kind(await call(site, session, "echo", text="x")))
        assert ends == ["exited"] * 3 + ["breaker"]
        # One may try when the time is up, fails, and it is open for as long again.
        await clock.advance(60)
        both = await asyncio.gather(*(call(site, session, "echo", text="x") for _ in range(2)))
        assert sorted(map(kind, both)) == ["breaker", "exited"]
        assert kind(await call(site, session, "echo", text="x")) == "breaker"
        switch.on()
        await clock.advance(60)
        for _ in range(3):
            assert kind(await call(site, session, "echo", text="x")) == "answered"
        assert switch.starts == 1 + 2 + 1 + 1


async def test_a_modern_client_is_told_the_same_as_a_legacy_one(tmp_path: Path) -> None:
    """Its calls last over several requests, and take another way to a legacy server."""
    switch = Switch(tmp_path)
    async with doorway(switch, BackoffLimits(), limits=HandshakeLimits(call_s=1.0)) as site:

        async def modern_answer(tool: str, **arguments: Any) -> dict[str, Any]:
            params = {"name": tool, "arguments": arguments}
            response = await site.modern(modern("tools/call", params, id=next(_ids)))
            return answer_in(response)

        before = asyncio.all_tasks()
        for mode, way in (("killed", "exited"), ("silent", "timeout"), ("deep", "garbage")):
            assert kind(await modern_answer("echo", text="x")) == "answered"
            assert kind(await modern_answer("bad", mode=mode)) == way
        assert kind(await modern_answer("echo", text="x")) == "answered"
        assert switch.starts == 2
        assert len(asyncio.all_tasks() - before) < 10  # none is left of the calls


@pytest.mark.slow
async def test_calls_that_are_not_answered_in_time_open_the_breaker(
    tmp_path: Path, clock: Clock
) -> None:
    limits = HandshakeLimits(call_s=0.5)
    backoff = BackoffLimits(failures=3, open_s=60)
    async with doorway(Switch(tmp_path), backoff, limits=limits) as site:
        session = await site.session()
        ends = [kind(await call(site, session, "bad", mode="silent")) for _ in range(4)]
        assert ends == ["timeout"] * 3 + ["breaker"]
        await clock.advance(60)
        assert kind(await call(site, session, "echo", text="x")) == "answered"
        assert kind(await call(site, session, "echo", text="x")) == "answered"


@pytest.mark.slow
async def test_calls_that_hang_at_the_same_time_do_not_open_the_breaker(tmp_path: Path) -> None:
    backoff = BackoffLimits(failures=3)
    async with doorway(Switch(tmp_path), backoff, limits=HandshakeLimits(call_s=0.5)) as site:
        session = await site.session()
        for _ in range(2):
            hanging = (call(site, session, "bad", mode="silent") for _ in range(6))
            assert set(map(kind, await asyncio.gather(*hanging))) == {"timeout"}
        assert kind(await call(site, session, "echo", text="x")) == "answered"


async def test_a_client_in_a_hurry_does_not_open_the_breaker_for_others(tmp_path: Path) -> None:
    async with doorway(Switch(tmp_path), BackoffLimits(failures=3)) as site:
        session, other = await site.session(), await site.session()
        hurried = tool_call("slow", ms=60_000)
        hurried["params"]["_meta"] = {"portico/timeoutS": 0.01}
        for _ in range(4):
            assert "within 0.01 s" in (await site.post(hurried, session)).text
        assert kind(await call(site, other, "echo", text="x")) == "answered"


async def test_a_server_that_works_from_its_third_start_on_is_waited_for(tmp_path: Path) -> None:
    switch = Switch(tmp_path, "exits-until", str(tmp_path / "counter"), "3")
    backoff = BackoffLimits(first_pause_s=0.01, max_pause_s=0.05)
    async with doorway(switch, backoff) as site:
        for _ in range(2):
            response = await site.post(initialize())
            assert kind(response.json()) == "exited"
            assert "no API key" in response.json()["error"]["message"]
        session = await site.session()
        assert kind(await call(site, session, "echo", text="x")) == "answered"
        assert switch.starts == 3


@pytest.mark.slow
@pytest.mark.xdist_group("faults-stdio")
def test_one_clients_dying_children_do_not_stop_another(tmp_path: Path) -> None:
    """While the other's calls are answered, the breaker stays closed."""
    switch = Switch(tmp_path)
    options = ("--name", NAME, "--sharing", "per-client")
    with (
        Wrap(tmp_path / "home", *options, "--", *switch.argv) as wrap,
        wrap.client() as client,
        wrap.client() as other,
        Steady(other),
    ):
        ends = []
        for _ in range(6):
            ends.append(kind(client.call("bad", mode="killed")))
            assert until(lambda: kind(client.call("echo", text="x")) == "answered")
        assert ends == ["exited"] * 6
