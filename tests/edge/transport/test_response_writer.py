"""The response writer over ASGI, with a fake server."""

import asyncio
from typing import Any

import pytest

from portico.edge.transport.asgi import AsgiResponseWriter, Message
from portico.edge.transport.events import EVENT_STREAM
from tests.support.web import WAIT_S


class Call:
    """A call that counts disconnects."""

    def __init__(self) -> None:
        self.disconnects = 0

    def on_disconnect(self) -> None:
        self.disconnects += 1


class AsgiServer:
    """Sends as fast as the test allows, and reports the client's disconnect."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.leaves = asyncio.Event()
        self.broken = False
        self.writer = AsgiResponseWriter({"type": "http"}, self._receive, self._send)
        self.call = self.writer.call = Call()

    async def _receive(self) -> Message:
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self.reads.wait()
        if self.broken:
            raise OSError("the client disconnected")
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


async def within(work: Any) -> None:
    await asyncio.wait_for(work, WAIT_S)


async def test_an_answer_that_is_there_already_is_sent_without_a_watch() -> None:
    server = AsgiServer()
    before = asyncio.all_tasks()
    server.writer.answer(200, (b"{", b"}"))
    await server.writer.send_all()
    assert asyncio.all_tasks() == before
    assert server.body == b"{}"
    assert dict(server.sent[0]["headers"])[b"content-length"] == b"2"


async def test_what_is_said_comes_in_order_and_the_last_of_it_ends_the_response() -> None:
    server = AsgiServer()
    serving = asyncio.create_task(server.writer.send_all())
    server.writer.begin_stream(EVENT_STREAM)
    for number in range(3):
        server.writer.send_chunk(b"%d" % number)
        await asyncio.sleep(0)
    server.writer.send_chunk(b"end", last=True)
    await within(serving)
    assert server.body == b"012end"
    assert [m.get("more_body") for m in server.sent] == [None, True, True, True, False]


async def test_there_is_room_once_the_reader_has_taken_what_was_said() -> None:
    server = AsgiServer()
    server.reads.clear()
    serving = asyncio.create_task(server.writer.send_all())
    server.writer.begin_stream(EVENT_STREAM)
    waiting = asyncio.create_task(server.writer.wait_writable())
    await asyncio.sleep(0)
    assert not waiting.done()
    server.reads.set()
    await within(waiting)
    assert len(server.sent) == 1
    server.writer.send_chunk(b"", last=True)
    await within(serving)


@pytest.mark.parametrize("reads", [True, False])
async def test_a_client_that_leaves_ends_the_response_and_its_call_is_told(reads: bool) -> None:
    server = AsgiServer()
    if not reads:
        server.reads.clear()
    serving = asyncio.create_task(server.writer.send_all())
    server.writer.begin_stream(EVENT_STREAM)
    waiting = asyncio.create_task(server.writer.wait_writable())
    await asyncio.sleep(0)
    server.leaves.set()
    await within(serving)
    await within(waiting)
    assert server.call.disconnects == 1


async def test_a_send_that_fails_is_a_client_that_left() -> None:
    server = AsgiServer()
    server.broken = True
    server.writer.begin_stream(EVENT_STREAM)
    await server.writer.send_all()
    assert server.call.disconnects == 1


async def test_a_request_that_is_cancelled_from_outside_stays_cancelled() -> None:
    server = AsgiServer()
    serving = asyncio.create_task(server.writer.send_all())
    await asyncio.sleep(0)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert server.call.disconnects == 1
