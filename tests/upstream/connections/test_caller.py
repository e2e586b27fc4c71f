"""The outbox of a client: in order, and limited."""

import asyncio

from portico.core.model.context import Context
from portico.core.model.message import Request
from portico.upstream.connections.caller import MAX_OUTBOX_BYTES, Call, Caller, Outbox

_PART = MAX_OUTBOX_BYTES // 8


class SlowReader:
    """Reads one message, and the next when the test releases it."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.received: list[bytes] = []

    async def notify(self, message: bytes) -> None:
        self.received.append(message)
        await self.reads.wait()

    async def ask(self, method: str, params: bytes) -> bytes:
        raise AssertionError(method)

    async def closed(self) -> None:
        raise AssertionError


async def test_what_a_slow_asker_is_to_be_told_is_bounded_and_the_latest_is_kept() -> None:
    reader = SlowReader()
    outbox = Outbox(reader)
    for number in range(100):
        outbox.send(b"%d" % number + b" " * _PART)
        await asyncio.sleep(0)
    reader.reads.set()
    await outbox.flush()
    received = [int(message) for message in reader.received]
    assert received[0] == 0
    assert received[1:] == list(range(93, 100))


async def test_one_message_larger_than_all_that_may_wait_is_told_all_the_same() -> None:
    reader = SlowReader()
    reader.reads.set()
    outbox = Outbox(reader)
    outbox.send(b"x" * (MAX_OUTBOX_BYTES + 1))
    await outbox.flush()
    assert len(reader.received) == 1


def test_a_call_under_way_keeps_its_arguments_once() -> None:
    request = Request(method="tools/call", params=b'{"arguments":{"a":1}}', arguments={"a": 1})
    call = Call(Caller(None, {}, {}), request, Context())
    assert call.request.arguments is None
