"""Serving a server with a lifespan, in real processes: its start, its end, and signals between."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from portico import Context, Server
from tests.support.backoff import until
from tests.support.messages import initialize, modern, request
from tests.support.running import (
    WAIT_S,
    Child,
    StdioServer,
    free_port,
    http_server,
    portico_run,
)
from tests.support.web import HEADERS, mirrored, serving

SERVER = """
import asyncio, os, sys, contextlib
from functools import partial
from portico import Context, Server

print = partial(print, file=sys.stderr, flush=True)

@contextlib.asynccontextmanager
async def lifespan(server):
    print("starting")
    how = os.environ.get("LIFESPAN", "")
    if how == "fails":
        raise ConnectionError("no database")  # the line
    if how == "hangs":
        await asyncio.Event().wait()
    if how == "slow":
        await asyncio.sleep(0.02)
    try:
        yield {"answer": 42}
    finally:
        print("closing")
        if how == "fails to close":
            raise ConnectionError("cannot flush")

server = Server("db", lifespan=lifespan)

@server.tool
async def value(context: Context) -> int:
    return context.lifespan["answer"]

@server.tool
async def stay(context: Context) -> str:
    print("staying")
    try:
        await asyncio.Event().wait()
    finally:
        print(f"left with {context.lifespan}")
"""
LINE = next(n for n, line in enumerate(SERVER.splitlines(), 1) if "# the line" in line)


@pytest.fixture
def component(tmp_path: Path) -> Path:
    file = tmp_path / "db.py"
    file.write_text(SERVER)
    return file


def run(
    component: Path, *options: str, how: str = "", send: tuple[Any, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run it with these messages as its input, and close that."""
    return subprocess.run(
        portico_run(component, *options),
        input="".join(json.dumps(message) + "\n" for message in send),
        env={**os.environ, "LIFESPAN": how},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


@contextlib.contextmanager
def started(component: Path, *options: str) -> Iterator[Child]:
    """It, over stdio unless the options say otherwise."""
    if not options:
        with StdioServer(component) as client:
            yield client
        return
    child = Child(portico_run(component, *options))
    try:
        yield child
    finally:
        child.stop()


def await_stderr(child: Child, word: str) -> None:
    while word not in child.stderr():
        assert child.process.poll() is None, child.stderr()
        time.sleep(0.01)


CALL = modern("tools/call", {"name": "value"}, id=7)


@pytest.mark.parametrize("how", ["", "slow"])
def test_requests_that_arrive_before_it_has_started_are_answered(component: Path, how: str) -> None:
    ran = run(component, how=how, send=(CALL,))
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["result"]["structuredContent"] == {"result": 42}
    assert ran.stderr.split() == ["starting", "closing"]


def test_a_legacy_client_that_sends_all_at_once_is_answered_in_order(component: Path) -> None:
    messages = (initialize(), request("tools/call", {"name": "value"}, id=1))
    ran = run(component, how="slow", send=messages)
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [answer["id"] for answer in found] == [0, 1]
    assert found[1]["result"]["structuredContent"] == {"result": 42}


def test_a_start_that_fails_ends_the_command_with_the_users_line(component: Path) -> None:
    ran = run(component, how="fails")
    assert ran.returncode == 1
    why = f"cannot start db: ConnectionError: no database ({component}:{LINE})"
    first, second, trace, file, *_, last = ran.stderr.splitlines()
    assert [first, second] == ["starting", f"portico: {why}"]
    assert trace == "Traceback (most recent call last):"
    assert file == f'  File "{component}", line {LINE}, in lifespan'
    assert last == "ConnectionError: no database"


def test_a_client_gets_the_reason_of_a_failed_start(component: Path) -> None:
    ran = run(component, how="fails", send=(initialize(),))
    assert ran.returncode == 1
    assert (
        "cannot start db: ConnectionError: no database"
        in json.loads(ran.stdout)["error"]["message"]
    )


def test_a_start_that_fails_over_http_ends_the_command_too(component: Path) -> None:
    ran = run(component, "--http", "0", "--auth", "none", how="fails")
    assert ran.returncode == 1
    assert f"cannot start db: ConnectionError: no database ({component}:{LINE})" in ran.stderr
    assert "serving" not in ran.stderr


@pytest.mark.parametrize("options", [(), ("--http", "0", "--auth", "none")])
def test_an_end_that_fails_is_reported_and_the_exit_stays_clean(
    component: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIFESPAN", "fails to close")
    with started(component, *options) as child:
        await_stderr(child, "serving" if options else "starting")
        assert child.stop() == 0
    assert "the lifespan of db failed to close" in child.stderr()
    assert "ConnectionError: cannot flush" in child.stderr()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("options", [(), ("--http", "0", "--auth", "none")])
def test_a_signal_interrupts_a_start_that_hangs(
    component: Path,
    options: tuple[str, ...],
    number: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LIFESPAN", "hangs")
    with started(component, *options) as child:
        await_stderr(child, "starting")
        child.process.send_signal(number)
        assert child.ended() == 0
    assert child.stderr() == "starting\n"


def test_a_signal_refuses_the_requests_that_wait_for_a_start(
    component: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIFESPAN", "hangs")
    with StdioServer(component, watched=False) as client:
        client.send(initialize())
        await_stderr(client, "starting")
        client.process.terminate()
        assert client.answer_to(0)["error"]["message"] == "the server is shutting down"


def test_a_client_that_leaves_interrupts_a_start_that_hangs(
    component: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIFESPAN", "hangs")
    with StdioServer(component) as client:
        await_stderr(client, "starting")
        client.close_input()
        assert client.ended() == 0


def test_a_cancelled_handler_can_still_use_the_value(component: Path) -> None:
    ran = run(component, "--drain", "0", send=(modern("tools/call", {"name": "stay"}),))
    assert ran.returncode == 0
    assert ran.stderr.splitlines() == [
        *("starting", "staying", "left with {'answer': 42}", "closing")
    ]


def test_over_http_it_is_started_once_for_all_clients(component: Path) -> None:
    with http_server(component) as server:
        for _ in range(2):
            connection = server.connection()
            connection.request("POST", "/mcp", json.dumps(CALL), HEADERS | mirrored(CALL))
            answer = json.loads(connection.getresponse().read())
            assert answer["result"]["structuredContent"] == {"result": 42}
            connection.close()
        assert server.stop() == 0
        assert server.stderr().count("starting") == server.stderr().count("closing") == 1


def lived(events: list[str], fails: bool = False) -> Server:
    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncGenerator[str, None]:
        events.append("start")
        if fails:
            raise ConnectionError("no database")
        yield "connected"
        events.append("close")

    server = Server("db", lifespan=lifespan)

    @server.tool
    async def value(context: Context) -> str:
        """Show the value."""
        return str(context.lifespan)

    return server


async def test_uvicorn_starts_and_closes_it_with_the_app() -> None:
    events: list[str] = []
    port = free_port()
    app = lived(events).asgi()
    config = uvicorn.Config(app, port=port, lifespan="on", log_config=None)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    assert events == ["start"]
    async with serving(app) as site:  # a client of ours, on another port
        answer = await site.modern(CALL)
        assert answer.json()["result"]["content"][0]["text"] == "connected"
    server.should_exit = True
    await task
    assert events == ["start", "close"]


async def test_an_asgi_server_gets_the_reason_of_a_failed_start() -> None:
    sent: list[Any] = []
    events = iter([{"type": "lifespan.startup"}])

    async def receive() -> Any:
        return next(events)

    async def send(message: Any) -> None:
        sent.append(message)

    await lived([], fails=True).asgi()({"type": "lifespan"}, receive, send)
    (failed,) = sent
    assert failed["type"] == "lifespan.startup.failed"
    assert failed["message"].startswith("cannot start db: ConnectionError: no database (")


ORDERED = """
import sys, contextlib
from portico import Server

@contextlib.asynccontextmanager
async def lifespan(server):
    print("start", server.name, file=sys.stderr)
    if server.name == "failing":
        raise ConnectionError("no database")
    yield
    print("close", server.name, file=sys.stderr)

server = Server("NAME", lifespan=lifespan)
server.add_tool({"name": "NAME", "inputSchema": {"type": "object"}}, lambda arguments: "")
"""


@pytest.mark.parametrize("last", ["c", "failing"])
def test_several_components_start_in_order_and_close_in_reverse_order(
    tmp_path: Path, last: str
) -> None:
    names = ("a", "b", last)
    for name in names:
        (tmp_path / f"{name}.py").write_text(ORDERED.replace("NAME", name))
    first, *others = (tmp_path / f"{name}.py" for name in names)
    ran = run(first, *map(str, others), send=(modern("tools/call", {"name": "b"}, id=7),))
    assert json.loads(ran.stdout)["id"] == 7
    closed = ["close b", "close a"]
    said = ran.stderr.splitlines()
    if last == "failing":
        assert ran.returncode == 1
        assert said[:5] == ["start a", "start b", "start failing", *closed]
        why = "portico: cannot start failing: ConnectionError: no database ("
        assert said[5].startswith(f"{why}{others[-1]}:9)")
    else:
        assert ran.returncode == 0, ran.stderr
        assert said == ["start a", "start b", "start c", "close c", *closed]
