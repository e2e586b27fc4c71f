"""Calls beyond the connections wait; no call waits for a stream that stays open, or for an answer
that cannot be sent."""

import asyncio
from typing import Any

import pytest

from portico.core.config.schema import ServerEntry
from portico.core.http1.pool import MAX_CONNECTIONS
from portico.core.model.methods import LISTEN
from portico.core.model.version import Version
from portico.edge.client.client_answers import ClientAnswers
from portico.edge.client.connect import connect
from portico.upstream.connections.configured_address import address
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.request_headers import request_headers
from portico.upstream.wires.http_client import Site
from portico.upstream.wires.streamable_http import Url
from tests.upstream.connections.fakes import WAIT_S, legacy, result
from tests.upstream.connections.web_server import Asked, event, reply, stream, web_server
from tests.upstream.connections.web_talks import FINE, Writer, legacy_server, modern_server


def alone(url: str) -> Url:
    """A server that may have one connection for calls."""
    return Url(url, max_connections=1)


async def fine(asked: Asked, writer: Writer) -> None:
    reply(writer, 200, result(asked.message, FINE))


async def open_stream(asked: Asked, writer: Writer) -> None:
    stream(writer, b": open\n\n")
    await writer.drain()
    await asyncio.Event().wait()


async def test_calls_wait_for_the_one_connection() -> None:
    at_once, most = 0, 0

    async def call(asked: Asked, writer: Writer) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1
        await fine(asked, writer)

    async with (
        web_server(modern_server(call)) as server,
        await connect(alone(server.url)) as client,
        asyncio.timeout(WAIT_S),
    ):
        assert await asyncio.gather(*(client.call_tool("t") for _ in range(9))) == [FINE] * 9
    assert most == 1


async def test_a_stream_that_goes_on_after_its_answer_keeps_no_call_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("portico.upstream.wires.streamable_http.STREAM_END_S", 2 * WAIT_S)

    async def call(asked: Asked, writer: Writer) -> None:
        stream(writer, event(result(asked.message, FINE)))
        await writer.drain()
        await asyncio.Event().wait()

    async with (
        web_server(modern_server(call)) as server,
        await connect(alone(server.url)) as client,
        asyncio.timeout(WAIT_S),
    ):
        for _ in range(3):
            assert await client.call_tool("t") == FINE


async def test_the_stream_of_a_legacy_server_keeps_no_call_waiting() -> None:
    async with (
        web_server(legacy_server(fine, open_stream)) as server,
        await connect(alone(server.url)) as client,
        asyncio.timeout(WAIT_S),
    ):
        for _ in range(3):
            assert await client.call_tool("t") == FINE
    assert "GET" in server.methods()


async def test_the_stream_of_a_modern_server_keeps_no_call_waiting() -> None:
    serve, listened = modern_server(fine), asyncio.Event()

    async def talk(asked: Asked, writer: Writer) -> None:
        if asked.method == LISTEN:
            listened.set()
            await open_stream(asked, writer)
        await serve(asked, writer)

    async with (
        web_server(talk) as server,
        await connect(alone(server.url)) as client,
        asyncio.timeout(WAIT_S),
    ):
        assert await client.call_tool("t") == FINE  # a connection rests
        headers = request_headers(LISTEN, {}, Version.V2026_07_28)
        exchange = client.exchange
        listening = asyncio.create_task(
            exchange.request(exchange.next_id(), LISTEN, b"{}", timeout=WAIT_S, headers=headers)
        )
        await listened.wait()
        for _ in range(3):
            assert await client.call_tool("t") == FINE
        listening.cancel()


async def test_the_stream_of_an_old_server_keeps_no_message_waiting() -> None:
    out: list[Writer] = []

    async def talk(asked: Asked, writer: Writer) -> None:
        if asked.verb == "GET":
            out.append(writer)
            stream(writer, event(b"/post", kind="endpoint"))
            await writer.drain()
            await asyncio.Event().wait()
        elif asked.path == "/mcp":
            reply(writer, 405)
        else:
            reply(writer, 202)
            for answer in legacy(asked.message, "2024-11-05"):
                out[0].write(event(answer, kind="message"))

    async with (
        asyncio.timeout(WAIT_S),
        web_server(talk) as server,
        await connect(alone(server.url)) as client,
    ):
        assert client.transport == "sse"


async def test_a_question_is_answered_while_its_call_has_the_one_connection() -> None:
    answered = asyncio.Event()

    async def call(asked: Asked, writer: Writer) -> None:
        stream(writer, event({"jsonrpc": "2.0", "id": "q", "method": "roots/list"}))
        await writer.drain()
        await answered.wait()
        writer.write(event(result(asked.message, FINE)))
        writer.close()

    serve = legacy_server(call)

    async def talk(asked: Asked, writer: Writer) -> None:
        if asked.method == "answer":
            answered.set()
        await serve(asked, writer)

    async def roots(_: dict[str, Any]) -> dict[str, Any]:
        return {"roots": []}

    async with (
        web_server(talk) as server,
        await connect(alone(server.url), answers=ClientAnswers(roots=roots)) as client,
        asyncio.timeout(WAIT_S),
    ):
        assert await client.call_tool("t") == FINE


def test_a_config_says_how_many_connections_there_may_be() -> None:
    found = address(ServerEntry(name="a", url="https://a.test/mcp", max_connections=9))
    assert isinstance(found, Url)
    assert found.max_connections == 9
    assert ServerEntry(name="a").max_connections == Site("").max_connections == MAX_CONNECTIONS


def test_calls_that_are_held_leave_connections_for_others() -> None:
    assert UpstreamPolicy().max_suspended < MAX_CONNECTIONS
