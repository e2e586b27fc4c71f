"""Legacy streamable HTTP: sessions, the GET stream, questions, batches."""

import asyncio
import json
from typing import Any

import pytest

from portico import Context, Server
from portico.core.protocol.inbound import MAX_BATCH
from tests.support.messages import LEGACY, initialize, modern, request
from tests.support.stage import staged
from tests.support.web import post_bytes, serving, soon, tool_call

STREAM = {"accept": "text/event-stream"}


@pytest.mark.parametrize("version", LEGACY)
async def test_initialize_begins_a_session_in_every_version(version: str) -> None:
    async with staged() as (_, site):
        response = await site.post(initialize(version))
        headers = await site.session(version)
        listed = await site.post(request("tools/list"), headers)

    assert response.json()["result"]["protocolVersion"] == version
    id = response.headers["mcp-session-id"]
    assert len(id) >= 32
    assert id.isascii()
    assert id.isprintable()
    assert id != headers["mcp-session-id"]
    assert len(listed.json()["result"]["tools"]) == 5


async def test_an_unknown_version_is_answered_with_ours() -> None:
    async with staged() as (_, site):
        response = await site.post(initialize("1999-01-01"))

    assert response.json()["result"]["protocolVersion"] == "2025-11-25"


async def test_a_handshake_that_fails_makes_no_session() -> None:
    async with staged() as (_, site):
        response = await site.post(request("initialize", {"protocolVersion": 7}))

    assert response.json()["error"]["code"] == -32602
    assert "mcp-session-id" not in response.headers


async def test_a_second_initialize_in_a_session_is_refused() -> None:
    async with staged() as (_, site):
        headers = await site.session()
        response = await site.post(initialize(), headers)

    assert response.status_code == 400
    assert response.json()["error"]["code"] == -32600


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("version", [None, "2025-11-25"])
async def test_a_session_that_is_not_there_is_404_and_one_not_named_400(
    method: str, version: str | None
) -> None:
    body = json.dumps(request("tools/list")).encode() if method == "POST" else None
    named = {} if version is None else {"mcp-protocol-version": version}
    async with staged() as (_, site):
        statuses = []
        for headers in ({"mcp-session-id": "unknown"}, {}):
            response = await site.client.request(
                method,
                site.url + "/mcp",
                content=body,
                headers={
                    "content-type": "application/json",
                    "accept": "application/json, text/event-stream",
                    **named,
                    **headers,
                },
            )
            statuses.append(response.status_code)

    assert statuses == [404, 400]


async def test_delete_ends_a_session_and_cancels_what_runs_in_it() -> None:
    async with staged() as (stage, site):
        headers = await site.session()
        waiting = asyncio.create_task(site.post(tool_call("wait"), headers))
        await soon(stage.entered)
        deleted = await site.client.delete(site.url + "/mcp", headers=headers)
        await soon(stage.cancelled)
        await waiting
        after = await site.post(request("ping"), headers)
        again = await site.client.delete(site.url + "/mcp", headers=headers)

    assert deleted.status_code == 204
    assert (after.status_code, again.status_code) == (404, 404)


async def test_a_stale_session_id_does_not_keep_a_client_from_beginning_anew() -> None:
    async with staged() as (_, site):
        response = await site.post(initialize(), {"mcp-session-id": "stale"})

    assert response.status_code == 200
    assert response.headers["mcp-session-id"] != "stale"


async def test_a_session_belongs_to_its_principal() -> None:
    server = Server("two")
    app = server.asgi(principal=lambda scope: dict(scope["headers"])[b"x-user"].decode())
    async with serving(app) as site:
        site.client.headers["x-user"] = "ann"
        headers = await site.session()
        mine = await site.post(request("ping"), headers)
        site.client.headers["x-user"] = "bob"
        stolen = await site.post(request("ping"), headers)
        unknown = await site.post(request("ping"), headers | {"mcp-session-id": "?"})
        listening = await site.client.get(site.url + "/mcp", headers=headers | STREAM)
        ending = await site.client.delete(site.url + "/mcp", headers=headers)
        site.client.headers["x-user"] = "ann"
        still = await site.post(request("ping"), headers)

    assert mine.status_code == still.status_code == 200
    assert stolen.status_code == listening.status_code == ending.status_code == 404
    assert stolen.content == unknown.content


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_bad_version_header_is_a_bare_400(method: str) -> None:
    async with staged() as (_, site):
        headers = await site.session() | {"mcp-protocol-version": "not-a-version"}
        body = json.dumps(request("ping")).encode() if method == "POST" else None
        response = await site.client.request(
            method,
            site.url + "/mcp",
            content=body,
            headers={"content-type": "application/json", **STREAM, **headers},
        )

    assert (response.status_code, response.content) == (400, b"")


async def test_errors_are_ordinary_answers_because_404_would_end_the_session() -> None:
    async with staged() as (_, site):
        headers = await site.session()
        unknown_method = await site.post(request("no/such"), headers)
        unknown_tool = await site.post(tool_call("nope"), headers)

    assert unknown_method.status_code == unknown_tool.status_code == 200
    assert unknown_method.json()["error"]["code"] == -32601
    assert unknown_tool.json()["error"]["code"] == -32602


BAD = {
    "broken JSON": (b"{", -32700),
    "not a message": (b"7", -32600),
    "a batch where none is allowed": (json.dumps([request("ping")]).encode(), -32600),
    "a wrong jsonrpc": ({**request("ping"), "jsonrpc": 2}, -32600),
    "a null id": ({**request("ping"), "id": None}, -32600),
    "params of the wrong type": ({**request("ping"), "params": "x"}, -32602),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_input_is_refused_and_the_session_goes_on(case: str) -> None:
    message, code = BAD[case]
    async with staged() as (_, site):
        headers = await site.session()
        response = await site.post(message, headers)
        after = await site.post(request("ping"), headers)

    assert (response.status_code, response.json()["error"]["code"]) == (400, code)
    assert after.status_code == 200


async def test_an_id_already_in_flight_in_the_session_is_refused() -> None:
    async with staged() as (stage, site):
        headers = await site.session()
        other = await site.session()
        waiting = asyncio.create_task(site.post(tool_call("wait", id=5), headers))
        await soon(stage.entered)
        same = await site.post(tool_call("echo", id=5, text="x"), headers)
        elsewhere = await site.post(tool_call("echo", id=5, text="x"), other)
        stage.go_on.set()
        first = await waiting

    assert (same.status_code, same.json()["error"]["code"]) == (400, -32600)
    assert elsewhere.json()["result"]["content"][0]["text"] == "x"
    assert first.json()["result"]["content"][0]["text"] == "waited"


async def test_a_cancelled_call_gets_no_answer_and_its_response_ends() -> None:
    async with staged() as (stage, site):
        headers = await site.session()
        waiting = asyncio.create_task(site.post(tool_call("wait", id=5), headers))
        await soon(stage.entered)
        note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
        accepted = await site.post(note, headers)
        await soon(stage.cancelled)
        ended = await waiting

    assert accepted.status_code == 202
    assert b"jsonrpc" not in ended.content


async def test_a_call_cancelled_before_its_first_step_is_over_too() -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
    async with staged() as (stage, site):
        headers = await site.session()
        call, cancel = await site.connect(), await site.connect()
        call[1].write(post_bytes(tool_call("wait", id=5), headers, close=True))
        cancel[1].write(post_bytes(note, headers, close=True))
        # If the cancellation was read first, there was nothing to cancel.
        stage.go_on.set()
        answer = await asyncio.wait_for(call[0].read(), 20)
        for _, writer in (call, cancel):
            writer.close()

    assert answer.startswith(b"HTTP/1.1 200")


async def test_a_question_travels_on_the_stream_of_its_call_and_the_answer_by_post() -> None:
    async with staged() as (_, site):
        headers = await site.session(capabilities={"elicitation": {}})
        async with site.streamed(tool_call("ask"), headers) as stream:
            question = await stream.message()
            answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
            accepted = await site.post(answer, headers)
            result = await stream.message()

    assert question["method"] == "elicitation/create"
    assert (accepted.status_code, accepted.content) == (202, b"")
    assert result["result"]["content"][0]["text"] == "decline"


async def test_a_question_dies_with_its_session() -> None:
    async with staged() as (_, site):
        headers = await site.session(capabilities={"elicitation": {}})
        async with site.streamed(tool_call("ask"), headers) as stream:
            await stream.message()
            await site.client.delete(site.url + "/mcp", headers=headers)
            assert await stream.events() == []


async def test_changes_come_over_the_get_stream() -> None:
    async with staged() as (stage, site):
        headers = await site.session()
        async with site.streamed(None, headers | STREAM, "GET") as stream:
            primed = await stream.event()
            stage.server.remove_tool("fail")
            notification = await stream.message()

    assert primed["data"] == ""
    assert int(primed["retry"]) > 0
    assert notification == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


async def test_changes_wait_for_a_client_that_is_not_listening_yet_and_are_told_once() -> None:
    async with staged() as (stage, site):
        headers = await site.session()
        for name in ("fail", "talk", "echo"):
            stage.server.remove_tool(name)
        async with site.streamed(None, headers | STREAM, "GET") as stream:
            first = await stream.message()
            stage.server.remove_tool("ask")
            second = await stream.message()
            await site.client.delete(site.url + "/mcp", headers=headers)
            rest = await stream.events()

    assert first["method"] == second["method"] == "notifications/tools/list_changed"
    assert rest == []


async def test_of_several_get_streams_one_is_told() -> None:
    async with staged() as (stage, site):
        headers = await site.session("2025-06-18")
        async with site.streamed(None, headers | STREAM, "GET") as older:
            async with site.streamed(None, headers | STREAM, "GET") as newer:
                stage.server.remove_tool("fail")
                await newer.message()
            stage.server.remove_tool("echo")  # the newer one may still seem open: see below
            await site.post(request("ping"), headers)
            stage.server.remove_tool("talk")
            assert (await older.message())["method"] == "notifications/tools/list_changed"
            await site.client.delete(site.url + "/mcp", headers=headers)
            rest = await older.events()

    assert len(rest) <= 1  # not the one that the newer stream received


@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_older_clients_get_no_event_without_data(version: str) -> None:
    async with staged() as (_, site):
        headers = await site.session(version, capabilities={"elicitation": {}, "roots": {}})
        call = tool_call("talk", times=1)
        call["params"]["_meta"] = {"progressToken": 1}
        async with site.streamed(call, headers) as stream:
            events = await stream.events()

    assert [bool(event["data"]) for event in events] == [True, True]
    assert len({event["id"] for event in events}) == 2


async def test_a_batch_gets_one_array_of_answers() -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    batch: list[Any] = [request("ping", id=1), note, tool_call("echo", id="b", text="x"), 7]
    async with staged() as (_, site):
        headers = await site.session("2025-03-26")
        response = await site.post(batch, headers)
        silent = await site.post([note], headers)

    answers = {json.dumps(answer.get("id")): answer for answer in response.json()}
    assert response.headers["content-type"] == "application/json"
    assert answers["1"]["result"] == {}
    assert answers['"b"']["result"]["content"][0]["text"] == "x"
    assert answers["null"]["error"]["code"] == -32600
    assert (silent.status_code, silent.content) == (202, b"")


async def test_a_batch_whose_members_talk_becomes_a_stream() -> None:
    call = tool_call("talk", id=1, times=1)
    call["params"]["_meta"] = {"progressToken": 1}
    async with staged() as (_, site):
        headers = await site.session("2025-03-26")
        message: Any = [call, request("ping", id=2)]
        async with site.streamed(message, headers) as stream:
            events = [json.loads(event["data"]) for event in await stream.events()]

    assert events[0]["method"] == "notifications/progress"
    assert {answer["id"] for answer in events[1]} == {1, 2}


async def test_a_batch_may_not_be_too_long_nor_contain_initialize() -> None:
    async with staged() as (_, site):
        headers = await site.session("2025-03-26")
        long = await site.post([request("ping", id=n) for n in range(MAX_BATCH + 1)], headers)
        nested = await site.post([initialize("2025-03-26")], headers)

    assert long.status_code == 400
    assert nested.json()[0]["error"]["code"] == -32600


async def test_both_eras_share_one_endpoint() -> None:
    async with staged() as (_, site):
        headers = await site.session()
        legacy = await site.post(request("tools/list"), headers)
        current = await site.modern(
            modern("tools/list"), {"mcp-session-id": headers["mcp-session-id"]}
        )

    assert "resultType" not in legacy.json()["result"]
    assert current.json()["result"]["resultType"] == "complete"


@pytest.mark.parametrize("message", [request("tools/list"), tool_call("echo", text="hi")])
async def test_a_client_that_would_rather_have_events_gets_them(message: dict[str, Any]) -> None:
    events_first = {"accept": "text/event-stream, application/json"}
    async with staged() as (_, site):
        headers = await site.session()
        async with site.streamed(message, headers | events_first) as stream:
            primed, answer = await stream.events()
        again = headers | STREAM | {"last-event-id": primed["id"]}
        async with site.streamed(None, again, "GET") as resumed:
            assert await resumed.events() == [answer]

    assert stream.response.headers["content-type"] == "text/event-stream"
    assert "result" in json.loads(answer["data"])


async def test_a_question_whose_call_is_cancelled_is_taken_back() -> None:
    async with staged() as (_, site):
        headers = await site.session(capabilities={"elicitation": {}})
        async with site.streamed(tool_call("ask", id=5), headers) as stream:
            question = await stream.message()
            cancel = {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": 5},
            }
            assert (await site.post(cancel, headers)).status_code == 202
            cancellation = await stream.message()
            rest = await stream.events()

    assert cancellation["method"] == "notifications/cancelled"
    assert cancellation["params"]["requestId"] == question["id"]
    assert rest == []


async def test_log_messages_follow_the_level_of_the_session() -> None:
    server = Server("logs")

    @server.tool
    async def chat(*, context: Context) -> str:
        await context.log("debug", "quiet")
        await context.log("error", "loud")
        return ""

    async with serving(server.asgi()) as site:
        headers = await site.session("2025-06-18")
        level = request("logging/setLevel", {"level": "warning"})
        assert (await site.post(level, headers)).json()["result"] == {}
        async with site.streamed(tool_call("chat"), headers) as stream:
            first = await stream.message()

    assert first["params"]["data"] == "loud"
