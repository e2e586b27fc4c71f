"""Legacy streams outlive their connections: missed events are sent again."""

import asyncio
import json
from typing import Any

import pytest

from portico import Context, Server
from portico.edge.transport.http_limits import HttpLimits
from tests.support.messages import request
from tests.support.stage import staged
from tests.support.web import Site, serving, soon, tool_call

STREAM = {"accept": "text/event-stream"}


def talking(name: str, **arguments: Any) -> dict[str, Any]:
    call = tool_call(name, **arguments)
    call["params"]["_meta"] = {"progressToken": "p"}
    return call


def after(headers: dict[str, str], id: str) -> dict[str, str]:
    return headers | STREAM | {"last-event-id": id}


async def test_a_dropped_connection_is_no_cancel_and_the_answer_waits() -> None:
    async with staged() as (stage, site):
        headers = await site.session()
        async with site.streamed(talking("wait", talk_first=True), headers) as stream:
            seen = [await stream.event(), await stream.event()]  # priming, progress
            await soon(stage.entered)
        stage.go_on.set()
        async with site.streamed(None, after(headers, seen[-1]["id"]), "GET") as resumed:
            rest = await resumed.events()

    assert not stage.cancelled.is_set()
    assert [json.loads(event["data"])["id"] for event in rest] == [1]
    assert rest[0]["id"] not in [event["id"] for event in seen]


@pytest.mark.parametrize("missed", [0, 1, 2, 3])
async def test_what_was_missed_is_told_again_in_order(missed: int) -> None:
    async with staged() as (_, site):
        headers = await site.session()
        async with site.streamed(talking("talk", times=3), headers) as stream:
            events = await stream.events()
        last = events[len(events) - 1 - missed]
        async with site.streamed(None, after(headers, last["id"]), "GET") as resumed:
            again = await resumed.events()

    assert again == (events[-missed:] if missed else [])


async def test_a_call_that_finishes_while_its_client_listens_again_is_answered_there() -> None:
    async with staged() as (stage, site):
        headers = await site.session()
        async with site.streamed(talking("wait", talk_first=True), headers) as stream:
            await stream.event()
            last = await stream.event()
        async with site.streamed(None, after(headers, last["id"]), "GET") as resumed:
            stage.go_on.set()
            answer = await resumed.message()

    assert answer["result"]["content"][0]["text"] == "waited"


async def test_a_stream_gets_back_only_its_own_events() -> None:
    async with staged() as (_, site):
        headers = await site.session()
        async with site.streamed(talking("talk", id="a", times=1), headers) as one:
            first = await one.events()
        async with site.streamed(talking("talk", id="b", times=1), headers) as two:
            second = await two.events()
        async with site.streamed(None, after(headers, first[0]["id"]), "GET") as resumed:
            again = await resumed.events()

    assert again == first[1:]
    assert not {event["id"] for event in first} & {event["id"] for event in second}


async def test_a_get_stream_can_be_resumed_too() -> None:
    async with staged() as (stage, site):
        headers = await site.session()
        async with site.streamed(None, headers | STREAM, "GET") as stream:
            primed = await stream.event()
            stage.server.remove_tool("fail")
            missed = await stream.event()
        async with site.streamed(None, after(headers, primed["id"]), "GET") as resumed:
            assert await resumed.event() == missed
            stage.server.remove_tool("echo")
            assert (await resumed.event())["id"] != missed["id"]


@pytest.mark.parametrize("id", ["99-1", "nonsense", "1-x", "-", "1-" + "9" * 30])
async def test_an_event_id_that_is_not_ours_is_refused(id: str) -> None:
    async with staged() as (_, site):
        headers = await site.session()
        response = await site.client.get(site.url + "/mcp", headers=after(headers, id))
        alive = await site.post(request("ping"), headers)

    assert response.status_code == 400
    assert "Last-Event-ID" in response.json()["error"]["message"]
    assert alive.status_code == 200


async def test_events_of_another_session_cannot_be_had() -> None:
    async with staged() as (_, site):
        mine, theirs = await site.session(), await site.session()
        async with site.streamed(talking("talk", times=1), mine) as stream:
            events = await stream.events()
        response = await site.client.get(site.url + "/mcp", headers=after(theirs, events[0]["id"]))

    assert response.status_code == 400


async def test_what_is_kept_of_a_stream_is_bounded_and_the_answer_is_kept_longest() -> None:
    async with staged(HttpLimits(replay_events=3)) as (_, site):
        headers = await site.session()
        async with site.streamed(talking("talk", times=10), headers) as stream:
            events = await stream.events()
        async with site.streamed(None, after(headers, events[0]["id"]), "GET") as resumed:
            again = await resumed.events()

    assert again == events[-3:]


async def test_what_a_session_keeps_is_bounded_and_its_oldest_stream_goes_first() -> None:
    async with staged(HttpLimits(session_replay_bytes=1000)) as (_, site):
        headers = await site.session()
        ids = []
        for id in range(3):
            async with site.streamed(talking("talk", id=id, times=3), headers) as stream:
                ids.append((await stream.events())[0]["id"])
        statuses = [
            (await site.client.get(site.url + "/mcp", headers=after(headers, id))).status_code
            for id in ids
        ]

    assert statuses == [400, 400, 200]


async def test_what_all_sessions_keep_is_bounded_and_the_oldest_goes_first() -> None:
    async with staged(HttpLimits(all_replay_bytes=1000)) as (_, site):
        sessions = [await site.session() for _ in range(3)]
        ids = []
        for headers in sessions:
            async with site.streamed(talking("talk", id=1, times=3), headers) as stream:
                ids.append((await stream.events())[0]["id"])
        statuses = [
            (await site.client.get(site.url + "/mcp", headers=after(headers, id))).status_code
            for headers, id in zip(sessions, ids, strict=True)
        ]

    assert statuses == [400, 400, 200]


async def reconnecting() -> Server:
    server = Server("poll")

    @server.tool
    async def slow(*, context: Context) -> str:
        close = getattr(context.peer, "close_stream", None)
        if close is not None:
            await close()
        return "done"

    return server


async def test_a_handler_may_end_its_response_and_the_client_comes_back_for_the_rest() -> None:
    async with serving((await reconnecting()).asgi(limits=HttpLimits(retry_ms=7))) as site:
        headers = await site.session()
        async with site.streamed(tool_call("slow"), headers) as stream:
            events = await stream.events()
        async with site.streamed(None, after(headers, events[0]["id"]), "GET") as resumed:
            answer = await resumed.message()

    assert [(event["data"], event["retry"]) for event in events] == [("", "7")]
    assert answer["result"]["content"][0]["text"] == "done"


async def test_a_client_that_would_not_come_back_keeps_its_response() -> None:
    async with serving((await reconnecting()).asgi()) as site:
        headers = await site.session("2025-06-18")
        response = await site.post(tool_call("slow"), headers)

    assert response.json()["result"]["content"][0]["text"] == "done"


async def test_a_client_that_comes_back_takes_over_from_a_connection_that_stopped_reading() -> None:
    server = Server("flood")
    big = "x" * 200_000
    finished = asyncio.Event()

    @server.tool
    async def flood(*, context: Context) -> str:
        for number in range(40):
            await context.progress(number, message=big)
        finished.set()
        return "all of it"

    limits = HttpLimits(
        replay_events=100, replay_bytes=100_000_000, session_replay_bytes=100_000_000
    )
    async with serving(server.asgi(limits=limits)) as site:
        headers = await site.session()
        async with site.streamed(talking("flood"), headers) as stuck:
            primed = await stuck.event()
            # The rest is not read: the handler soon waits for a reader.
            await _ping_until_blocked(site, headers)
            assert not finished.is_set()
            async with site.streamed(None, after(headers, primed["id"]), "GET") as resumed:
                events = await resumed.events()

    assert len(events) == 41
    assert json.loads(events[-1]["data"])["result"]["content"][0]["text"] == "all of it"


async def _ping_until_blocked(site: Site, headers: dict[str, str]) -> None:
    for _ in range(20):
        await site.post(request("ping"), headers)


async def test_a_call_dropped_before_it_said_anything_runs_on() -> None:
    async with staged() as (stage, site):
        headers = await site.session()
        dropped = asyncio.create_task(site.post(tool_call("wait", id=9), headers))
        await soon(stage.entered)
        dropped.cancel()
        await asyncio.gather(dropped, return_exceptions=True)
        same = await site.post(tool_call("echo", id=9, text=""), headers)
        stage.go_on.set()

    assert same.status_code == 400  # its id is still in flight
    assert not stage.cancelled.is_set()
