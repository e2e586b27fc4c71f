"""Replicas behind a load balancer restart one after the other, and no call fails."""

import asyncio
import itertools
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.haproxy import Haproxy, haproxy
from tests.support.messages import initialize
from tests.support.running import free_port
from tests.support.soak import times
from tests.support.web import HEADERS, WAIT_S, mirrored, modern_call, tool_call

PORTICO = (sys.executable, "-P", "-m", "portico")
CLIENTS = 3
"""Of each kind."""

SERVER = """
import asyncio
from portico import Server

server = Server("replica")

@server.tool
async def wait(ms: float) -> str:
    await asyncio.sleep(ms / 1000)
    return "done"
"""


class Replica:
    """One process behind the load balancer, always on the same port."""

    def __init__(self, name: str, command: tuple[str, ...], front: int) -> None:
        self.name = name
        self.port = free_port()
        options = ("--http", f"127.0.0.1:{self.port}", "--auth", "none")
        verb, *what = command
        # Clients send the load balancer's host and port.
        self._process: asyncio.subprocess.Process | None = None
        self._command = (*PORTICO, verb, *options, "--allow-host", f"127.0.0.1:{front}", *what)

    async def start(self) -> None:
        """Start it, and wait until it serves: haproxy assumes that a new server is healthy."""
        self._process = process = await asyncio.create_subprocess_exec(*self._command, stderr=PIPE)
        assert process.stderr is not None
        async with asyncio.timeout(WAIT_S):
            while b"serving" not in (line := await process.stderr.readline()):
                assert line, "it ended at once"

    async def stop(self) -> int:
        """Stop it as a supervisor does, and return its exit code."""
        assert self._process is not None
        self._process.terminate()
        return await asyncio.wait_for(self._process.wait(), WAIT_S)

    async def restart(self, before: Haproxy) -> None:
        assert await self.stop() == 0
        await before.becomes(self.name, "DOWN")
        await self.start()
        await before.becomes(self.name, "UP")

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


Call = Callable[[int], Awaitable[httpx2.Response]]


class Load:
    """Clients that call without a pause, and the outcomes of their calls."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/mcp"
        self.outcomes: Counter[str] = Counter()
        self.sessions = 0

    async def run(self, number: int, kind: str) -> None:
        async with httpx2.AsyncClient(timeout=WAIT_S) as client:
            call = self._modern(client) if kind == "modern" else self._in_session(client)
            # Some calls are slow, so that every stop finds one running.
            for turn in itertools.count(number):
                try:
                    response = await call(400 if turn % 20 == 0 else 20)
                    done = response.status_code == 200 and "done" in response.text
                    outcome = "done" if done else f"{response.status_code} {response.text}"
                except httpx2.HTTPError as error:
                    outcome = repr(error)
                self.outcomes[f"{kind}: {outcome}"] += 1

    def _modern(self, client: httpx2.AsyncClient) -> Call:
        async def call(ms: int) -> httpx2.Response:
            message = modern_call("wait", ms=ms)
            return await client.post(self._url, json=message, headers=HEADERS | mirrored(message))

        return call

    def _in_session(self, client: httpx2.AsyncClient) -> Call:
        held: dict[str, str] = {}

        async def post(message: dict[str, Any]) -> httpx2.Response:
            return await client.post(self._url, json=message, headers=HEADERS | held)

        async def begin() -> httpx2.Response:
            held.clear()
            response = await post(initialize("2025-11-25"))
            if response.status_code == 200:
                self.sessions += 1
                held["mcp-session-id"] = response.headers["mcp-session-id"]
                held["mcp-protocol-version"] = "2025-11-25"
                await post({"jsonrpc": "2.0", "method": "notifications/initialized"})
            return response

        async def call(ms: int) -> httpx2.Response:
            if not held and (refused := await begin()).status_code != 200:
                return refused
            response = await post(tool_call("wait", ms=ms))
            if response.status_code != 404:
                return response
            # The session ended with its process: a client "MUST start a new session".
            if (refused := await begin()).status_code != 200:
                return refused
            return await post(tool_call("wait", ms=ms))

        return call


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.xdist_group("rolling")
async def test_no_call_fails_while_replicas_behind_haproxy_are_restarted(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    front = free_port()
    replicas = [
        Replica("r0", ("run", str(script)), front),
        Replica("r1", ("wrap", "--", *PORTICO, "run", str(script)), front),
    ]
    rounds = times(3, 20)
    # A busy machine delays checks: those of the short form have four times as long as they need
    # to be done before a replica leaves.
    check_ms = times(500, 2000)
    ports = [one.port for one in replicas]
    async with AsyncExitStack() as stack:
        for one in replicas:
            stack.push_async_callback(one.kill)
            await one.start()
        balancer = haproxy(tmp_path, front, ports, check_ms=check_ms)
        before = await stack.enter_async_context(balancer)
        load = Load(before.url)
        async with asyncio.TaskGroup() as clients:
            running = [
                clients.create_task(load.run(number, kind))
                for number in range(CLIENTS)
                for kind in ("modern", "session")
            ]
            for turn in range(rounds):
                await replicas[turn % 2].restart(before)
            for task in running:
                task.cancel()

    done = {"modern: done", "session: done"}
    failed = {what: many for what, many in load.outcomes.items() if what not in done}
    calls, broken = load.outcomes.total(), sum(failed.values())
    record_property("soak", f"{rounds} restarts, {calls} calls, {broken} failed")
    assert not failed
    assert set(load.outcomes) == done
    assert load.sessions > CLIENTS  # some outlived their process, and were started again
