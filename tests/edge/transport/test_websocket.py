"""The WebSocket example: real clients on a real process, and everything that can go wrong."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin, Subprotocol

from tests.support.messages import initialize, modern, request
from tests.support.running import WAIT_S
from tests.support.websocket import MCP, WebSocketServer, websocket_server

pytestmark = pytest.mark.slow

STAGE = '''
import asyncio, json, os
from portico import Context, Server

server = Server("stage")
running, cancelled = 0, 0

@server.tool
async def wait(context: Context) -> str:
    """Report progress, then wait until cancelled."""
    global running, cancelled
    running += 1
    await context.progress(1)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled += 1
        raise
    finally:
        running -= 1
    return ""

@server.tool
async def cancellations() -> int:
    """How many waits were cancelled, once none runs any more."""
    while running:
        await asyncio.sleep(0.01)
    return cancelled

@server.tool
async def hold(path: str, context: Context, size: int = 4) -> str:
    """Report progress, then wait for a file, and return a text."""
    await context.progress(1)
    while not os.path.exists(path):
        await asyncio.sleep(0.01)
    return "h" * size

@server.tool
async def whose(name: str, context: Context) -> str:
    """Report the name as progress, and return it."""
    for step in range(20):
        await context.progress(step, message=name)
        await asyncio.sleep(0)
    return name

@server.tool
async def roots(context: Context) -> str:
    """Ask the client."""
    return json.dumps(await context.roots())

@server.tool
async def flood(context: Context) -> str:
    """Send more than anyone should keep."""
    for step in range(300):
        await context.progress(step, message="x" * 1_000_000)
    return "sent"

@server.tool
def large(size: int) -> str:
    """Return a long text."""
    return "x" * size
'''


@pytest.fixture(scope="module")
def component(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("websocket") / "stage.py"
    file.write_text(STAGE)
    return file


@pytest.fixture(scope="module")
def server(component: Path) -> Iterator[WebSocketServer]:
    with websocket_server(component) as server:
        yield server


class Client:
    """One client of the package `websockets`."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, *messages: Any) -> None:
        for message in messages:
            await self.socket.send(json.dumps(message))

    async def next(self) -> Any:
        async with asyncio.timeout(WAIT_S):
            frame = await self.socket.recv()
        assert isinstance(frame, str), "messages are text frames"
        return json.loads(frame)

    async def ask(self, message: Any) -> Any:
        await self.send(message)
        return await self.next()

    async def closed(self) -> int | None:
        """Wait until the server closes the connection; its code."""
        async with asyncio.timeout(WAIT_S):
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await self.socket.recv()
        code: int | None = self.socket.close_code
        return code


@contextlib.asynccontextmanager
async def client(server: WebSocketServer, **options: Any) -> AsyncIterator[Client]:
    options = {"subprotocols": [MCP], "proxy": None, "max_size": None, **options}
    async with connect(server.url, **options) as socket:
        yield Client(socket)


def call(tool: str, id: Any = 1, progress: Any = None, **arguments: Any) -> dict[str, Any]:
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if progress is not None:
        params["_meta"] = {"progressToken": progress}
    return request("tools/call", params, id)


def text_of(answer: Any) -> str:
    text: str = answer["result"]["content"][0]["text"]
    return text


async def test_both_eras_speak_on_one_connection(server: WebSocketServer) -> None:
    async with client(server) as one:
        assert one.socket.subprotocol == "mcp"
        listed = await one.ask(modern("tools/list", id="first"))
        assert listed["id"] == "first"
        assert "ttlMs" in listed["result"]
        assert (await one.ask(initialize("2025-06-18")))["result"][
            "protocolVersion"
        ] == "2025-06-18"
        assert text_of(await one.ask(call("large", size=3))) == "xxx"


async def test_questions_are_answered_over_the_socket(server: WebSocketServer) -> None:
    async with client(server) as one:
        await one.ask(initialize(capabilities={"roots": {}}))
        question = await one.ask(call("roots"))
        assert question["method"] == "roots/list"
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"roots": []}}
        assert text_of(await one.ask(answer)) == "[]"


async def test_clients_at_once_use_the_same_ids_and_get_their_own_messages(
    server: WebSocketServer,
) -> None:
    async def use(name: str) -> tuple[set[str], str]:
        async with client(server) as one:
            await one.ask(initialize())
            await one.send(call("whose", progress=1, name=name))
            names = set()
            while "id" not in (message := await one.next()):
                names.add(message["params"]["message"])
            return names, text_of(message)

    names = [f"client {n}" for n in range(8)]
    assert await asyncio.gather(*map(use, names)) == [({name}, name) for name in names]


async def test_a_cancelled_call_is_stopped_and_others_go_on(component: Path) -> None:
    with websocket_server(component) as server:
        async with client(server) as one:
            await one.ask(initialize())
            assert "method" in await one.ask(call("wait", progress=1))
            cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}
            await one.send({"jsonrpc": "2.0", **cancel})
            assert text_of(await one.ask(call("cancellations", id=1))) == "1"


@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_a_client_that_vanishes_has_its_calls_cancelled(component: Path, how: str) -> None:
    with websocket_server(component) as server:
        async with client(server) as other:
            await other.ask(initialize())
            async with client(server) as one:
                await one.ask(initialize())
                assert "method" in await one.ask(call("wait", progress=1))
                if how == "reset":
                    one.socket.transport.abort()
            assert text_of(await other.ask(call("cancellations"))) == "1"


@pytest.mark.parametrize(
    "frame", ["", "{", "no json", b"\x00\xff", b"\x89PNG", '"\\ud800"', "[" * 5000], ids=repr
)
async def test_a_broken_message_gets_an_error_and_the_connection_stays(
    server: WebSocketServer, frame: str | bytes
) -> None:
    async with client(server) as one:
        await one.ask(initialize())
        await one.socket.send(frame)
        assert (await one.next())["error"]["code"] in (-32700, -32600)
        assert (await one.ask(request("ping", id=5))) == {"jsonrpc": "2.0", "id": 5, "result": {}}


async def test_text_that_is_not_utf_8_gets_an_error(server: WebSocketServer) -> None:
    async with client(server) as one:
        await one.socket.send(b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', text=True)
        assert (await one.next())["error"]["code"] == -32700


async def test_a_message_in_fragments_is_one_message(server: WebSocketServer) -> None:
    async with client(server) as one:
        whole = json.dumps(request("ping", id=7))
        await one.socket.send([whole[:10], whole[10:20], whole[20:]])
        assert (await one.next())["id"] == 7


async def test_a_message_over_the_limit_gets_an_error_by_its_id(server: WebSocketServer) -> None:
    async with client(server) as one:
        await one.ask(initialize())
        refused = await one.ask(call("large", id="big", size=1, more="x" * 5_000_000))
        assert (refused["id"], refused["error"]["code"]) == ("big", -32600)
        assert len(text_of(await one.ask(call("large", size=5_000_000)))) == 5_000_000


async def test_a_frame_that_nobody_should_keep_ends_its_own_connection_only(
    server: WebSocketServer,
) -> None:
    async with client(server) as one, client(server) as other:
        text, length, mask = b"\x81\xff", (17_000_000).to_bytes(8), bytes(4)
        one.socket.transport.write(text + length + mask)  # the head of the frame says enough
        assert await one.closed() == 1009
        assert (await other.ask(request("ping")))["id"] == 1


async def test_a_handler_waits_for_a_client_that_does_not_read(component: Path) -> None:
    with websocket_server(component) as server:
        async with client(server, max_queue=1) as slow, client(server) as other:
            await slow.ask(initialize())
            await other.ask(initialize())
            await slow.send(call("flood", progress=1))
            before = server.rss_kib()
            for id in range(200):  # the server has had every chance to send
                await other.ask(call("large", id=id, size=1000))
            assert server.rss_kib() - before < 100_000, "of 300 MB"
            steps = 0
            while "id" not in (message := await slow.next()):
                steps += 1
            assert (steps, text_of(message)) == (300, "sent")


async def test_a_client_that_leaves_too_much_unread_is_disconnected(
    component: Path, tmp_path: Path
) -> None:
    with websocket_server(component) as server:
        async with client(server, max_queue=1) as slow, client(server) as other:
            await slow.ask(initialize())
            await other.ask(initialize())
            for id in range(40):
                await slow.send(call("hold", id, id, path=str(tmp_path / "go"), size=2_000_000))
                assert (await slow.next())["method"] == "notifications/progress"
            await slow.send(call("wait", "last", progress=1))
            assert (await slow.next())["method"] == "notifications/progress"
            (tmp_path / "go").touch()  # 80 MB at once
            assert text_of(await other.ask(call("cancellations"))) == "1"
            assert await slow.closed() in (1006, 1008)


async def test_a_web_page_cannot_connect(server: WebSocketServer) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with client(server, origin=Origin("https://example.com")):
            pass
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("offered", [None, [Subprotocol("chat")]])
async def test_a_client_of_another_protocol_cannot_connect(
    server: WebSocketServer, offered: Any
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with client(server, subprotocols=offered):
            pass
    assert refused.value.response.status_code == 400


async def test_bytes_that_are_not_http_harm_nobody(server: WebSocketServer) -> None:
    host, _, port = server.url.removeprefix("ws://").partition(":")
    with socket.create_connection((host, int(port)), WAIT_S) as raw:
        raw.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert raw.recv(100) in (b"", b"HTTP/1.1 400 Bad Request")
    async with client(server) as one:
        assert (await one.ask(request("ping")))["id"] == 1


async def test_sigterm_lets_a_call_finish_and_says_goodbye(component: Path, tmp_path: Path) -> None:
    with websocket_server(component) as server:
        async with client(server) as one, client(server) as idle:
            await one.ask(initialize())
            assert "method" in await one.ask(call("hold", progress=1, path=str(tmp_path / "go")))
            server.process.terminate()
            refused = await one.ask(request("ping", id=2))
            while "error" not in refused:  # it was faster than the signal
                refused = await one.ask(request("ping", id=2))
            assert refused["error"]["data"] == {"kind": "closed"}
            (tmp_path / "go").touch()
            assert text_of(await one.next()) == "hhhh"
            assert await one.closed() == 1001
            assert await idle.closed() == 1001
        assert await asyncio.to_thread(server.process.wait, WAIT_S) == 0


async def test_a_call_that_outlasts_the_drain_gets_an_error(component: Path) -> None:
    with websocket_server(component, "--drain", "0.05") as server:
        async with client(server) as one:
            await one.ask(initialize())
            assert "method" in await one.ask(call("wait", progress=1))
            server.process.terminate()
            assert (await one.next())["error"]["message"] == "the server is shutting down"
            assert await one.closed() == 1001
        assert await asyncio.to_thread(server.process.wait, WAIT_S) == 0
