"""The direct path of a call whose upstream exits, and its retry."""

import asyncio
import gc
from typing import Any

import msgspec
import pytest

from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.session import Session
from portico.core.model.version import Version
from portico.upstream.connections.direct_call import DirectCall
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.upstream import Upstream
from portico.upstream.wires.wire import Failure, Outgoing, to_bytes
from tests.upstream.connections.fakes import WAIT_S, Fake, FakeWire, Message, legacy, modern, result

TOOL = {"name": "it", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
DIED = Failure(server="fake", why="exited with code 1", kind="exited")


class Prompt(FakeWire):
    """A wire that sends without waiting, as that to a child does."""

    def send_now(self, message: Outgoing) -> bool:
        decoded: Message = msgspec.json.decode(to_bytes(message.data))
        self.sent.append(decoded)
        for reply in self.script(decoded) or ():
            self.deliver(reply)
        return True


class Broken:
    """A wire that fails with an unexpected exception."""

    def __getattr__(self, name: str) -> object:
        raise ValueError("oh no")


def script(message: Message) -> list[Message] | None:
    if message.get("method") == "tools/call":
        return None
    if message.get("method") == "tools/list":
        return [result(message, {"tools": [TOOL]})]
    return legacy(message, tools={})


async def begun(
    second: Any, answered: "asyncio.Future[Response]"
) -> tuple[Upstream, Prompt, DirectCall]:
    """Begin a call on the first wire of an upstream, whose second wire is given."""
    first = Prompt(script)
    upstream = Upstream(Fake([first, second]), UpstreamPolicy())
    await upstream.fetch_catalog()
    session = Session(lambda _: None)
    session.version = Version.V2025_11_25
    request = Request(method="tools/call", id=b"7", params=b'{"name":"it"}', name="it")
    call = upstream.provide(request, Context(session=session))
    assert isinstance(call, DirectCall)
    call.then(answered.set_result)
    return upstream, first, call


def lose(wire: FakeWire) -> None:
    assert wire.receiver is not None
    wire.receiver.lost(DIED)


async def test_a_harmless_call_is_begun_again() -> None:
    answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    second = Prompt(lambda m: [result(m, {})] if m.get("method") == "tools/call" else script(m))
    upstream, first, _ = await begun(second, answered)
    lose(first)
    assert (await asyncio.wait_for(answered, WAIT_S)).result == b"{}"
    await upstream.close()


async def test_one_that_is_cancelled_as_its_upstream_dies_leaves_nothing() -> None:
    answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    second = Prompt(script)
    upstream, first, call = await begun(second, answered)
    lose(first)
    call.cancel()
    await upstream.close()
    gc.collect()  # warns of coroutines that were never awaited
    assert not answered.done()
    assert "tools/call" not in second.methods()


async def test_one_that_fails_in_an_unknown_way_the_second_time_is_answered() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
    upstream, first, _ = await begun(Broken(), answered)
    lose(first)
    assert (await asyncio.wait_for(answered, WAIT_S)).code == -32603
    await upstream.close()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"resultType": "complete", "content": []}, {"result": {"content": []}}),
        ({"resultType": "input_required"}, "fake requires input that its client cannot provide"),
    ],
)
async def test_a_legacy_client_takes_the_short_way_to_a_modern_server(
    answer: dict[str, Any], expected: Any
) -> None:
    def serve(message: Message) -> list[Message]:
        if message.get("method") == "tools/call":
            return [result(message, answer)]
        if message.get("method") == "tools/list":
            return [result(message, {"tools": [TOOL]})]
        return modern(message, tools={})

    wire = Prompt(serve)
    upstream = Upstream(Fake([wire]), UpstreamPolicy(era="modern"))
    await upstream.fetch_catalog()
    session = Session(lambda _: None)
    session.version, session.client_info = Version.V2025_11_25, {"name": "test", "version": "1"}
    request = Request(method="tools/call", id=b"7", params=b'{"name":"it"}', name="it")
    call = upstream.provide(request, Context(session=session))
    assert isinstance(call, DirectCall)
    decoded = (await call).decode()
    assert decoded.get("error", {}).get("message", {"result": decoded.get("result")}) == expected
    sent = wire.sent[-1]["params"]["_meta"]
    assert sent["io.modelcontextprotocol/clientInfo"] == session.client_info
    await upstream.close()
