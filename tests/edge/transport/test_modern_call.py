"""Modern calls over our own connection and over ASGI: order, cancellation, streams."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.types import Answer
from portico.core.state.pending import Pending
from portico.edge.transport.http_app import HttpApp
from portico.edge.transport.http_limits import HttpLimits
from tests.support.clock import Clock
from tests.support.messages import modern
from tests.support.web import HEADERS, Site, mirrored, serving

Served = Callable[..., AbstractAsyncContextManager[Site]]


class Begun(Pending):
    """A call that the test ends."""

    def __init__(self, request: Request, context: Context) -> None:
        self.request = request
        self.context = context
        self.cancelled = asyncio.Event()

    def cancel(self) -> None:
        self.cancelled.set()

    def answer(self, text: str) -> None:
        self.arrived(Response(id=self.request.id, result=json.dumps({"said": text}).encode()))


class Endpoint:
    """Begins every call, or answers it from a coroutine with the word `slow`."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[Begun] = asyncio.Queue()
        self.refuses = False
        self.fails = False

    def handle(self, request: Request, context: Context) -> Answer:
        if self.fails:
            raise ValueError("oh no")
        if self.refuses:
            return self._slow(request)
        call = Begun(request, context)
        self.begun.put_nowait(call)
        return call

    async def _slow(self, request: Request) -> Response:
        return Response(id=request.id, result=b'{"said":"slow"}')


def call(id: int) -> dict[str, Any]:
    return modern("tools/call", {"name": "echo"}, id=id)


def raw(message: dict[str, Any]) -> bytes:
    body = json.dumps(message).encode()
    headers = {"host": "127.0.0.1", **HEADERS, **mirrored(message), "content-length": len(body)}
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(["POST /mcp HTTP/1.1", *lines, "", ""]).encode() + body


@pytest.fixture(params=["straight", "through ASGI"])
def served(request: pytest.FixtureRequest) -> Served:
    """Serve apps with one server or the other."""

    def serve(
        endpoint: Endpoint, limits: HttpLimits | None = None
    ) -> AbstractAsyncContextManager[Site]:
        app = HttpApp(endpoint, limits=limits)
        return serving(app, through_asgi=request.param != "straight")

    return serve


async def test_a_call_is_answered_as_json_with_its_id(served: Served) -> None:
    endpoint = Endpoint()
    async with served(endpoint) as web:
        answer = asyncio.create_task(web.modern(call(7)))
        (await endpoint.begun.get()).answer("hello")
        response = await answer
        assert response.headers["content-type"] == "application/json"
        assert response.json() == {"jsonrpc": "2.0", "id": 7, "result": {"said": "hello"}}
        endpoint.refuses = True
        assert (await web.modern(call(8))).json()["result"] == {"said": "slow"}


async def test_what_comes_before_the_answer_makes_it_a_stream(served: Served) -> None:
    endpoint = Endpoint()
    async with served(endpoint) as web:
        answer = asyncio.create_task(web.modern(call(1)))
        begun = await endpoint.begun.get()
        assert begun.context.peer is not None
        await begun.context.peer.notify(b'{"jsonrpc":"2.0","method":"notifications/x"}')
        begun.answer("last")
        response = await answer
    assert response.headers["content-type"] == "text/event-stream"
    data = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    assert json.loads(data[0]) == {"jsonrpc": "2.0", "method": "notifications/x"}
    assert json.loads(data[1])["result"] == {"said": "last"}


async def test_a_quiet_call_is_kept_alive(served: Served, clock: Clock) -> None:
    endpoint = Endpoint()
    async with served(endpoint, limits=HttpLimits(quiet_s=5)) as web:
        answer = asyncio.create_task(web.modern(call(1)))
        begun = await endpoint.begun.get()
        for _ in range(100):  # a stream is checked in its slot
            await clock.advance(0.1)
        begun.answer("late")
        response = await answer
    assert response.headers["content-type"] == "text/event-stream"
    assert response.content.startswith(b":\n\n")
    assert b'"said": "late"' in response.content


async def test_to_leave_is_to_cancel(served: Served) -> None:
    endpoint = Endpoint()
    async with served(endpoint) as web:
        _, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(raw(call(1)))
        begun = await endpoint.begun.get()
        writer.close()
        await asyncio.wait_for(begun.cancelled.wait(), 20)
        begun.answer("to nobody")  # has no effect either


async def test_requests_on_one_connection_are_answered_in_order(served: Served) -> None:
    endpoint = Endpoint()
    async with served(endpoint) as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(raw(call(1)))
        first = await endpoint.begun.get()
        writer.write(raw(call(2)) + raw(call(3))[:40])
        await writer.drain()
        await asyncio.sleep(0.05)
        first.answer("one")
        writer.write(raw(call(3))[40:])
        found = b""
        for number in (2, 3):
            begun = asyncio.create_task(endpoint.begun.get())
            done, _ = await asyncio.wait({begun}, timeout=1)
            if done:
                begun.result().answer(str(number))
            else:
                begun.cancel()
        while found.count(b"said") < 3:
            found += await asyncio.wait_for(reader.read(65536), 20)
        writer.close()
    places = [found.index(b'"id":%d' % id) for id in (1, 2, 3)]
    assert places == sorted(places)


async def test_a_drain_that_takes_too_long_tells_the_asker(served: Served) -> None:
    endpoint = Endpoint()
    async with served(endpoint) as web:
        answer = asyncio.create_task(web.modern(call(1)))
        begun = await endpoint.begun.get()
        await web.app.drain(0.01)
        response = await answer
    assert begun.cancelled.is_set()
    assert "error" in response.json()


async def test_a_call_that_fails_to_begin_takes_no_place() -> None:
    endpoint = Endpoint()
    async with serving(HttpApp(endpoint, limits=HttpLimits(running=1))) as web:
        endpoint.fails = True
        assert (await web.raw(raw(call(1)))).startswith(b"HTTP/1.1 500 ")
        endpoint.fails = False
        endpoint.refuses = True
        assert (await web.modern(call(2))).json()["result"] == {"said": "slow"}


async def answers(begun: Begun) -> None:
    begun.answer("now")


async def fails(begun: Begun) -> None:
    error = b'{"code":-32602,"message":"no"}'
    begun.arrived(Response(id=begun.request.id, error=error, code=-32602))


async def talks(begun: Begun) -> None:
    assert begun.context.peer is not None
    for _ in range(2):
        await begun.context.peer.notify(b'{"jsonrpc":"2.0","method":"notifications/x"}')
    begun.answer("last")


@pytest.mark.parametrize("accept", ["", "text/event-stream, application/json"])
@pytest.mark.parametrize("scene", [answers, fails, talks])
async def test_both_ways_write_the_same_bytes(
    scene: Callable[[Begun], Awaitable[None]], accept: str
) -> None:
    found = []
    for usual in (False, True):
        endpoint = Endpoint()
        async with serving(HttpApp(endpoint), through_asgi=usual) as web:
            reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
            for _ in range(2):
                message = raw(call(1))
                if accept:
                    message = re.sub(rb"accept: [^\r]*", b"accept: " + accept.encode(), message)
                writer.write(message)
                await scene(await endpoint.begun.get())
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: (\d+)", head)
                if length is not None:
                    body = await reader.readexactly(int(length[1]))
                else:
                    body = await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 20)
                found.append(re.sub(rb"date: [^\r]*", b"", head) + body)
            writer.close()
    assert found[:2] == found[2:]
