"""Servers at a URL, good and bad: both eras, both transports, bounded whatever they send."""

import asyncio
import gzip
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

import pytest

from portico.core.model.errors import McpError, TargetError
from portico.edge.client.client_answers import ClientAnswers
from portico.edge.client.connect import connect
from portico.upstream.wires.credentials import StaticToken
from portico.upstream.wires.streamable_http import Url
from tests.upstream.connections.fakes import WAIT_S, legacy, result
from tests.upstream.connections.web_server import (
    Asked,
    Talk,
    WebServer,
    event,
    reply,
    stream,
    web_server,
)
from tests.upstream.connections.web_talks import (
    FINE,
    QUICK,
    Writer,
    legacy_server,
    modern_server,
    refuse,
)


async def failure_of(
    talk: Talk, site: dict[str, Any] | None = None, timeout: float | None = None
) -> Any:
    """How a call fails; the server must still be usable afterwards."""
    async with web_server(modern_server(talk)) as server:
        address = Url(server.url, **(site or {}))
        async with await connect(address, limits=QUICK) as client:
            with pytest.raises(TargetError) as caught:
                await client.call_tool("t", timeout=timeout)
            assert await client.list_tools() == []
    return caught.value


async def test_a_json_body_is_an_answer() -> None:
    async def call(asked: Asked, writer: Writer) -> None:
        reply(writer, 200, result(asked.message, FINE))

    async with web_server(modern_server(call)) as server:
        address = Url(server.url, headers={"X-Team": "red"}, credentials=StaticToken("t0p"))
        async with await connect(address) as client:
            assert await client.call_tool("t") == FINE
        headers = server.asked[-1].headers
        assert headers["accept"] == "application/json, text/event-stream"
        assert headers["content-type"] == "application/json"
        assert headers["mcp-protocol-version"] == "2026-07-28"
        assert (headers["mcp-method"], headers["mcp-name"]) == ("tools/call", "t")
        assert headers["authorization"] == "Bearer t0p"
        assert headers["x-team"] == "red"
        assert "mcp-session-id" not in headers
        assert {"GET", "DELETE"}.isdisjoint(server.methods())


async def test_a_stream_brings_progress_and_then_the_answer() -> None:
    async def call(asked: Asked, writer: Writer) -> None:
        token = asked.message["params"]["_meta"]["progressToken"]
        params = {"progressToken": token, "progress": 1}
        notice = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        stream(writer, b": hello\n\n", event(notice), event(result(asked.message, FINE)))
        writer.close()

    moved: list[Any] = []
    async with (
        web_server(modern_server(call)) as server,
        await connect(Url(server.url)) as client,
    ):
        assert await client.call_tool("t", progress=moved.append) == FINE
    assert [params["progress"] for params in moved] == [1]


async def test_giving_up_a_modern_call_closes_its_stream() -> None:
    gone = asyncio.Event()

    async def call(asked: Asked, writer: Writer) -> None:
        stream(writer, b": wait\n\n")
        await writer.drain()
        while not writer.transport.is_closing():
            writer.write(b": still here\n\n")
            await asyncio.sleep(0.01)
        gone.set()

    async with web_server(modern_server(call)) as server:
        async with await connect(Url(server.url)) as client:
            with pytest.raises(TargetError, match="did not answer"):
                await client.call_tool("t", timeout=0.1)
            await asyncio.wait_for(gone.wait(), WAIT_S)
        assert "notifications/cancelled" not in server.methods()


async def test_a_legacy_session_is_kept_named_and_ended() -> None:
    listens = asyncio.Event()

    async def call(asked: Asked, writer: Writer) -> None:
        reply(writer, 200, result(asked.message, FINE))

    async def get(asked: Asked, writer: Writer) -> None:
        listens.set()
        reply(writer, 405)

    async with web_server(legacy_server(call, get)) as server:
        async with await connect(Url(server.url)) as client:
            assert await client.call_tool("t") == FINE
            await asyncio.wait_for(listens.wait(), WAIT_S)
        seen = {asked.method: asked.headers for asked in server.asked}
    assert "mcp-session-id" not in seen["initialize"]
    assert "mcp-protocol-version" not in seen["initialize"]
    for method in ("notifications/initialized", "tools/call", "GET", "DELETE"):
        assert seen[method]["mcp-session-id"] == "s1"
        assert seen[method]["mcp-protocol-version"] == "2025-11-25"
    assert "mcp-method" not in seen["tools/call"]


@pytest.mark.parametrize("answers_late", [False, True])
async def test_a_legacy_server_is_listened_to_before_it_is_called(answers_late: bool) -> None:
    order: list[str] = []
    called = asyncio.Event()

    async def call(asked: Asked, writer: Writer) -> None:
        order.append("called")
        called.set()
        reply(writer, 200, result(asked.message, FINE))

    async def get(asked: Asked, writer: Writer) -> None:
        # One that sends no headers before its first event is given a moment, and then called.
        await (called.wait() if answers_late else asyncio.sleep(0.02))
        order.append("listened to")
        stream(writer)
        await writer.drain()
        await asyncio.Event().wait()

    async with (
        web_server(legacy_server(call, get)) as server,
        await connect(Url(server.url)) as client,
    ):
        assert await client.call_tool("t") == FINE
    assert order[0] == ("called" if answers_late else "listened to")


async def test_a_legacy_server_may_ask_on_the_stream_of_a_call_and_on_its_own() -> None:
    answered = asyncio.Event()
    answers: list[dict[str, Any]] = []

    def question(id: str) -> bytes:
        return event({"jsonrpc": "2.0", "id": id, "method": "roots/list"})

    async def call(asked: Asked, writer: Writer) -> None:
        stream(writer, question("on-call"))
        await writer.drain()
        await answered.wait()
        writer.write(event(result(asked.message, FINE)))
        writer.close()

    async def get(asked: Asked, writer: Writer) -> None:
        stream(writer, question("on-get"))
        await writer.drain()
        await asyncio.Event().wait()

    serve = legacy_server(call, get)

    async def talk(asked: Asked, writer: Writer) -> None:
        if asked.method == "answer":
            answers.append(asked.message)
            if len(answers) == 2:
                answered.set()
        await serve(asked, writer)

    async def roots(_: dict[str, Any]) -> dict[str, Any]:
        return {"roots": []}

    async with (
        web_server(talk) as server,
        await connect(Url(server.url), answers=ClientAnswers(roots=roots)) as client,
    ):
        assert await client.call_tool("t") == FINE
    assert {answer["id"]: answer["result"] for answer in answers} == {
        "on-call": {"roots": []},
        "on-get": {"roots": []},
    }


async def test_a_legacy_stream_that_is_closed_to_be_polled_is_resumed() -> None:
    calls: list[Asked] = []

    async def call(asked: Asked, writer: Writer) -> None:
        calls.append(asked)
        stream(writer, b"id: e1\nretry: 10\ndata:\n\n")
        writer.close()

    async def get(asked: Asked, writer: Writer) -> None:
        if asked.headers.get("last-event-id") != "e1":
            reply(writer, 405)
            return
        stream(writer, event(result(calls[0].message, FINE), "e2"))
        writer.close()

    async with (
        web_server(legacy_server(call, get)) as server,
        await connect(Url(server.url)) as client,
    ):
        assert await client.call_tool("t") == FINE


async def test_a_modern_stream_that_breaks_off_fails_its_call() -> None:
    async def call(asked: Asked, writer: Writer) -> None:
        stream(writer, b"id: e1\ndata: {}\n\n")
        writer.close()

    error = await failure_of(call)
    assert "ended its response without a result" in str(error)


async def test_a_connection_reset_fails_the_call() -> None:
    async def call(asked: Asked, writer: Writer) -> None:
        stream(writer, b"data: half")
        await writer.drain()
        writer.transport.abort()

    assert (await failure_of(call)).kind in ("network", "closed")


@pytest.mark.parametrize("status", [404, 429, 500, 503])
async def test_a_status_is_named(status: int) -> None:
    async def call(asked: Asked, writer: Writer) -> None:
        reply(writer, status, b"<html>\x1b[31mno</html>", "text/html")

    error = await failure_of(call)
    assert f"returned HTTP {status}" in str(error)
    assert error.details == {"status": status}


@pytest.mark.parametrize(
    ("said", "least", "most"),
    [(lambda: "17", 17, 17), (lambda: formatdate(time.time() + 600, usegmt=True), 400, 600)],
)
async def test_how_long_a_server_wants_to_be_left_alone_is_told(
    said: Callable[[], str], least: int, most: int
) -> None:
    async def call(asked: Asked, writer: Writer) -> None:
        reply(writer, 429, b"", "text/plain", retry_after=said())

    error = await failure_of(call)
    pause = error.details["retry_after_s"]
    assert least <= pause <= most
    assert f"; try again in {pause} s" in str(error)


@pytest.mark.parametrize("said", ["", "soon", "-5", "1" * 5000, "Fri, 99 Foo 2099"])
async def test_a_pause_that_is_none_breaks_nothing(said: str) -> None:
    async def call(asked: Asked, writer: Writer) -> None:
        reply(writer, 503, b"", "text/plain", retry_after=said)

    assert "returned HTTP 503" in str(await failure_of(call))


@pytest.mark.parametrize("size", [10, 100_000])
async def test_a_page_in_place_of_an_answer_is_told(size: int) -> None:
    async def call(asked: Asked, writer: Writer) -> None:
        reply(writer, 200, b"<h1>Log in</h1>" + b" " * size, "text/html; charset=utf-8")

    error = await failure_of(call)
    assert "returned text/html instead of an MCP message" in str(error)
    assert (error.kind, error.details) == ("http", {"status": 200})


async def test_a_json_rpc_error_with_a_status_is_the_servers_own() -> None:
    async def call(asked: Asked, writer: Writer) -> None:
        error = {"code": -32601, "message": "no such tool"}
        reply(writer, 404, {"jsonrpc": "2.0", "id": asked.message["id"], "error": error})

    async with (
        web_server(modern_server(call)) as server,
        await connect(Url(server.url)) as client,
    ):
        with pytest.raises(McpError, match="no such tool"):
            await client.call_tool("t")


@pytest.mark.parametrize("as_stream", [True, False])
async def test_an_answer_over_the_limit_is_cut_off(as_stream: bool) -> None:
    async def call(asked: Asked, writer: Writer) -> None:
        big = result(asked.message, {"x": "y" * 300_000})
        if as_stream:
            stream(writer, event(big))
            writer.close()
        else:
            reply(writer, 200, big)

    error = await failure_of(call, {"max_message": 100_000})
    assert error.kind == "too_large"
    assert "longer than 100000 bytes" in str(error)


async def test_an_answer_without_end_is_cut_off() -> None:
    async def call(asked: Asked, writer: Writer) -> None:
        stream(writer, b"data: ")
        while not writer.transport.is_closing():
            writer.write(b"x" * 65536)
            await writer.drain()

    assert (await failure_of(call, {"max_message": 1_000_000})).kind == "too_large"


async def test_a_packed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)

    async def call(asked: Asked, writer: Writer) -> None:
        assert asked.headers["accept-encoding"] == "identity"
        reply(writer, 200, bomb, content_encoding="gzip")

    assert "compressed with gzip" in str(await failure_of(call))


async def test_endless_headers_fail_the_call() -> None:
    async def call(asked: Asked, writer: Writer) -> None:
        reply(writer, 200, b"{}", x_long="y" * 1_000_000)

    assert (await failure_of(call)).kind == "network"


async def test_a_trickle_runs_out_of_time() -> None:
    async def call(asked: Asked, writer: Writer) -> None:
        stream(writer)
        while not writer.transport.is_closing():
            writer.write(b"d")
            await asyncio.sleep(0.01)

    assert (await failure_of(call, timeout=0.1)).kind == "timeout"


async def test_a_redirect_on_the_same_origin_is_followed_with_body_and_headers() -> None:
    serve = modern_server(refuse)

    async def talk(asked: Asked, writer: Writer) -> None:
        if asked.path == "/mcp":
            reply(writer, 307, location="/mcp/")
        else:
            await serve(asked, writer)

    async with web_server(talk) as server:
        async with await connect(Url(server.url, credentials=StaticToken("t0p"))) as client:
            assert await client.list_tools() == []
        assert [asked.path for asked in server.asked] == ["/mcp", "/mcp/", "/mcp/"]
        assert server.asked[-1].headers["authorization"] == "Bearer t0p"


@pytest.mark.parametrize(("status", "location"), [(302, "/login"), (307, "http://127.0.0.2:1/mcp")])
async def test_any_other_redirect_is_told_not_followed(status: int, location: str) -> None:
    async def talk(asked: Asked, writer: Writer) -> None:
        reply(writer, status, location=location)

    async with web_server(talk) as server:
        with pytest.raises(TargetError, match=r"redirects to .*use that URL if you trust it"):
            await connect(Url(server.url, credentials=StaticToken("t0p")))


async def test_redirects_in_circles_end() -> None:
    async def talk(asked: Asked, writer: Writer) -> None:
        reply(writer, 307, location="/mcp")

    async with web_server(talk) as server:
        with pytest.raises(TargetError, match="redirects more than 5 times"):
            await connect(Url(server.url))
        assert len(server.asked) < 30


def guarded_server(token: str) -> Talk:
    """A modern server that requires this token."""
    serve = modern_server(refuse)

    async def guarded(asked: Asked, writer: Writer) -> None:
        if asked.headers.get("authorization") != f"Bearer {token}":
            reply(writer, 401, www_authenticate="Bearer")
        else:
            await serve(asked, writer)

    return guarded


def shown(server: WebServer) -> list[str | None]:
    return [asked.headers.get("authorization") for asked in server.asked]


async def test_the_spare_token_is_shown_only_when_asked_for() -> None:
    async with web_server(guarded_server("door")) as server:
        url = Url(server.url, spare_token=lambda url: (url, "door"))
        async with await connect(url) as client:
            assert await client.list_tools() == []
        assert shown(server) == [None, "Bearer door", "Bearer door"]
    async with web_server(modern_server(refuse)) as server:
        url = Url(server.url, spare_token=lambda url: (url, "door"))
        await (await connect(url)).close()
        assert "authorization" not in server.asked[0].headers


async def test_the_spare_token_goes_only_to_the_url_that_it_is_for() -> None:
    async with (
        web_server(guarded_server("door")) as ours,
        web_server(guarded_server("none")) as other,
    ):
        url = Url(other.url, spare_token=lambda _: (ours.url, "door"))
        async with await connect(url) as client:
            assert await client.list_tools() == []
        assert shown(other) == [None]
        assert shown(ours) == ["Bearer door", "Bearer door"]


async def test_the_spare_token_is_shown_no_more_once_its_server_has_gone() -> None:
    is_there = True
    async with web_server(guarded_server("door")) as server:
        url = Url(server.url, spare_token=lambda url: (url, "door") if is_there else ("", ""))
        async with await connect(url) as client:
            is_there = False
            with pytest.raises(TargetError, match="requires a token"):
                await client.list_tools()
        assert shown(server) == [None, "Bearer door", None]


async def test_a_door_that_stays_closed_is_told() -> None:
    async def talk(asked: Asked, writer: Writer) -> None:
        reply(writer, 401)

    async with web_server(talk) as server:
        with pytest.raises(TargetError, match=r"requires a token \(HTTP 401 Said\)"):
            await connect(Url(server.url))
        with pytest.raises(TargetError, match="rejected the token"):
            await connect(Url(server.url, credentials=StaticToken("wrong")))


async def test_nobody_there_is_told() -> None:
    with pytest.raises(TargetError, match="cannot be reached") as caught:
        await connect(Url("http://127.0.0.1:1/mcp"))
    assert caught.value.kind == "network"


async def test_a_password_in_a_url_is_not_shown() -> None:
    assert Url("https://user:secret@host.test/mcp?key=secret").name == "https://host.test/mcp"


async def test_a_session_id_that_no_header_can_carry_is_refused_with_the_reason() -> None:
    async def talk(asked: Asked, writer: Writer) -> None:
        reply(writer, 200, legacy(asked.message, tools={})[0], mcp_session_id="s\xfc1")

    async with web_server(talk) as server:
        with pytest.raises(
            TargetError, match="session id with characters other than visible ASCII"
        ):
            await connect(Url(server.url), limits=QUICK)


@pytest.mark.parametrize(
    "headers",
    [{"X-Team": "r\xf6t"}, {"X Team": "red"}, {"X-Team": "a\nb"}, {"Content-Length": "5"}],
)
async def test_a_header_that_cannot_be_sent_is_named_before_anything_is(
    headers: dict[str, str],
) -> None:
    async with web_server(modern_server(refuse)) as server:
        with pytest.raises(TargetError, match="cannot be contacted"):
            await connect(Url(server.url, headers=headers), limits=QUICK)
        assert not server.asked


@pytest.mark.parametrize("url", ["http://", "http://[::1/mcp", "http://user:secret@[::1/mcp"])
async def test_a_url_that_is_none_is_said_to_be_and_keeps_its_secrets(url: str) -> None:
    with pytest.raises(TargetError, match="cannot be contacted") as caught:
        await connect(Url(url), limits=QUICK)
    assert "secret" not in str(caught.value)
