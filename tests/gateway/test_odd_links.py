"""Links that never answer, or answer twice: every request gets exactly one answer or none."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico import Answer, Context, Handler, Link, Request, Response
from portico.core.protocol.codec import encode
from portico.core.state.pending import Pending
from portico.edge.transport.pipes import StdioServer
from portico.library.chain.endpoint import ChainEndpoint
from tests.gateway.registries import LEGACY, MODERN, Client
from tests.gateway.test_links import ERAS, WAYS, answer_of, name_at, named, served, shop
from tests.support.backoff import until
from tests.support.messages import initialize, modern_meta, request


def calling_twice(next: Handler) -> Handler:
    """Calls the next handler twice, and returns the second answer."""

    async def handle(request: Request, context: Context) -> Response:
        if named(request):
            await next(request.calling(request.name), context)
        return await next(request, context)

    return handle


def awaiting_twice(next: Handler) -> Handler:
    async def handle(request: Request, context: Context) -> Response:
        answer = next(request, context)
        first = await answer
        return await answer if not asyncio.iscoroutine(answer) else first

    return handle


def awaiting_and_returning(next: Handler) -> Handler:
    """Waits for an answer in a task of its own, and returns it as well."""

    def handle(request: Request, context: Context) -> Answer:
        answer = next(request, context)
        if isinstance(answer, Pending):

            async def look() -> None:
                SEEN.append((await answer).result)

            TASKS.append(asyncio.ensure_future(look()))
        return answer

    return handle


SEEN: list[bytes] = []
TASKS: list[asyncio.Future[None]] = []


def answering_early(next: Handler) -> Handler:
    """Returns an answer of its own while the next handler still works on another."""

    def handle(request: Request, context: Context) -> Answer:
        if not named(request):
            return next(request, context)
        TASKS.append(asyncio.ensure_future(_finish(next(request, context))))
        result = b'{"content":[],"structuredContent":{"result":5},"resultType":"complete"}'
        return Response(id=request.id, result=result)

    return handle


async def _finish(answer: Answer) -> None:
    SEEN.append((await answer).result)


TWICE = [calling_twice, awaiting_twice, awaiting_and_returning, answering_early]


@pytest.mark.parametrize("link", TWICE, ids=lambda link: link.__name__)
@ERAS
@WAYS
async def test_a_link_that_answers_twice_sends_one_answer(
    link: Link, version: str, door: str, way: str
) -> None:
    called: list[Any] = []
    async with served(link, door=door, server=shop(called)) as endpoint:
        answer = await answer_of(endpoint, door, version, way)
        again = await answer_of(endpoint, door, version, way)
        await asyncio.gather(*TASKS)
    TASKS.clear()
    for one in (answer, again):
        assert one["result"]["structuredContent"] == {"result": 5}
    assert len(called) == (4 if link is calling_twice else 2)


def silent(next: Handler) -> Handler:
    """Never answers a call."""

    async def handle(request: Request, context: Context) -> Response:
        if named(request):
            HELD.append(request.id)
            try:
                await asyncio.Event().wait()
            finally:
                HELD.remove(request.id)
        return await next(request, context)

    return handle


def silent_at_once(next: Handler) -> Handler:
    """Returns an answer that never arrives."""

    class Never(Pending):
        def cancel(self) -> None:
            HELD.clear()
            super().cancel()

    def handle(request: Request, context: Context) -> Answer:
        if not named(request):
            return next(request, context)
        HELD.append(request.id)
        return Never()

    return handle


HELD: list[bytes] = []


class Line:
    """A client over stdio, without pipes."""

    def __init__(self, endpoint: ChainEndpoint, version: str) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.version = version
        self.server = StdioServer(endpoint, lambda parts: self.heard.put_nowait(b"".join(parts)))

    def send(self, method: str, params: dict[str, Any], id: int | None = None) -> None:
        if self.version == MODERN:
            params = {**params, "_meta": modern_meta()}
        message = request(method, params, id)
        if id is None:
            del message["id"]
        self.server.received(encode(message) + b"\n")

    async def hello(self) -> None:
        if self.version == LEGACY:
            self.server.received(encode(initialize(LEGACY)) + b"\n")
            await self.heard.get()


@asynccontextmanager
async def line_at(link: Link, door: str, version: str) -> AsyncGenerator[Line, None]:
    HELD.clear()
    async with served(link, door=door) as endpoint:
        line = Line(endpoint, version)
        await line.hello()
        yield line


EACH_SILENT = pytest.mark.parametrize(
    "link", [silent, silent_at_once], ids=lambda one: one.__name__
)
EACH_DOOR = pytest.mark.parametrize("door", ["search", "all", "group", "alone", "members", "wrap"])


@EACH_SILENT
@ERAS
@EACH_DOOR
async def test_a_call_that_a_link_never_answers_holds_up_no_other(
    link: Link, version: str, door: str
) -> None:
    async with line_at(link, door, version) as line:
        call = {"name": name_at(door), "arguments": {"a": 2, "b": 3}}
        line.send("tools/call", call, 1)
        line.send("tools/list", {}, 2)
        assert b'"id":2' in await line.heard.get()
        assert HELD == [b"1"]
        line.send("notifications/cancelled", {"requestId": 1})
        line.send("tools/list", {}, 3)
        assert b'"id":3' in await line.heard.get()
        await until(lambda: not HELD)
        line.send("tools/call", call, 4)
        line.send("tools/list", {}, 5)
        assert b'"id":5' in await line.heard.get()
        line.server.disconnected()
        await until(lambda: not HELD)
    assert line.heard.empty()


@ERAS
async def test_an_answer_can_be_awaited_by_several(version: str) -> None:
    async with served(door="wrap") as endpoint:
        client = Client(endpoint, version)
        if version == LEGACY:
            await client.hello()
        await client.call("add", a=1, b=1)  # from now on there is a connection
        asked = Request(method="tools/call", id=b"7", name="add", params=b'{"name":"add"}')
        answer = endpoint.handle(asked, Context(session=client.session))
        first, second = await asyncio.gather(_result(answer), _result(answer))
        assert first == second
        assert (await answer).result == first


async def _result(answer: Answer) -> bytes:
    return (await answer).result
