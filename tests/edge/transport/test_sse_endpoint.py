"""The old HTTP+SSE transport: one stream out, POSTs in."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico import Server
from portico.edge.transport.http_limits import HttpLimits
from tests.support.messages import initialize, request
from tests.support.stage import Stage, staged
from tests.support.web import Site, Stream, post_bytes, serving, soon, tool_call

STREAM = {"accept": "text/event-stream"}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class OldClient:
    """One client: its stream, and its URL for POSTs."""

    def __init__(self, site: Site, stream: Stream, path: str) -> None:
        self.site = site
        self.stream = stream
        self.path = path

    async def post(self, message: Any) -> int:
        return (await self.site.post(message, path=self.path)).status_code

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        assert await self.post(message) == 202
        return await self.stream.message()


@asynccontextmanager
async def connected(site: Site, version: str = "2024-11-05") -> AsyncIterator[OldClient]:
    async with site.streamed(None, STREAM, "GET", "/sse") as stream:
        first = await stream.event()
        assert first["event"] == "endpoint"
        client = OldClient(site, stream, first["data"])
        greeting = await client.ask(initialize(version, {"elicitation": {}, "roots": {}}))
        assert greeting["result"]["protocolVersion"] == version
        assert await client.post(INITIALIZED) == 202
        yield client


@asynccontextmanager
async def old(version: str = "2024-11-05") -> AsyncIterator[tuple[Stage, OldClient]]:
    async with staged() as (stage, site), connected(site, version) as client:
        yield stage, client


async def test_the_stream_begins_with_where_to_post() -> None:
    async with staged() as (_, site), site.streamed(None, STREAM, "GET", "/sse") as stream:
        first = await stream.event()

    assert first["event"] == "endpoint"
    assert first["data"].startswith("/messages?session_id=")
    assert stream.response.headers["content-type"] == "text/event-stream"


async def test_a_post_is_accepted_and_its_answer_comes_over_the_stream() -> None:
    async with old() as (_, client):
        assert await client.post(request("tools/list", id=7)) == 202
        event = await client.stream.event()

    assert event["event"] == "message"
    assert json.loads(event["data"])["id"] == 7


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_it_carries_every_legacy_version(version: str) -> None:
    async with old(version) as (_, client):
        answer = await client.ask(tool_call("echo", text="hi"))

    assert answer["result"]["content"][0]["text"] == "hi"


async def test_progress_and_questions_travel_on_the_stream() -> None:
    call = tool_call("talk", times=1)
    call["params"]["_meta"] = {"progressToken": 1}
    async with old("2025-06-18") as (_, client):
        progress = await client.ask(call)
        response = await client.stream.message()
        question = await client.ask(tool_call("ask", id=2))
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "cancel"}}
        result = await client.ask(answer)

    assert progress["method"] == "notifications/progress"
    assert response["result"]["content"][0]["text"] == "said"
    assert result["result"]["content"][0]["text"] == "cancel"


async def test_changes_come_over_the_stream() -> None:
    async with old() as (stage, client):
        stage.server.remove_tool("fail")
        notification = await client.stream.message()

    assert notification["method"] == "notifications/tools/list_changed"


async def test_a_batch_is_answered_by_an_array() -> None:
    async with old("2025-03-26") as (_, client):
        assert await client.post([request("ping", id=1), tool_call("echo", id=2, text="")]) == 202
        answers: Any = await client.stream.message()

    assert {answer["id"] for answer in answers} == {1, 2}


async def test_closing_the_stream_ends_the_session_and_cancels() -> None:
    async with staged() as (stage, site):
        async with connected(site) as client:
            assert await client.post(tool_call("wait")) == 202
            await soon(stage.entered)
        await soon(stage.cancelled)
        status = await client.post(request("ping"))

    assert status == 404


async def test_a_call_can_be_cancelled_and_its_id_used_again() -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    async with old() as (stage, client):
        await client.post(tool_call("wait", id=1))
        await soon(stage.entered)
        same = await client.ask(tool_call("echo", id=1, text=""))
        await client.post(note)
        await soon(stage.cancelled)
        answer = await client.ask(tool_call("echo", id=1, text="again"))

    assert same["error"]["code"] == -32600
    assert answer["result"]["content"][0]["text"] == "again"


@pytest.mark.parametrize(
    "path, status",
    [
        ("/messages", 400),
        ("/messages?session_id=", 400),
        ("/messages?session_id=unknown", 404),
    ],
)
async def test_a_post_must_name_an_open_stream(path: str, status: int) -> None:
    async with staged() as (_, site):
        response = await site.post(request("ping"), path=path)

    assert response.status_code == status


async def test_a_stream_belongs_to_its_principal() -> None:
    server = Server("two")
    app = server.asgi(principal=lambda scope: dict(scope["headers"])[b"x-user"].decode())
    async with serving(app) as site:
        site.client.headers["x-user"] = "ann"
        async with connected(site) as client:
            site.client.headers["x-user"] = "bob"
            stolen = await client.post(request("ping"))
            site.client.headers["x-user"] = "ann"
            mine = await client.post(request("ping"))

    assert (stolen, mine) == (404, 202)


async def test_bad_input_is_refused_and_the_stream_goes_on() -> None:
    async with old() as (_, client):
        broken = await client.site.post(b"{", path=client.path)
        early = await client.site.post(request("ping") | {"id": None}, path=client.path)
        typed = await client.site.post(request("ping"), {"content-type": "text/plain"}, client.path)
        answer = await client.ask(request("ping"))

    assert (broken.status_code, broken.json()["error"]["code"]) == (400, -32700)
    assert (early.status_code, early.json()["error"]["code"]) == (400, -32600)
    assert typed.status_code == 415
    assert answer["result"] == {}


async def test_before_initialize_only_a_ping_is_answered() -> None:
    async with staged() as (_, site), site.streamed(None, STREAM, "GET", "/sse") as stream:
        path = (await stream.event())["data"]
        await site.post(request("tools/list"), path=path)
        refused = await stream.message()
        await site.post(request("ping"), path=path)
        answer = await stream.message()

    assert refused["error"]["code"] == -32600
    assert answer["result"] == {}


@pytest.mark.parametrize("method, path", [("POST", "/sse"), ("GET", "/messages"), ("PUT", "/sse")])
async def test_other_methods_are_not_allowed(method: str, path: str) -> None:
    async with staged() as (_, site):
        response = await site.client.request(method, site.url + path)

    assert response.status_code == 405


async def test_it_can_be_left_out() -> None:
    async with staged(sse=False) as (_, site):
        response = await site.client.get(site.url + "/sse", headers=STREAM)

    assert response.status_code == 404


async def test_past_the_cap_a_call_is_told_to_come_back() -> None:
    async with staged(HttpLimits(running=1)) as (stage, site), connected(site) as client:
        await client.post(tool_call("wait"))
        await soon(stage.entered)
        refused = await client.ask(tool_call("echo", id=2, text=""))
        stage.go_on.set()
        answer = await client.stream.message()

    assert (refused["id"], refused["error"]["code"]) == (2, -32603)
    assert answer["result"]["content"][0]["text"] == "waited"


async def test_a_quiet_stream_gets_comments() -> None:
    async with (
        staged(HttpLimits(quiet_s=0.01)) as (_, site),
        site.streamed(None, STREAM, "GET", "/sse") as stream,
    ):
        await stream.event()
        assert await stream.line() == ":"


async def test_a_client_that_never_reads_blocks_nobody_else() -> None:
    async with staged() as (_, site):
        stuck = await site.connect()
        stuck[1].write(b"GET /sse HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await stuck[0].readuntil(b"data: ")
        path = (await stuck[0].readline()).strip().decode()
        stuck[1].transport.pause_reading()  # type: ignore[attr-defined]
        posts = [asyncio.open_connection("127.0.0.1", site.port) for _ in range(20)]
        for reader, writer in await asyncio.gather(*posts):
            writer.write(post_bytes(request("ping"), path=path, close=True))
            assert (await reader.read()).startswith(b"HTTP/1.1 202")
            writer.close()
        async with connected(site) as client:
            assert (await client.ask(request("ping")))["result"] == {}
        stuck[1].transport.abort()
