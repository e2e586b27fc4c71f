"""Limits: bodies, headers, time, calls, streams, sessions, slow readers."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from portico import Context, Server
from portico.core.model.message import Request, Response
from portico.core.model.types import Handler
from portico.edge.transport.http_limits import HttpLimits
from portico.edge.transport.sessions import (
    MAX_NOTICE_BYTES,
    HttpSession,
    NotificationQueue,
    Sessions,
    ask_on,
)
from tests.support.clock import Clock
from tests.support.messages import initialize, modern, request
from tests.support.stage import staged
from tests.support.web import (
    WAIT_S,
    Site,
    listen,
    mirrored,
    modern_call,
    post_bytes,
    serving,
    soon,
    tool_call,
)

STREAM = {"accept": "text/event-stream"}
LIST = modern("tools/list")


async def test_a_body_over_the_limit_is_refused_by_its_declared_length() -> None:
    async with staged(HttpLimits(body_bytes=1000)) as (_, site):
        response = await site.post(b" " * 1001, mirrored(LIST))
        after = await site.modern(LIST)

    assert response.status_code == 413
    assert "1000" in response.json()["error"]["message"]
    assert after.status_code == 200


async def test_a_body_without_a_length_is_refused_as_soon_as_it_is_too_long() -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(200):
            yield b" " * 1000

    async with staged(HttpLimits(body_bytes=10_000)) as (_, site):
        response = await site.client.post(
            site.url + "/mcp", content=endless(), headers={"content-type": "application/json"}
        )
        after = await site.modern(LIST)

    assert response.status_code == 413
    assert after.status_code == 200


async def test_the_default_limit_of_a_body_is_4_mb() -> None:
    fits = json.dumps({**LIST, "pad": "x" * (4 * 1024 * 1024 - 1000)}).encode()
    async with staged() as (_, site):
        fitting = await site.post(fits, mirrored(LIST))
        large = await site.post(b" " * (4 * 1024 * 1024 + 1), mirrored(LIST))

    assert fitting.status_code == 200
    assert large.status_code == 413


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"0x10", b"99999999999999999999999"])
async def test_a_length_that_is_none_is_refused(length: bytes) -> None:
    async with staged() as (_, site):
        answer = await site.raw(
            b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: " + length + b"\r\nconnection: close\r\n\r\n"
        )

    assert answer.split()[1] in (b"400", b"413")


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with staged(HttpLimits(body_s=0.05)) as (_, site):
        data = post_bytes(LIST, mirrored(LIST))
        nothing = await site.raw(data[: data.index(b"\r\n\r\n") + 4])
        half = await site.raw(data[:-10])
        after = await site.modern(LIST)

    assert nothing.startswith(b"HTTP/1.1 408")
    assert half.startswith(b"HTTP/1.1 408")
    assert after.status_code == 200


async def test_a_body_that_is_not_wanted_is_not_waited_for_either() -> None:
    async with staged(HttpLimits(body_s=0.05)) as (_, site):
        data = post_bytes(LIST, mirrored(LIST) | {"content-type": "text/plain"})
        answer = await site.raw(data[:-10])

    assert answer.startswith(b"HTTP/1.1 415")
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_headers_that_do_not_come_are_not_waited_for() -> None:
    async with staged(HttpLimits(header_s=0.05)) as (_, site):
        silent = await site.raw(b"")
        half = await site.raw(b"POST /mcp HTTP/1.1\r\nhost: local")
        after = await site.modern(LIST)

    assert silent == b""
    assert half.startswith(b"HTTP/1.1 408")
    assert after.status_code == 200


async def test_an_idle_connection_is_closed() -> None:
    async with staged(HttpLimits(keep_alive_s=0.05, header_s=0.05)) as (_, site):
        answer = await site.raw(post_bytes(LIST, mirrored(LIST)))

    assert answer.startswith(b"HTTP/1.1 200")


async def test_headers_without_end_are_cut_off() -> None:
    async with staged(HttpLimits(header_bytes=10_000)) as (_, site):
        reader, writer = await site.connect()
        writer.write(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n")
        try:
            while not reader.at_eof() and not writer.is_closing():
                writer.write(b"x-more: " + b"x" * 1000 + b"\r\n")
                await writer.drain()
        except ConnectionError:
            pass  # disconnected while we were still writing
        after = await site.modern(LIST)
        writer.close()

    assert after.status_code == 200


async def test_too_many_headers_are_refused() -> None:
    async with staged() as (_, site):
        response = await site.modern(LIST, {f"x-{n}": "" for n in range(101)})

    assert response.status_code == 431


async def test_past_the_cap_calls_are_told_to_come_back() -> None:
    async with staged(HttpLimits(running=1)) as (stage, site):
        headers = await site.session()
        waiting = asyncio.create_task(site.modern(modern_call("wait")))
        await soon(stage.entered)
        refused = await site.modern(modern_call("echo", id="e", text=""))
        legacy = await site.post(tool_call("echo", text=""), headers)
        listed = await site.modern(LIST)
        stage.go_on.set()
        first = await waiting
        after = await site.modern(modern_call("echo", text="now"))

    assert refused.status_code == legacy.status_code == 503
    assert refused.headers["retry-after"]
    assert refused.json()["id"] == "e"
    assert listed.status_code == first.status_code == after.status_code == 200


async def test_past_the_cap_streams_are_refused_and_the_others_stay() -> None:
    message = listen(toolsListChanged=True)
    async with staged(HttpLimits(streams=1)) as (stage, site):
        headers = await site.session()
        async with site.streamed(message, mirrored(message)) as stream:
            await stream.message()
            refused = await site.modern(listen(2))
            legacy = await site.client.get(site.url + "/mcp", headers=headers | STREAM)
            old = await site.client.get(site.url + "/sse", headers=STREAM)
            stage.server.remove_tool("fail")
            sent = await stream.message()

    assert refused.status_code == legacy.status_code == old.status_code == 503
    assert sent["method"] == "notifications/tools/list_changed"


async def test_a_session_may_have_only_so_many_streams() -> None:
    async with staged(HttpLimits(session_streams=1)) as (stage, site):
        headers = await site.session()
        waiting = asyncio.create_task(site.post(tool_call("wait"), headers))
        await soon(stage.entered)
        refused = await site.post(tool_call("echo", id=2, text=""), headers)
        stage.go_on.set()
        await waiting
        after = await site.post(tool_call("echo", id=3, text=""), headers)

    assert (refused.status_code, after.status_code) == (503, 200)


async def test_past_the_cap_no_session_begins() -> None:
    async with staged(HttpLimits(sessions=2)) as (_, site):
        first = await site.session()
        for used in (first, await site.session()):
            await site.post(request("tools/list"), used)
        refused = await site.post(initialize())
        await site.client.delete(site.url + "/mcp", headers=first)
        after = await site.post(initialize())

    assert (refused.status_code, after.status_code) == (503, 200)


async def test_past_the_cap_the_oldest_session_that_nobody_used_makes_room() -> None:
    async with staged(HttpLimits(sessions=3)) as (_, site):
        used = await site.session()
        await site.post(request("tools/list"), used)
        unused = [await site.session(), await site.session()]
        newest = await site.post(initialize())
        statuses = [
            (await site.post(request("tools/list"), each)).status_code for each in (used, *unused)
        ]

    assert newest.status_code == 200
    assert statuses == [200, 404, 200]


async def test_a_session_that_listens_is_used() -> None:
    async with staged(HttpLimits(sessions=1)) as (_, site):
        headers = await site.session()
        async with site.streamed(None, headers | STREAM, "GET") as stream:
            await stream.event()
            refused = await site.post(initialize())

    assert refused.status_code == 503


async def test_handshakes_that_take_their_time_count_as_sessions() -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    def slow(inner: Handler) -> Handler:
        async def handle(request: Request, context: Context) -> Response:
            entered.set()
            await go_on.wait()
            return await inner(request, context)

        return handle

    async with serving(Server("slow").asgi([slow], limits=HttpLimits(sessions=1))) as site:
        first = asyncio.create_task(site.post(initialize()))
        await soon(entered)
        second = asyncio.create_task(site.post(initialize()))
        await asyncio.wait({second}, timeout=1)
        go_on.set()
        assert ((await first).status_code, (await second).status_code) == (200, 503)


async def test_sessions_that_nobody_uses_expire() -> None:
    now = 0.0
    sessions = Sessions(HttpLimits(session_idle_s=100, sessions=2), clock=lambda: now)
    old, used = sessions.create("me"), sessions.create("me")

    now = 60.0
    assert sessions.find(used.id.encode(), "me") is used
    now = 100.0
    assert sessions.make_room()  # which expires idle sessions

    assert sessions.find(old.id.encode(), "me") is None
    assert old.is_closed
    assert sessions.find(used.id.encode(), "me") is used
    sessions.close()


async def test_a_session_with_an_open_stream_is_in_use() -> None:
    now = 0.0
    sessions = Sessions(HttpLimits(session_idle_s=100), clock=lambda: now)
    session = sessions.create("me")
    session.open_requests = 1

    now = 500.0
    sessions.expire()

    assert sessions.find(session.id.encode(), "me") is session
    sessions.close()


async def test_an_idle_session_expires_by_itself(clock: Clock) -> None:
    async with staged(HttpLimits(session_idle_s=3)) as (_, site):
        response = await site.post(initialize())
        headers = {"mcp-session-id": response.headers["mcp-session-id"]}
        await clock.advance(3)
        after = await site.post(request("ping"), headers)

    assert after.status_code == 404


async def test_notices_wait_bounded_and_each_is_told_once() -> None:
    sent: list[bytes] = []
    all_told = asyncio.Event()

    async def send(message: bytes) -> None:
        sent.append(message)
        if not len(notices):
            all_told.set()

    notices = NotificationQueue(3, send)
    for message in (b"a", b"b", b"a", b"c", b"d", b"b", b"d"):
        notices.add(message)
    assert len(notices) == 3

    notices.has_reader = True
    notices.flush()
    await soon(all_told)

    assert sent == [b"b", b"c", b"d"]


async def test_large_notices_wait_bounded_and_the_latest_is_kept() -> None:
    sent: asyncio.Queue[bytes] = asyncio.Queue()
    notices = NotificationQueue(100, sent.put)
    half = b"." * (MAX_NOTICE_BYTES // 2)
    for name in (b"a", b"b", b"c"):
        notices.add(name + half)
    assert len(notices) == 1
    notices.add(b"d" + half + half)
    notices.has_reader = True
    notices.flush()
    assert (await sent.get())[:1] == b"d"
    assert sent.empty()


async def test_a_question_that_nobody_has_read_is_forgotten_with_its_call() -> None:
    session = HttpSession("id", "me", HttpLimits())
    blocked = asyncio.Event()

    class Stuck:
        async def send(self, message: bytes) -> None:
            await blocked.wait()

    asking = asyncio.create_task(
        ask_on(Stuck(), session.calls, "roots/list", b"{}")  # type: ignore[arg-type]
    )
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.sleep(0)
    blocked.set()
    await asyncio.wait({asking})
    assert not session.calls.questions


async def test_what_a_slow_get_stream_has_not_read_is_bounded() -> None:
    session = HttpSession("id", "me", HttpLimits(notices=10))
    blocked = asyncio.Event()

    class Stuck:
        async def send(self, message: bytes) -> None:
            await blocked.wait()

    stuck = Stuck()
    session.listen(stuck)  # type: ignore[arg-type]
    for number in range(1000):
        session.session.send(b"%d" % number)
        session.session.send(b"list_changed")
        await asyncio.sleep(0)

    assert len(session.notices) <= 10
    session.stop_listening(stuck)  # type: ignore[arg-type]
    blocked.set()


async def test_a_handler_waits_for_a_reader_that_is_slow() -> None:
    server = Server("flood")
    sent = 0
    entered = asyncio.Event()

    @server.tool
    async def flood(*, context: Context) -> str:
        nonlocal sent
        entered.set()
        while True:
            await context.progress(sent, message="x" * 100_000)
            sent += 1

    message = modern_call("flood")
    async with serving(server.asgi()) as site:
        _, writer = await _stuck(site, post_bytes(message, mirrored(message)))
        await soon(entered)
        tracemalloc.start()
        before = -1
        while sent != before:  # until it sends no more
            before = sent
            await site.modern(LIST)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        writer.transport.abort()

    assert sent < 400  # 40 MB would be more than all buffers between us
    assert peak < 20_000_000


async def test_a_reader_that_has_stopped_is_let_go() -> None:
    server = Server("flood")
    cancelled = asyncio.Event()

    @server.tool
    async def flood(*, context: Context) -> str:
        try:
            while True:
                await context.progress(0, message="x" * 100_000)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    message = modern_call("flood")
    async with serving(server.asgi(limits=HttpLimits(stall_s=0.05))) as site:
        _, writer = await _stuck(site, post_bytes(message, mirrored(message)))
        await soon(cancelled)
        writer.transport.abort()

    assert cancelled.is_set()


async def _stuck(site: Site, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client that sends a request and never reads the response."""
    reader, writer = await site.connect()
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(data)
    return reader, writer


async def test_each_of_many_clients_gets_its_own_answer() -> None:
    async with staged() as (_, site):
        headers = [await site.session() for _ in range(10)]

        async def ask(client: int, number: int) -> None:
            nonce = f"{client}-{number}"
            call = tool_call("echo", id=1, text=nonce)
            answer = (await site.post(call, headers[client])).json()
            assert answer["result"]["content"][0]["text"] == nonce
            answer = (await site.modern(modern_call("echo", id=1, text=nonce))).json()
            assert answer["result"]["content"][0]["text"] == nonce

        for number in range(5):
            turns = (ask(client, number) for client in range(10))
            await asyncio.wait_for(asyncio.gather(*turns), WAIT_S)


async def test_nothing_is_left_of_clients_that_came_and_left() -> None:
    message = modern_call("wait", talk_first=True)
    async with staged() as (stage, site):
        for _ in range(50):
            stage.cancelled.clear()
            async with site.streamed(message, mirrored(message)) as stream:
                await stream.message()
            await soon(stage.cancelled)
        load = site.app.load

        assert await load.wait_idle(WAIT_S)
        assert not load.tasks
        assert not site.app.bodies.used
