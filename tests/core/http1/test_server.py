"""The HTTP server alone, on a real socket, with a small endpoint."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from portico.core.http1.connection_cap import ConnectionCap
from portico.core.http1.memory_budget import MemoryBudget
from portico.core.http1.port import BodyReceiver, ResponseWriter, Scope
from portico.core.http1.server import Http1Server
from portico.core.http1.server_limits import ServerLimits
from portico.edge.transport.http_server import bind
from tests.support.backoff import until
from tests.support.clock import Clock

WAIT_S = 60.0
MB = 1024 * 1024


class Body:
    """Keeps a body, and responds with it."""

    def __init__(self, writer: ResponseWriter) -> None:
        self.pieces: list[bytes] = []
        self.writer = writer

    def add(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def end(self) -> None:
        self.writer.answer(200, tuple(self.pieces))


class Paths:
    """Responds as the path says."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[ResponseWriter] = asyncio.Queue()
        self.left = asyncio.Event()
        self.served: list[str] = []

    def respond(self, scope: Scope, writer: ResponseWriter) -> BodyReceiver | None:
        self.served.append(scope["path"])
        match scope["path"]:
            case "/wait":
                writer.call = self
                self.waiting.put_nowait(writer)
            case "/fail":
                raise ValueError("oh no")
            case "/none":
                writer.answer(204, ())
            case "/stream":
                writer.begin_stream(((b"content-type", b"text/plain"),))
                writer.send_chunk(b"one")
                writer.send_chunk(b"")
                writer.send_chunk(b"two", last=True)
            case "/begun":
                writer.begin_stream(())
                raise ValueError("too late")
            case "/large":
                writer.answer(200, (b"x" * MB,))
            case "/body":
                return Body(writer)
            case path:
                writer.answer(200, (path.encode(),))
        return None

    def on_disconnect(self) -> None:
        self.left.set()


class Site:
    """A served endpoint."""

    def __init__(self, paths: Paths, server: Http1Server, port: int) -> None:
        self.paths = paths
        self.server = server
        self.port = port

    async def raw(self, data: bytes) -> bytes:
        """Send these bytes, and read until the connection closes; the date is left out."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        answers = await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()
        lines = answers.split(b"\r\n")
        return b"\r\n".join(line for line in lines if not line.startswith(b"date: "))


@asynccontextmanager
async def site(limits: ServerLimits | None = None) -> AsyncIterator[Site]:
    limits, paths = limits or ServerLimits(), Paths()
    cap, unread = ConnectionCap(limits), MemoryBudget(limits.unread_bytes)
    server = Http1Server(paths, limits, cap, unread)
    sockets = bind("127.0.0.1", 0)
    await server.start(sockets)
    try:
        yield Site(paths, server, sockets[0].getsockname()[1])
    finally:
        await server.close(WAIT_S)


def get(path: str, *lines: str, method: str = "GET", version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", *lines, "", ""]).encode()


LAST = get("/last", "connection: close")
LAST_ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
    b"content-length: 5\r\nconnection: close\r\n\r\n/last"
)


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (
            get("/a%20b?c=d"),
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\n/a b",
        ),
        (
            get("/a", method="HEAD"),
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n",
        ),
        (get("/none"), b"HTTP/1.1 204 No Content\r\ncontent-type: application/json\r\n\r\n"),
        (
            get("/stream"),
            b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n\r\n"
            b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n",
        ),
        (
            get("/body", "transfer-encoding: chunked", method="POST")
            + b"3\r\nabc\r\n1;x=y\r\nd\r\n0\r\nhost: other\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4\r\n\r\nabcd",
        ),
    ],
)
async def test_a_response_has_a_length_or_chunks_and_the_next_request_follows(
    data: bytes, answer: bytes
) -> None:
    async with site() as web:
        assert await web.raw(data + LAST) == answer + LAST_ANSWER


async def test_a_stream_to_http_1_0_ends_with_the_connection() -> None:
    async with site() as web:
        answer = await web.raw(get("/stream", "connection: keep-alive", version="1.0") + LAST)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\n"
    assert answer == head + b"onetwo"


@pytest.mark.parametrize(("path", "found"), [("/fail", b"500 Internal"), ("/begun", b"200 OK")])
async def test_a_failing_endpoint_is_reported_and_the_connection_closed(
    path: str, found: bytes
) -> None:
    reports: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, what: reports.append(repr(what["exception"])))
    async with site() as web:
        answer = await web.raw(get(path) + LAST)
    assert found in answer
    assert b"last" not in answer
    assert not answer.endswith(b"0\r\n\r\n")
    assert len(reports) == 1


async def test_requests_sent_at_once_are_answered_in_their_order() -> None:
    async with site() as web:
        answering = asyncio.create_task(web.raw(get("/wait") + get("/wait") + get("/b") + LAST))
        first = await web.paths.waiting.get()
        assert web.paths.waiting.empty()
        first.answer(200, (b"first",))
        (await web.paths.waiting.get()).answer(200, (b"second",))
        answer = await answering
    places = [answer.index(text) for text in (b"first", b"second", b"/b", b"/last")]
    assert places == sorted(places)


async def test_a_refusal_waits_for_the_response_before_it() -> None:
    async with site() as web:
        answering = asyncio.create_task(web.raw(get("/wait") + b"nonsense\r\n\r\n" + LAST))
        (await web.paths.waiting.get()).answer(200, (b"first",))
        answer = await answering
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert b"HTTP/1.1 400 Bad Request" in answer
    assert b"last" not in answer


async def test_a_late_response_never_answers_another_request() -> None:
    async with site() as web:
        _, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(get("/wait") + get("/wait"))
        first = await web.paths.waiting.get()
        first.answer(200, (b"first",))
        second = await web.paths.waiting.get()
        first.answer(200, (b"again",))
        first.send_chunk(b"again")
        assert second is not first
        writer.close()
        await asyncio.wait_for(web.paths.left.wait(), WAIT_S)
        second.answer(200, (b"to nobody",))


async def test_only_a_request_whose_body_is_wanted_is_invited_to_send_it() -> None:
    lines = ("expect: 100-continue", "content-length: 3")
    async with site() as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(get("/body", *lines, method="POST"))
        assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        writer.write(b"abc" + LAST)
        assert b"abc" in await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()
        # It may send the body or not, so nothing after it can be trusted.
        refused = await web.raw(get("/refused", *lines, method="POST"))
    assert b"connection: close" in refused
    assert b"100 Continue" not in refused


@pytest.mark.parametrize("at_once", [40, 1])
async def test_a_client_that_reads_no_responses_is_sent_no_more_of_them(at_once: int) -> None:
    async with site() as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(40 // at_once):
            writer.write(get("/large") * at_once)
            await web.raw(LAST)
        assert 0 < web.paths.served.count("/large") < 30
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        writer.write(LAST)
        answers = await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()
    assert answers.count(b"HTTP/1.1 200 OK") == 41
    assert answers.endswith(b"/last")


async def test_a_body_behind_a_pending_response_waits_with_its_sender() -> None:
    body = b"x" * 20 * MB  # more than the kernel takes
    async with site() as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        length = f"content-length: {len(body)}"
        writer.write(get("/wait") + get("/body", length, "connection: close", method="POST"))
        first = await web.paths.waiting.get()
        (connection,) = web.server.connections
        writer.write(body)
        unsent = -1
        while unsent != (unsent := writer.transport.get_write_buffer_size()):
            await web.raw(LAST)
        assert sum(len(piece) for each in connection.exchanges for piece in each.pieces) < MB
        first.answer(200, (b"first",))
        answers = await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()
    assert answers.endswith(body)


@pytest.mark.parametrize(
    ("rest", "found"),
    [(b"\r\n", b"/b"), (b"", b"408 Request Timeout")],
    ids=["sent meanwhile", "never sent"],
)
async def test_the_time_of_a_request_does_not_pass_while_it_waits_for_a_response(
    clock: Clock, rest: bytes, found: bytes
) -> None:
    async with site(ServerLimits(header_s=10, keep_alive_s=20)) as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(get("/wait") + get("/b", "connection: close")[:-2])
        first = await web.paths.waiting.get()
        writer.write(rest)
        await web.raw(LAST)
        await clock.advance(100)
        first.answer(200, (b"first",))
        await asyncio.wait_for(reader.readuntil(b"first"), WAIT_S)
        await clock.advance(21)
        assert found in await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()


CHUNKED = get("/a", "transfer-encoding: chunked", method="POST") + b"0\r\n"


@pytest.mark.parametrize(
    "begin", [CHUNKED, get("/wait") + get("/a")[:-2]], ids=["trailers", "headers"]
)
async def test_thousands_of_short_headers_or_trailers_take_no_memory(begin: bytes) -> None:
    async with site() as web:
        _, writer = await asyncio.open_connection("127.0.0.1", web.port)
        tracemalloc.start()
        try:
            writer.write(begin + b"ab:\r\n" * 30_000 + b"\r\n")
            await until(lambda: bool(web.paths.served))
            await web.raw(LAST)
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        writer.close()
    assert kept < MB


async def test_a_server_that_closes_waits_for_the_responses_that_are_pending() -> None:
    async with site() as web:
        answering = asyncio.create_task(web.raw(get("/wait")))
        writer = await web.paths.waiting.get()
        idle = await asyncio.open_connection("127.0.0.1", web.port)
        await until(lambda: len(web.server.connections) == 2)
        closing = asyncio.create_task(web.server.close(WAIT_S))
        assert await idle[0].read() == b""
        idle[1].close()
        assert not closing.done()
        writer.answer(200, (b"done",))
        await closing
        assert (await answering).endswith(b"done")


@pytest.mark.parametrize(
    "probe",
    [lambda server: server.cap, lambda server: server.connections],
)
async def test_nothing_is_left_of_closed_connections(
    probe: Callable[[Http1Server], "set[object]"],
) -> None:
    async with site() as web:
        for _ in range(10):
            await web.raw(LAST)
        await until(lambda: not probe(web.server))
        assert len(probe(web.server)) == 0
