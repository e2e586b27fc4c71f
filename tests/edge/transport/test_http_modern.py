"""Modern HTTP: one call per POST, and a disconnect cancels it."""

import asyncio
import json
from typing import Any

import pytest

from portico import Context, Server
from portico.edge.transport.http_limits import HttpLimits
from tests.support.messages import MODERN, PREFIX, modern, modern_meta, request
from tests.support.stage import staged
from tests.support.web import listen, mirrored, modern_call, post_bytes, serving, soon


async def test_a_static_list_is_answered_as_json() -> None:
    async with staged() as (_, site):
        response = await site.modern(modern("tools/list", id="a"))

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json()["id"] == "a"
    assert len(response.json()["result"]["tools"]) == 5


async def test_the_same_list_comes_also_when_its_body_is_late_or_in_pieces() -> None:
    data = post_bytes(LIST, mirrored(LIST))
    start = data.index(b"\r\n\r\n") + 4
    async with staged() as (_, site):
        expected = (await site.modern(LIST)).content
        reader, writer = await site.connect()
        for _ in range(2):  # twice on one connection
            for piece in (data[:start], data[start : start + 10], data[start + 10 :]):
                writer.write(piece)
                await writer.drain()
                # Another request in between: the pieces do not arrive together.
                assert (await site.client.get(site.url + "/healthz")).status_code == 200
            assert await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(len(expected)) == expected
        writer.close()


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    call = modern_call("echo", 1, text="x")
    last = modern("tools/list", id=2)
    async with staged() as (_, site):
        answers = await site.raw(
            post_bytes(call, mirrored(call)) + post_bytes(last, mirrored(last), close=True)
        )

    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert answers.index(b'"id":1') < answers.index(b'"id":2')


async def test_a_call_that_says_nothing_on_its_way_is_answered_as_json() -> None:
    async with staged() as (_, site):
        response = await site.modern(modern_call("echo", text="hi"))

    assert response.headers["content-type"] == "application/json"
    assert response.json()["result"]["content"] == [{"type": "text", "text": "hi"}]


async def test_a_call_that_talks_becomes_a_stream_of_events_with_the_answer_last() -> None:
    message = modern_call("talk", times=3)
    async with staged() as (_, site), site.streamed(message, mirrored(message)) as stream:
        events = await stream.events()

    assert stream.response.status_code == 200
    assert stream.response.headers["content-type"] == "text/event-stream"
    assert stream.response.headers["x-accel-buffering"] == "no"
    assert "no-cache" in stream.response.headers["cache-control"]
    messages = [json.loads(event["data"]) for event in events]
    assert [m.get("method") for m in messages] == ["notifications/progress"] * 3 + [None]
    assert messages[-1]["result"]["content"][0]["text"] == "said"
    assert not any("id" in event for event in events)  # such streams cannot be resumed


async def test_a_listener_hears_of_changes_until_it_leaves() -> None:
    message = listen("sub-1", toolsListChanged=True)
    async with staged() as (stage, site), site.streamed(message, mirrored(message)) as stream:
        first = await stream.message()
        stage.server.remove_tool("fail")
        second = await stream.message()

    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert second["method"] == "notifications/tools/list_changed"
    assert second["params"]["_meta"][PREFIX + "subscriptionId"] == "sub-1"


async def test_a_quiet_stream_gets_comments() -> None:
    message = listen(toolsListChanged=True)
    limits = HttpLimits(quiet_s=0.01)
    async with staged(limits) as (_, site), site.streamed(message, mirrored(message)) as stream:
        await stream.message()
        assert await stream.line() == ":"


async def test_a_call_that_stays_quiet_for_long_becomes_a_stream() -> None:
    message = modern_call("wait")
    limits = HttpLimits(quiet_s=0.01)
    async with staged(limits) as (stage, site), site.streamed(message, mirrored(message)) as stream:
        assert await stream.line() == ":"
        stage.go_on.set()
        answer = await stream.message()

    assert answer["result"]["content"][0]["text"] == "waited"


@pytest.mark.parametrize("talk_first", [False, True])
async def test_a_client_that_leaves_cancels_its_call(talk_first: bool) -> None:
    message = modern_call("wait", talk_first=talk_first)
    async with staged() as (stage, site):
        _, writer = await site.connect()
        writer.write(post_bytes(message, mirrored(message)))
        await soon(stage.entered)
        writer.close()
        await soon(stage.cancelled)

        assert stage.running == 0
        assert (await site.modern(modern_call("echo", text="on"))).status_code == 200


async def test_equal_ids_of_different_requests_have_nothing_to_do_with_each_other() -> None:
    async with staged() as (stage, site):
        waiting = asyncio.create_task(site.modern(modern_call("wait", id=7)))
        await soon(stage.entered)
        other = await site.modern(modern_call("echo", id=7, text="mine"))
        stage.go_on.set()
        first = await waiting

    assert other.json()["result"]["content"][0]["text"] == "mine"
    assert first.json()["result"]["content"][0]["text"] == "waited"


def _without(message: dict[str, Any], key: str) -> dict[str, Any]:
    meta = {k: v for k, v in message["params"]["_meta"].items() if not k.endswith(key)}
    return {**message, "params": {**message["params"], "_meta": meta}}


def _at(version: str) -> dict[str, Any]:
    return request("tools/list", {"_meta": modern_meta() | {PREFIX + "protocolVersion": version}})


LIST = modern("tools/list")

ERRORS = {
    "broken JSON": (b"{", {}, 400, -32700),
    "not UTF-8": (b'{"a":"\xff"}', {}, 400, -32700),
    "not a message": (b'"hello"', {}, 400, -32600),
    "nested too deeply": (b"[" * 1000 + b"]" * 1000, {}, 400, -32600),
    "a batch": (json.dumps([LIST]).encode(), {}, 400, -32600),
    "an empty batch": (b"[]", {}, 400, -32600),
    "a wrong jsonrpc": ({**LIST, "jsonrpc": "1.0"}, {}, 400, -32600),
    "a null id": ({**LIST, "id": None}, {}, 400, -32600),
    "a fractional id": ({**LIST, "id": 1.5}, {}, 400, -32600),
    "no version": (_without(LIST, "protocolVersion"), {}, 400, -32602),
    "no capabilities": (_without(LIST, "clientCapabilities"), {}, 400, -32602),
    "params that are a list": ({**LIST, "params": []}, {}, 400, -32602),
    "a method header that lies": (LIST, {"mcp-method": "prompts/list"}, 400, -32020),
    "a method header in capitals": (LIST, {"mcp-method": "TOOLS/LIST"}, 400, -32020),
    "a version header that lies": (LIST, {"mcp-protocol-version": "2025-11-25"}, 400, -32020),
    "a name header that lies": (modern_call("echo", text=""), {"mcp-name": "talk"}, 400, -32020),
    "an unknown version": (_at("2099-01-01"), {"mcp-protocol-version": "2099-01-01"}, 400, -32022),
    "an unknown method": (modern("no/such"), {}, 404, -32601),
    "initialize": (modern("initialize"), {}, 404, -32601),
    "ping": (modern("ping"), {}, 404, -32601),
    "an unknown cursor": (modern("tools/list", {"cursor": "?"}), {}, 400, -32602),
    "an unknown tool": (modern("tools/call", {"name": "nope"}), {}, 400, -32602),
    "an undeclared capability": (modern_call("ask"), {}, 400, -32021),
}


@pytest.mark.parametrize("case", ERRORS)
async def test_bad_input_gets_its_status_and_code_and_the_server_goes_on(case: str) -> None:
    message, headers, status, code = ERRORS[case]
    named = mirrored(message) if isinstance(message, dict) else mirrored(LIST)
    async with staged() as (_, site):
        response = await site.post(message, {**named, **headers})
        after = await site.modern(LIST)

    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert after.status_code == 200


async def test_an_unsupported_version_is_answered_with_those_that_are() -> None:
    async with staged() as (_, site):
        response = await site.post(
            _at("2099-01-01"), mirrored(LIST) | {"mcp-protocol-version": "2099-01-01"}
        )

    assert response.json()["error"]["data"] == {"supported": [MODERN], "requested": "2099-01-01"}


async def test_a_header_twice_matches_nothing() -> None:
    data = post_bytes(LIST, mirrored(LIST), close=True)
    line = b"mcp-method: tools/list\r\n"
    async with staged() as (_, site):
        answer = await site.raw(data.replace(line, line + line))

    assert answer.startswith(b"HTTP/1.1 400")
    assert b"-32020" in answer


@pytest.mark.parametrize("spaces", [b"", b"  ", b" \t "])
async def test_spaces_around_a_header_value_do_not_count(spaces: bytes) -> None:
    data = post_bytes(LIST, mirrored(LIST), close=True)
    async with staged() as (_, site):
        answer = await site.raw(
            data.replace(b": tools/list\r", b":" + spaces + b"tools/list" + spaces + b"\r")
        )

    assert answer.startswith(b"HTTP/1.1 200")


async def test_a_handler_that_fails_says_so_to_the_model_and_keeps_its_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with staged() as (_, site):
        response = await site.modern(modern_call("fail"))

    assert response.status_code == 200
    assert response.json()["result"]["isError"] is True


async def test_a_notification_is_accepted_and_a_response_is_not() -> None:
    async with staged() as (_, site):
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        accepted = await site.modern(note)
        refused = await site.post({"jsonrpc": "2.0", "id": 1, "result": {}})

    assert (accepted.status_code, accepted.content) == (202, b"")
    assert refused.status_code == 400


@pytest.mark.parametrize(
    "accept, status",
    [
        ("application/json, text/event-stream", 200),
        ("text/event-stream,application/json;q=0.9", 200),
        ("*/*", 200),
        ("application/*, text/*", 200),
        ("application/json", 406),
        ("text/event-stream", 406),
        ("text/html", 406),
        ("application/json, text/event-stream;q=0", 406),
    ],
)
async def test_a_client_must_accept_both_kinds_of_answer(accept: str, status: int) -> None:
    async with staged() as (_, site):
        response = await site.modern(LIST, {"accept": accept})

    assert response.status_code == status


@pytest.mark.parametrize("message", [modern("tools/list"), modern_call("echo", text="hi")])
async def test_a_client_that_would_rather_have_events_gets_them(message: dict[str, Any]) -> None:
    headers = mirrored(message) | {"accept": "text/event-stream, application/json"}
    async with staged() as (_, site), site.streamed(message, headers) as stream:
        (event,) = await stream.events()

    assert stream.response.headers["content-type"] == "text/event-stream"
    assert "result" in json.loads(event["data"])


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"content-type": "application/json; charset=utf-8"}, 200),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/jsonx"}, 415),
        ({"content-encoding": "gzip"}, 415),
    ],
)
async def test_only_plain_json_is_read(headers: dict[str, str], status: int) -> None:
    async with staged() as (_, site):
        response = await site.modern(LIST, headers)

    assert response.status_code == status


async def test_sessions_and_event_ids_mean_nothing_to_a_modern_request() -> None:
    async with staged() as (_, site):
        response = await site.modern(LIST, {"mcp-session-id": "unknown", "last-event-id": "1-1"})

    assert response.status_code == 200
    assert "mcp-session-id" not in response.headers


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "HEAD", "OPTIONS"])
async def test_the_modern_era_knows_only_post(method: str) -> None:
    async with staged() as (_, site):
        headers = {"mcp-protocol-version": MODERN, "accept": "text/event-stream"}
        response = await site.client.request(method, site.url + "/mcp", headers=headers)

    assert response.status_code == 405
    assert "POST" in response.headers["allow"]


async def test_a_request_without_metadata_is_told_how_to_begin() -> None:
    async with staged() as (_, site):
        response = await site.post(request("tools/list"))

    assert response.status_code == 400
    assert "initialize" in response.json()["error"]["message"]


async def test_data_and_principal_reach_the_handler_untouched() -> None:
    server = Server("who")
    seen: list[Any] = []

    @server.tool
    async def look(*, context: Context) -> str:
        seen.append((context.principal, context.data))
        return ""

    app = server.asgi(
        principal=lambda scope: dict(scope["headers"])[b"x-user"].decode(),
        data=lambda scope: scope["path"],
    )
    async with serving(app) as site:
        await site.modern(modern_call("look"), {"x-user": "ann"})

    assert seen == [("ann", "/mcp")]
