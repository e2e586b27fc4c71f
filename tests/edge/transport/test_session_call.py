"""Legacy calls without a task have the same bytes, sessions, streams and limits as over ASGI."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.types import Answer
from portico.core.state.pending import Pending
from portico.edge.transport.http_app import HttpApp
from portico.edge.transport.http_limits import HttpLimits
from tests.support.clock import Clock
from tests.support.messages import initialize
from tests.support.web import WAIT_S, Site, post_bytes, serving, soon, tool_call

NOTICE = b'{"jsonrpc":"2.0","method":"notifications/x","params":{"n":1}}'


class Begun(Pending):
    """A call that the test ends."""

    def __init__(self, request: Request, context: Context) -> None:
        self.request = request
        assert context.peer is not None
        self.peer: Any = context.peer
        self.cancelled = asyncio.Event()

    def cancel(self) -> None:
        self.cancelled.set()

    def answer(self, text: str = "hello") -> None:
        self.arrived(Response(id=self.request.id, result=json.dumps({"said": text}).encode()))

    def fail(self, code: int) -> None:
        error = json.dumps({"code": code, "message": "no"}).encode()
        self.arrived(Response(id=self.request.id, error=error, code=code))


class Endpoint:
    """Begins calls with a progress token as coroutines, and all others without a task."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[Begun] = asyncio.Queue()
        self.usual = 0
        """Return how many calls came through ASGI."""
        self.fails = False
        self.version: Any = None

    def handle(self, request: Request, context: Context) -> Answer:
        if request.method == "initialize":
            assert context.session is not None
            context.session.version = self.version
            return Response(id=request.id, result=b"{}")
        if request.method == "tools/list":
            return Response(id=request.id, result=b'{"tools":[]}')
        if not request.id:
            return Response()
        if self.fails:
            raise ValueError("oh no")
        self.usual += asyncio.current_task() is not None
        call = Begun(request, context)
        self.begun.put_nowait(call)
        return self._awaited(call) if request.meta.progress_token else call

    async def _awaited(self, call: Begun) -> Response:
        return await call


class Wire:
    """One connection of a client in a session."""

    def __init__(self, site: Site, endpoint: Endpoint) -> None:
        self.site = site
        self.endpoint = endpoint
        self.headers: dict[str, str] = {}

    async def open(self) -> None:
        self.reader, self.writer = await self.site.connect()

    def send(self, message: Any, **more: str) -> None:
        self.writer.write(post_bytes(message, self.headers | more))

    async def begin(self, message: dict[str, Any]) -> Begun:
        self.send(message)
        return await asyncio.wait_for(self.endpoint.begun.get(), WAIT_S)

    async def response(self) -> bytes:
        """Return one whole response, without its date."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), WAIT_S)
        length = re.search(rb"content-length: (\d+)", head)
        if length is not None:
            body = await self.reader.readexactly(int(length[1]))
        else:
            body = await asyncio.wait_for(self.reader.readuntil(b"0\r\n\r\n"), WAIT_S)
        return re.sub(rb"date: [^\r]*", b"date: now", head) + body

    def come_back(self, id: str) -> None:
        """Request the events after this one."""
        lines = {"host": "localhost", "accept": "text/event-stream", "last-event-id": id}
        text = "".join(f"{k}: {v}\r\n" for k, v in (lines | self.headers).items())
        self.writer.write(f"GET /mcp HTTP/1.1\r\n{text}\r\n".encode())

    async def replayed(self, id: str) -> bytes:
        self.come_back(id)
        return await self.response()


@asynccontextmanager
async def talking(
    usual: bool = False, limits: HttpLimits | None = None, version: str = "2025-11-25"
) -> AsyncIterator[Wire]:
    """Open a session with its own connection; `usual` takes the path through ASGI."""
    from portico.core.model.version import BY_TEXT

    endpoint = Endpoint()
    endpoint.version = BY_TEXT[version]
    app = HttpApp(endpoint, limits=limits)
    async with serving(app, through_asgi=usual) as site:
        wire = Wire(site, endpoint)
        opened = await site.post(initialize(version))
        wire.headers = {"mcp-session-id": opened.headers["mcp-session-id"]}
        await wire.open()
        try:
            yield wire
        finally:
            wire.writer.close()
        assert usual or not endpoint.usual


def call(id: Any = 1) -> dict[str, Any]:
    return tool_call("echo", id, text="x")


async def answers(wire: Wire, begun: Begun) -> None:
    begun.answer()


async def fails(wire: Wire, begun: Begun) -> None:
    begun.fail(-32603)


async def fails_badly(wire: Wire, begun: Begun) -> None:
    begun.fail(-32600)


async def talks(wire: Wire, begun: Begun) -> None:
    await begun.peer.notify(NOTICE)
    await begun.peer.notify(NOTICE)
    begun.answer()


async def asks(wire: Wire, begun: Begun) -> None:
    question = asyncio.create_task(begun.peer.ask("roots/list", b"{}"))
    for _ in range(3):
        await asyncio.sleep(0)
    reply = {"jsonrpc": "2.0", "id": "portico-1", "result": {"roots": []}}
    assert (await wire.site.post(reply, wire.headers)).status_code == 202
    assert json.loads(await asyncio.wait_for(question, WAIT_S)) == {"roots": []}
    begun.answer()


async def hangs_up(wire: Wire, begun: Begun) -> None:
    await begun.peer.close_stream()
    begun.answer()


async def is_cancelled(wire: Wire, begun: Begun) -> None:
    params = {"requestId": 1}
    notice = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    assert (await wire.site.post(notice, wire.headers)).status_code == 202
    await soon(begun.cancelled)
    begun.answer("too late")


async def talks_and_is_cancelled(wire: Wire, begun: Begun) -> None:
    await begun.peer.notify(NOTICE)
    await is_cancelled(wire, begun)


async def loses_its_session(wire: Wire, begun: Begun) -> None:
    deleted = await wire.site.client.delete(wire.site.url + "/mcp", headers=wire.headers)
    assert deleted.status_code == 204
    await soon(begun.cancelled)


async def is_drained(wire: Wire, begun: Begun) -> None:
    await wire.site.app.drain(0.01)
    await soon(begun.cancelled)


Scene = Callable[[Wire, Begun], Awaitable[None]]
SCENES: list[Scene] = [
    answers,
    fails,
    fails_badly,
    talks,
    asks,
    hangs_up,
    is_cancelled,
    talks_and_is_cancelled,
    loses_its_session,
    is_drained,
]


async def played(scene: Scene, version: str, usual: bool) -> list[bytes]:
    """Return all responses: to a plain call, to one of the scene, and to the next ones."""
    found = []
    async with talking(usual, version=version) as wire:
        for play in (answers, scene, answers):
            begun = await wire.begin(call())
            await play(wire, begun)
            found.append(await wire.response())
            if scene in (loses_its_session, is_drained) and play is scene:
                return found
        found += [await wire.replayed(f"{key}-0") for key in (1, 2, 3)]
    return found


@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("scene", SCENES)
async def test_both_ways_write_the_same_bytes(scene: Scene, version: str) -> None:
    short = await played(scene, version, usual=False)
    assert short == await played(scene, version, usual=True)
    assert b"200 OK" in short[0]


@pytest.mark.parametrize("usual", [False, True])
async def test_who_leaves_cancels_nothing_and_what_is_said_waits(usual: bool) -> None:
    async with talking(usual) as wire:
        begun = await wire.begin(call())
        wire.writer.close()
        await wire.writer.wait_closed()
        await wire.open()
        wire.send(call())
        assert b"already in flight" in await wire.response()
        await begun.peer.notify(NOTICE)
        wire.come_back("1-0")
        await asyncio.wait_for(wire.reader.readuntil(b"notifications/x"), WAIT_S)
        begun.answer("kept")
        rest = await asyncio.wait_for(wire.reader.readuntil(b"0\r\n\r\n"), WAIT_S)
        assert b'"said": "kept"' in rest
        assert not begun.cancelled.is_set()


async def test_a_reader_that_leaves_a_stream_can_come_back() -> None:
    async with talking() as wire:
        begun = await wire.begin(call())
        await begun.peer.notify(NOTICE)
        await wire.reader.readuntil(b"notifications/x")
        wire.writer.close()
        await wire.writer.wait_closed()
        begun.answer("kept")
        await wire.open()
        again = await wire.replayed("1-0")
        assert b"id: 1-1\n" in again
        assert b'id: 1-2\nevent: message\ndata: {"jsonrpc":"2.0","id":1' in again


async def test_a_quiet_call_is_kept_alive() -> None:
    async with talking(limits=HttpLimits(quiet_s=0.1)) as wire:
        begun = await wire.begin(call())
        await asyncio.wait_for(wire.reader.readuntil(b"\r\n\r\n"), WAIT_S)
        await asyncio.wait_for(wire.reader.readuntil(b":\n\n"), WAIT_S)
        begun.answer("late")
        rest = await asyncio.wait_for(wire.reader.readuntil(b"0\r\n\r\n"), WAIT_S)
        assert b'"said": "late"' in rest
        wire.send(call(2))
        (await wire.endpoint.begun.get()).answer("next")
        assert b'"said": "next"' in await wire.response()


@pytest.mark.parametrize("limits", [HttpLimits(running=1), HttpLimits(session_streams=1)])
async def test_one_call_too_many_is_told_to_come_back(limits: HttpLimits) -> None:
    async with talking(limits=limits) as wire:
        begun = await wire.begin(call())
        other = Wire(wire.site, wire.endpoint)
        other.headers = wire.headers
        await other.open()
        other.send(call(2))
        assert b" 503 " in (await other.response())[:16]
        begun.answer()
        assert b" 200 " in (await wire.response())[:16]
        (await other.begin(call(2))).answer()
        assert b" 200 " in (await other.response())[:16]
        other.writer.close()


async def test_a_session_in_use_does_not_expire_and_one_that_ended_is_not_found(
    clock: Clock,
) -> None:
    async with talking(limits=HttpLimits(session_idle_s=1)) as wire:
        begun = await wire.begin(call())
        await clock.advance(1)
        await clock.advance(1)
        begun.answer()
        assert b" 200 " in (await wire.response())[:16]
        await clock.advance(1)
        wire.send(call())
        assert b" 404 " in (await wire.response())[:16]


async def test_known_headers_vouch_for_no_body() -> None:
    async with talking() as wire:
        for _ in range(2):
            (await wire.begin(call())).answer()
            await wire.response()
        size = len(json.dumps(call()))
        for body, expected in (
            (b"{" * size, b" 400 "),
            (b'{"jsonrpc":"2.0","method":"notifications/x"}'.ljust(size), b" 202 "),
            (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'.ljust(size), b" 200 "),
        ):
            whole = post_bytes(call(), wire.headers)
            wire.writer.write(whole[: -len(body)] + body)
            assert expected in (await wire.response())[:16], body
        (await wire.begin(call())).answer()
        assert b'"said": "hello"' in await wire.response()


async def test_known_headers_in_pieces_and_several_at_once_are_answered_in_order() -> None:
    async with talking() as wire:
        (await wire.begin(call(1))).answer()
        await wire.response()
        whole = post_bytes(call(2), wire.headers)
        wire.writer.write(whole[:50])
        await asyncio.sleep(0.02)
        wire.writer.write(whole[50:-5])
        await asyncio.sleep(0.02)
        wire.writer.write(whole[-5:])
        (await wire.endpoint.begun.get()).answer("in pieces")
        assert b"in pieces" in await wire.response()
        begun = await wire.begin(call(3))
        wire.writer.write(post_bytes(call(4), wire.headers) + post_bytes(call(5), wire.headers))
        await asyncio.sleep(0.02)
        begun.answer("3")
        for id in (3, 4, 5):
            assert b'"id":%d' % id in await wire.response()
            if id < 5:
                (await asyncio.wait_for(wire.endpoint.begun.get(), WAIT_S)).answer(str(id + 1))


async def test_other_headers_are_looked_at_anew() -> None:
    async with talking() as wire:
        for _ in range(2):
            (await wire.begin(call())).answer()
            await wire.response()
        for more, expected in (
            ({"mcp-protocol-version": "1999-01-01"}, b" 400 "),
            ({"mcp-session-id": "another"}, b" 404 "),
            ({"host": "elsewhere.example"}, b" 403 "),
            ({"accept": "text/html"}, b" 406 "),
            ({"content-type": "text/plain"}, b" 415 "),
        ):
            wire.send(call(), **more)
            assert expected in (await wire.response())[:16], more
        for number in range(20):
            wire.headers["x-number"] = str(number)
            (await wire.begin(call())).answer()
            assert b" 200 " in (await wire.response())[:16]


async def test_a_list_in_a_session_needs_no_task_either() -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    found = []
    for usual in (False, True):
        async with talking(usual) as wire:
            for _ in range(2):
                wire.send(message)
                found.append(await wire.response())
            begun = await wire.begin(call(1))
            other = Wire(wire.site, wire.endpoint)
            other.headers = wire.headers
            await other.open()
            other.send(message)
            found.append(await other.response())
            begun.answer()
            other.writer.close()
    assert found[:3] == found[3:]
    assert b'"result":{"tools":[]}' in found[0]
    assert b"already in flight" in found[2]


async def test_a_call_that_is_a_coroutine_has_the_same_stream_and_ids() -> None:
    found = []
    wanting = call(2)
    wanting["params"]["_meta"] = {"progressToken": 1}
    for usual in (False, True):
        async with talking(usual) as wire:
            (await wire.begin(call())).answer()
            await wire.response()
            for _ in range(2):
                begun = await wire.begin(wanting)
                await talks(wire, begun)
                found.append(await wire.response())
    assert found[:2] == found[2:]
    assert b"id: 2-1\n" in found[0]


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with talking(limits=HttpLimits(body_s=0.1)) as wire:
        wire.writer.write(post_bytes(call(), wire.headers)[:-5])
        assert b" 408 " in (await wire.response())[:16]
        assert await asyncio.wait_for(wire.reader.read(), WAIT_S) == b""
        assert wire.endpoint.begun.empty()


async def test_a_large_body_starts_no_task_either() -> None:
    async with talking() as wire:
        begun = await wire.begin(tool_call("echo", 1, text="x" * 300_000))
        assert len(begun.request.params) > 300_000
        begun.answer()
        assert b'"said": "hello"' in await wire.response()


async def test_a_call_that_fails_to_begin_takes_no_place() -> None:
    async with talking(limits=HttpLimits(running=1, session_streams=1)) as wire:
        wire.endpoint.fails = True
        wire.send(tool_call("a"))
        failed = await asyncio.wait_for(wire.reader.read(), WAIT_S)
        assert failed.startswith(b"HTTP/1.1 500 ")
        wire.endpoint.fails = False
        wire.writer.close()
        await wire.open()
        (await wire.begin(tool_call("a"))).answer()
        assert b'"said": "hello"' in await wire.response()
