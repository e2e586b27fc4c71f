"""How long an instance of a component lives: for one call, or for the session of one client."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from portico.core.state.client_sessions import SESSION_KEY
from portico.edge.client.client import Client as ConnectedClient
from portico.library.wasm.calls import MAX_SESSIONS
from tests.library.wasm.hosting import WAIT_S, attacking_guest, home, hosted, said
from tests.library.wasm.wat_guests import SLEEPER, written
from tests.serve.components import Workshop
from tests.serve.gateway import Gateway
from tests.wrap.faults import portico_command, until
from tests.wrap.talk import Client, Pipes, web

pytestmark = pytest.mark.slow


@contextmanager
def serving(folder: Path, instance: str) -> Iterator[Gateway]:
    shutil.copy(attacking_guest(), folder / "guest.wasm")
    entry = {"path": "guest.wasm", "instance": instance}
    config = Workshop(folder).write({"guest": entry})
    with Gateway(home(folder), config) as gateway:
        assert until(lambda: all(one["tools"] for one in gateway.status().values()))
        yield gateway


def count(client: Client, name: str = "guest__count") -> str:
    """Count one more in the guest; what it has counted so far."""
    called = json.loads(client.ask("tools/call", {"name": name, "arguments": {}}))
    return str(called["content"][0]["text"])


def test_each_session_has_an_instance_of_its_own(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "session") as gateway,
        web(gateway.port) as one,
        web(gateway.port) as two,
    ):
        assert [count(one), count(one), count(two)] == ["1", "2", "1"]
        assert [count(one), count(two)] == ["3", "2"]


def test_modern_clients_without_a_session_share_no_instance(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "session") as gateway,
        web(gateway.port, modern=True) as one,
        web(gateway.port, modern=True) as two,
    ):
        assert [count(one), count(one), count(two)] == ["1", "1", "1"]


def test_a_client_over_stdio_has_one_session_in_either_era(tmp_path: Path) -> None:
    shutil.copy(attacking_guest(), tmp_path / "guest.wasm")
    config = Workshop(tmp_path).write({"guest": {"path": "guest.wasm", "instance": "session"}})
    for command in (("serve", "--alone", "--expose", "all"), ("run", "guest")):
        argv = portico_command(home(tmp_path), *command, "--config", str(config))
        for modern in (False, True):
            with Pipes(tmp_path, words=argv, modern=modern) as client:
                if not modern:
                    client.hello()
                name = "count" if command[0] == "run" else "guest__count"
                assert [count(client, name), count(client, name)] == ["1", "2"], (command, modern)


def test_calls_with_instances_of_their_own_share_nothing(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "call") as gateway,
        web(gateway.port) as one,
        web(gateway.port) as two,
    ):
        assert [count(one), count(one), count(two)] == ["1", "1", "1"]


async def counted(client: ConnectedClient, session: str) -> str:
    """Count one more in the instance of a session, as a gateway names it."""
    params = {"name": "count", "arguments": {}, "_meta": {SESSION_KEY: session}}
    return str((await client.request("tools/call", params))["content"][0]["text"])


async def test_sessions_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async with hosted(
        attacking_guest(), tmp_path, instance="session", time_s=10 * WAIT_S
    ) as client:
        assert [await counted(client, "a") for _ in range(2)] == ["1", "2"]
        params = {"name": "loop", "arguments": {}, "_meta": {SESSION_KEY: "b"}}
        loop = asyncio.create_task(client.request("tools/call", params))
        assert [await counted(client, one) for one in ("a", "c")] == ["3", "1"]
        behind = asyncio.create_task(counted(client, "b"))
        loop.cancel()
        assert await behind == "1"


async def test_a_stuck_guest_costs_every_session_its_instance_and_no_call(tmp_path: Path) -> None:
    source = written(SLEEPER, tmp_path)
    async with hosted(source, tmp_path, instance="session", time_s=1.0) as client:
        asleep = asyncio.create_task(said(client, "sleep", ms=600_000))
        assert await said(client, "add", a=1, b=2) == "3"
        assert "waiting in a function of WASI" in await asleep
        assert await said(client, "add", a=3, b=4) == "7"


async def test_the_sessions_used_least_recently_lose_their_instances(tmp_path: Path) -> None:
    async with hosted(attacking_guest(), tmp_path, instance="session") as client:
        sessions = [f"s{number}" for number in range(MAX_SESSIONS)]
        assert {await counted(client, one) for one in sessions} == {"1"}
        assert await counted(client, sessions[0]) == "2"
        assert await counted(client, "another") == "1"
        assert await counted(client, sessions[0]) == "3"
        assert await counted(client, sessions[1]) == "1"


def test_a_component_with_a_process_for_each_client_keeps_them_apart(tmp_path: Path) -> None:
    workshop = Workshop(tmp_path)
    workshop.file("counter.py", COUNTER)
    config = workshop.write({"guest": {"path": "counter.py", "sharing": "per-client"}})
    with (
        Gateway(home(tmp_path), config) as gateway,
        web(gateway.port) as one,
        web(gateway.port) as two,
    ):
        assert [count(one), count(one), count(two)] == ["1", "2", "1"]


COUNTER = '''
from portico import Server

server = Server("counter")
counts = [0]


@server.tool
def count() -> int:
    """Count one more."""
    counts[0] += 1
    return counts[0]
'''
