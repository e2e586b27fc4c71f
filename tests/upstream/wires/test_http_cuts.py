"""What is cut, lost or never accepted on the way to a URL: told at once, taken up, done once."""

import asyncio
from collections.abc import Callable

import pytest

from portico.core.model.context import Context
from portico.core.model.errors import TargetError
from portico.core.model.message import Request
from portico.core.model.session import Session
from portico.core.model.version import Version
from portico.edge.client.connect import connect
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.upstream import Upstream
from portico.upstream.wires.streamable_http import Url
from portico.upstream.wires.wire import Failure, Outgoing
from tests.support.backoff import until
from tests.upstream.connections.fakes import WAIT_S, legacy, result
from tests.upstream.connections.web_server import Asked, event, reply, stream, web_server
from tests.upstream.connections.web_talks import FINE, QUICK, Writer, legacy_server, refuse


class Failing:
    """A receiver that fails with each message, and keeps what else it is told."""

    answered = 0

    def __init__(self) -> None:
        self.told: asyncio.Queue[tuple[bytes, Failure]] = asyncio.Queue()

    def received(self, message: bytes, about: bytes = b"") -> None:
        raise ValueError("oh no")

    def malformed(self, remains: bytes, why: str) -> None:
        raise AssertionError(why)

    def failed(self, id: bytes, failure: Failure) -> None:
        self.told.put_nowait((id, failure))

    def lost(self, failure: Failure) -> None:
        self.told.put_nowait((b"", failure))

    def stream_closed(self, id: bytes) -> None:
        raise AssertionError(id)

    def is_pending(self, id: bytes) -> bool:
        return True


async def test_an_answer_that_cannot_be_taken_in_fails_its_request_at_once() -> None:
    async def talk(asked: Asked, writer: Writer) -> None:
        reply(writer, 200, result(asked.message, FINE))

    async with web_server(talk) as server:
        wire, receiver = Url(server.url).wire(), Failing()
        await wire.open(receiver)
        assert wire.send_now(Outgoing(b'{"jsonrpc":"2.0","id":7,"method":"x"}', b"7"))
        id, failure = await asyncio.wait_for(receiver.told.get(), WAIT_S)
        await wire.close()
    assert (id, failure.kind) == (b"7", "failed")


async def test_events_that_cannot_be_taken_in_end_the_old_transport_and_are_told() -> None:
    is_open = asyncio.Event()

    async def talk(asked: Asked, writer: Writer) -> None:
        stream(writer, event(b"/messages", kind="endpoint"))
        await is_open.wait()
        writer.write(event(b"{}"))

    async with web_server(talk) as server:
        wire, receiver = Url(server.url).older(), Failing()
        await wire.open(receiver)
        is_open.set()
        id, failure = await asyncio.wait_for(receiver.told.get(), WAIT_S)
        await wire.close()
    assert (id, failure.kind) == (b"", "failed")


@pytest.mark.parametrize("older", [False, True])
async def test_a_server_that_does_not_accept_a_notice_is_not_waited_for_without_end(
    older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("portico.upstream.wires.http_client.ACCEPT_S", 0.2)

    async def talk(asked: Asked, writer: Writer) -> None:
        if asked.verb == "GET":
            stream(writer, event(b"/messages", kind="endpoint"))
        await asyncio.Event().wait()

    async with web_server(talk) as server:
        wire = Url(server.url).older() if older else Url(server.url).wire()
        await wire.open(Failing())
        with pytest.raises(TargetError, match=r"did not accept a message within 0\.2 s"):
            await wire.send(Outgoing(b'{"jsonrpc":"2.0","method":"notifications/cancelled"}'))
        await wire.close()


PRIMING = b"id: 1\nretry: 20\ndata: \n\n"


def chunked(writer: Writer, data: bytes) -> None:
    """The beginning of a stream whose end would be told."""
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    writer.write(head + b"%x\r\n%b\r\n" % (len(data), data))


@pytest.mark.parametrize("begin", [stream, chunked])
@pytest.mark.parametrize("kept", [0, 4, 6, 12, 30])
async def test_a_stream_that_is_cut_within_an_event_is_taken_up_before_it(
    begin: Callable[[Writer, bytes], None], kept: int
) -> None:
    answers: list[bytes] = []
    resumed: list[str] = []

    async def call(asked: Asked, writer: Writer) -> None:
        answers.append(event(result(asked.message, FINE), id="2"))
        begin(writer, PRIMING + answers[0][:kept])
        await writer.drain()
        writer.close()

    async def get(asked: Asked, writer: Writer) -> None:
        if "last-event-id" not in asked.headers:
            reply(writer, 405)
            return
        resumed.append(asked.headers["last-event-id"])
        stream(writer, answers[0])
        writer.close()

    async with (
        web_server(legacy_server(call, get)) as server,
        await connect(Url(server.url), limits=QUICK) as client,
    ):
        assert await client.call_tool("t") == FINE
    assert resumed == ["1"]


def whole(writer: Writer, data: bytes) -> None:
    """A stream from its beginning to its end, at once."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked"
    writer.write(b"%b\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (head, len(data), data))


async def test_a_stream_that_comes_at_once_is_taken_in_or_up_like_any_other() -> None:
    said: list[object] = []
    calls: list[Asked] = []

    async def call(asked: Asked, writer: Writer) -> None:
        calls.append(asked)
        params = {"progressToken": asked.message["params"]["_meta"]["progressToken"], "progress": 1}
        notice = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
        answer = event(result(asked.message, FINE), id="2")
        name = asked.message["params"]["name"]
        whole(writer, PRIMING + event(notice) + (answer if name == "whole" else answer[:20]))

    async def get(asked: Asked, writer: Writer) -> None:
        if "last-event-id" not in asked.headers:
            reply(writer, 405)
        else:
            whole(writer, event(result(calls[-1].message, FINE), id="2"))

    async with (
        web_server(legacy_server(call, get)) as server,
        await connect(Url(server.url), limits=QUICK) as client,
    ):
        for name in ("whole", "whole", "cut"):
            assert await client.call_tool(name, progress=said.append) == FINE
    assert len(said) == len(calls) == 3


async def test_a_server_is_listened_to_again_however_often_that_is_cut() -> None:
    heard = asyncio.Semaphore(0)
    gets = 0

    async def get(asked: Asked, writer: Writer) -> None:
        nonlocal gets
        gets += 1
        if gets % 2:
            writer.transport.abort()
            return
        stream(writer, b"retry: 10\n", event({"jsonrpc": "2.0", "method": "notifications/message"}))
        await writer.drain()
        heard.release()
        writer.close()

    async with (
        web_server(legacy_server(refuse, get)) as server,
        await connect(Url(server.url), limits=QUICK),
        asyncio.timeout(WAIT_S),
    ):
        for _ in range(5):
            await heard.acquire()


async def test_a_stream_that_is_cut_and_cannot_be_taken_up_fails_at_once_with_both_reasons() -> (
    None
):
    async def call(asked: Asked, writer: Writer) -> None:
        chunked(writer, PRIMING)
        await writer.drain()
        writer.transport.abort()

    async with (
        web_server(legacy_server(call)) as server,
        await connect(Url(server.url), limits=QUICK) as client,
    ):
        with pytest.raises(
            TargetError, match="dropped the connection, then returned HTTP 405"
        ) as it:
            await client.call_tool("t")
    assert it.value.kind == "network"


async def test_a_call_under_way_when_another_meets_the_lost_session_runs_only_once() -> None:
    ran: list[str] = []
    began, forgotten = asyncio.Event(), asyncio.Event()

    async def call(asked: Asked, writer: Writer) -> None:
        name = asked.message["params"]["name"]
        if name == "second" and not forgotten.is_set():
            forgotten.set()
            reply(writer, 404)
            return
        ran.append(name)
        if name == "first":
            began.set()
            await forgotten.wait()
        reply(writer, 200, result(asked.message, FINE))

    def asked_for(name: str) -> Request:
        params = f'{{"name":"{name}"}}'.encode()
        return Request(method="tools/call", id=b"1", params=params, name=name)

    async with web_server(legacy_server(call)) as server:
        upstream = Upstream(Url(server.url), UpstreamPolicy())
        session = Session(lambda _: None)
        session.version = Version.V2025_11_25
        try:
            first = asyncio.create_task(
                upstream.relay(asked_for("first"), Context(session=session))
            )
            await asyncio.wait_for(began.wait(), WAIT_S)
            second = await upstream.relay(asked_for("second"), Context(session=session))
            assert [second.decode()["result"], (await first).decode()["result"]] == [FINE, FINE]
        finally:
            await upstream.close()
    assert ran == ["first", "second"]


async def test_a_session_that_is_gone_when_its_stream_is_taken_up_is_begun_anew() -> None:
    """A server that was started again, say: who follows a resource must not wait for a call."""
    sessions, opened = 0, 0

    async def talk(asked: Asked, writer: Writer) -> None:
        nonlocal sessions, opened
        if asked.method == "initialize":
            sessions += 1
            greeting = legacy(asked.message, resources={"subscribe": True})[0]
            reply(writer, 200, greeting, mcp_session_id=f"s{sessions}")
        elif asked.method == "resources/subscribe":
            reply(writer, 200, result(asked.message, {}))
        elif asked.verb != "GET":
            reply(writer, 202)
        elif asked.headers["mcp-session-id"] == "s1" and opened:
            reply(writer, 404)
        else:
            opened += 1
            stream(writer, b"retry: 1\n\n")
            if opened == 1:
                writer.close()

    async with web_server(talk) as server:
        upstream = Upstream(Url(server.url), UpstreamPolicy(era="legacy"))
        follow = Request(method="resources/subscribe", id=b"1", params=b'{"uri":"note://a"}')
        follow.uri = "note://a"
        session = Session(lambda _: None)
        session.version = Version.V2025_11_25
        try:
            await upstream.relay(follow, Context(session=session))
            async with asyncio.timeout(WAIT_S):
                await until(lambda: server.methods().count("resources/subscribe") == 2)
        finally:
            await upstream.close()
    assert opened == 2
