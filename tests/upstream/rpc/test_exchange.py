"""Pending requests: responses find their request, and every request ends."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
import uvloop

from portico.core.model.errors import McpError, TargetError
from portico.core.protocol.inbound import MAX_BATCH
from portico.upstream.rpc.dialect import MCP
from portico.upstream.rpc.exchange import MAX_GARBAGE_BYTES, Exchange
from portico.upstream.wires.wire import Failure, Outgoing
from tests.support.backoff import until
from tests.support.clock import Clock
from tests.upstream.connections.fakes import WAIT_S, FakeWire, Message, error, result

LOST = Failure(server="fake", why="exited with code 1", kind="exited", exit_code=1, stderr="oh no")


async def refuse(method: str, _: bytes, about: bytes) -> bytes:
    raise McpError(f"no {method} here", -32601)


class Notifications:
    """The notifications that arrived."""

    def __init__(self) -> None:
        self.notices: list[str] = []

    def __call__(self, method: str, params: bytes, about: bytes) -> None:
        self.notices.append(method)


async def opened(
    wire: FakeWire, serve: Any = refuse, received: Notifications | None = None
) -> Exchange:
    exchange = Exchange(wire, "fake", serve, received or Notifications())
    await exchange.open()
    return exchange


def start_request(
    exchange: Exchange, timeout: float = WAIT_S, **more: Any
) -> "asyncio.Task[bytes]":
    id = exchange.next_id()
    return asyncio.create_task(exchange.request(id, "work", b"{}", timeout=timeout, **more))


def echo(message: Message) -> list[Message]:
    return [result(message, {"id": message["id"]})] if "method" in message else []


async def test_answers_out_of_order_find_their_calls() -> None:
    wire = FakeWire(lambda _: None)
    exchange = await opened(wire)
    calls = [start_request(exchange) for _ in range(3)]
    await wire.until("work", times=3)
    for message in reversed(wire.sent):
        wire.deliver(result(message, message["id"]))
    assert [msgspec.json.decode(await call) for call in calls] == [1, 2, 3]


class Shut(FakeWire):
    """A wire that takes nothing until it is opened."""

    def __init__(self) -> None:
        super().__init__(echo)
        self.gate = asyncio.Event()
        self.waiting: list[Outgoing] = []

    async def send(self, message: Outgoing) -> None:
        self.waiting.append(message)
        await self.gate.wait()
        await super().send(message)


@pytest.mark.parametrize("is_ready", [True, False])
async def test_large_params_become_a_message_when_it_is_sent(is_ready: bool) -> None:
    wire = Shut()
    exchange = await opened(wire)
    params = json.dumps({"text": "x" * 1_000_000}).encode()
    given = params if is_ready else lambda: params
    call = asyncio.create_task(exchange.request(b"1", "work", given, timeout=WAIT_S))
    await until(lambda: bool(wire.waiting))
    assert not isinstance(wire.waiting[0].data, bytes)
    wire.gate.set()
    assert msgspec.json.decode(await call) == {"id": 1}
    assert wire.sent == [
        {"jsonrpc": "2.0", "id": 1, "method": "work", "params": json.loads(params)}
    ]


async def test_a_string_does_not_answer_a_number() -> None:
    wire = FakeWire(lambda m: [result(m | {"id": str(m["id"])}, "wrong"), result(m, "right")])
    exchange = await opened(wire)
    assert await start_request(exchange) == b'"right"'
    assert exchange.unmatched == 1


async def test_an_error_of_the_upstream_comes_unchanged() -> None:
    wire = FakeWire(lambda m: [error(m, -32999, "why not", {"deep": [1]})])
    with pytest.raises(McpError) as caught:
        await start_request(await opened(wire))
    assert (caught.value.code, caught.value.message) == (-32999, "why not")
    assert caught.value.data == {"deep": [1]}


async def test_a_batch_of_answers_is_taken_apart() -> None:
    wire = FakeWire(lambda m: [msgspec.json.encode([result(m, 1), {"jsonrpc": "2.0"}])])
    assert await start_request(await opened(wire)) == b"1"


async def test_a_lost_wire_fails_all_who_wait_and_whoever_comes_later() -> None:
    wire = FakeWire(lambda _: None)
    exchange = await opened(wire)
    calls = [start_request(exchange) for _ in range(3)]
    await wire.until("work")
    wire.lose(LOST)
    for call in (*calls, start_request(exchange)):
        with pytest.raises(TargetError, match="fake exited with code 1") as caught:
            await call
        assert caught.value.details == {"exit_code": 1, "stderr": "oh no"}


async def test_one_failed_request_leaves_the_others_alone() -> None:
    wire = FakeWire(lambda _: None)
    exchange = await opened(wire)
    bad, good = start_request(exchange), start_request(exchange)
    await wire.until("work")
    wire.fail(1, Failure(server="fake", why="answered HTTP 500", kind="http", status=500))
    with pytest.raises(TargetError, match="HTTP 500"):
        await bad
    wire.deliver(result({"id": 2}, "fine"))
    assert await good == b'"fine"'


async def test_a_json_rpc_error_in_an_http_body_is_the_answer() -> None:
    body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"no such version"}}'
    wire = FakeWire(lambda _: None)
    call = start_request(await opened(wire))
    await wire.until("work")
    wire.fail(1, Failure(server="fake", why="answered HTTP 400", status=400, body=body))
    with pytest.raises(McpError, match="no such version"):
        await call


async def test_a_request_that_runs_out_is_cancelled_upstream() -> None:
    wire = FakeWire(lambda _: None)
    exchange = await opened(wire)
    with pytest.raises(TargetError, match=r"did not answer work within 0\.01 s"):
        await start_request(exchange, timeout=0.01)
    notice = await wire.until("notifications/cancelled")
    assert notice["params"]["requestId"] == 1
    await exchange.close()
    assert wire.abandoned == [b"1"]


async def test_a_caller_that_gives_up_cancels_upstream() -> None:
    wire = FakeWire(lambda _: None)
    exchange = await opened(wire)
    call = start_request(exchange)
    await wire.until("work")
    call.cancel()
    assert (await wire.until("notifications/cancelled"))["params"]["requestId"] == 1
    await exchange.close()


async def test_over_modern_http_closing_the_stream_is_the_cancellation() -> None:
    wire = FakeWire(lambda _: None, has_headers=True)
    exchange = await opened(wire)
    exchange.modern = True
    with pytest.raises(TargetError):
        await start_request(exchange, timeout=0.01)
    assert wire.abandoned == [b"1"]
    assert wire.methods() == ["work"]


async def test_a_handshake_is_never_cancelled() -> None:
    wire = FakeWire(lambda _: None)
    exchange = await opened(wire)
    with pytest.raises(TargetError):
        await start_request(exchange, timeout=0.01, cancellable=False)
    await exchange.close()
    assert wire.methods() == ["work"]


async def test_progress_gives_a_call_more_time(clock: Clock) -> None:
    wire = FakeWire(lambda _: None)
    seen: list[float] = []
    call = start_request(
        await opened(wire),
        timeout=60,
        progress=lambda raw: seen.append(json.loads(raw)["progress"]),
    )
    await wire.until("work")
    for ticks in (1, 2, 3):  # beyond the limit, with a sign of life now and then
        params = {"progressToken": 1, "progress": ticks}
        wire.deliver({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        await clock.advance(50)
    wire.deliver(result({"id": 1}, "done"))
    assert await call == b'"done"'
    assert seen == [1, 2, 3]


async def test_progress_of_somebody_else_changes_nothing() -> None:
    wire = FakeWire(lambda _: None)
    seen: list[Any] = []
    call = start_request(await opened(wire), timeout=0.1, progress=seen.append)
    await wire.until("work")
    for token in ("1", 99, None):
        params = {"progressToken": token, "progress": 1}
        wire.deliver({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    with pytest.raises(TargetError, match="did not answer"):
        await call
    assert seen == []


async def test_a_question_of_the_upstream_is_answered() -> None:
    async def serve(method: str, params: bytes, about: bytes) -> bytes:
        return msgspec.json.encode({"asked": method, "with": msgspec.json.decode(params)})

    wire = FakeWire(lambda _: None)
    await opened(wire, serve)
    wire.deliver({"jsonrpc": "2.0", "id": "q", "method": "roots/list", "params": {"a": 1}})
    answer = await wire.until("answer")
    assert answer == {
        "jsonrpc": "2.0",
        "id": "q",
        "result": {"asked": "roots/list", "with": {"a": 1}},
    }


async def test_a_question_that_is_not_ours_to_answer_is_refused() -> None:
    wire = FakeWire(lambda _: None)
    await opened(wire)
    wire.deliver({"jsonrpc": "2.0", "id": 7, "method": "sampling/createMessage"})
    answer = await wire.until("answer")
    assert answer["error"] == {"code": -32601, "message": "no sampling/createMessage here"}


async def test_a_modern_upstream_gets_no_answer_to_a_question() -> None:
    wire = FakeWire(echo)
    exchange = await opened(wire)
    exchange.modern = True
    wire.deliver({"jsonrpc": "2.0", "id": 7, "method": "roots/list"})
    await start_request(exchange)
    assert wire.methods() == ["work"]
    assert exchange.unmatched == 1


async def test_no_call_runs_out_while_we_think_about_a_question() -> None:
    thought = asyncio.Event()

    async def think(_: str, __: bytes, about: bytes) -> bytes:
        await thought.wait()
        return b"{}"

    wire = FakeWire(lambda _: None)
    call = start_request(await opened(wire, think), timeout=0.1)
    await wire.until("work")
    wire.deliver({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create"})
    done, _ = await asyncio.wait({call}, timeout=0.3)
    assert not done
    thought.set()
    await wire.until("answer")
    wire.deliver(result({"id": 1}, "done"))
    assert await call == b'"done"'


async def test_a_call_runs_out_in_its_own_time_after_a_question_was_answered_late() -> None:
    thought = asyncio.Event()

    async def think(_: str, __: bytes, about: bytes) -> bytes:
        await thought.wait()
        return b"{}"

    wire = FakeWire(lambda _: None)
    call = start_request(await opened(wire, think), timeout=0.1)
    await wire.until("work")
    wire.deliver({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create"})
    await asyncio.wait({call}, timeout=0.3)
    thought.set()
    async with asyncio.timeout(WAIT_S):
        with pytest.raises(TargetError, match="did not answer work"):
            await call


async def test_an_upstream_has_only_so_many_questions_open() -> None:
    async def think(_: str, __: bytes, about: bytes) -> bytes:
        await asyncio.Event().wait()
        return b"{}"

    wire = FakeWire(lambda _: None)
    exchange = await opened(wire, think)
    for number in range(MCP.max_incoming + 5):
        wire.deliver({"jsonrpc": "2.0", "id": number, "method": "elicitation/create"})
    await until(lambda: exchange.unmatched == 5)
    await exchange.close()


async def test_a_question_can_be_taken_back() -> None:
    begun, dropped = asyncio.Event(), asyncio.Event()

    async def think(_: str, __: bytes, about: bytes) -> bytes:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            dropped.set()
        return b"{}"

    wire = FakeWire(lambda _: None)
    await opened(wire, think)
    wire.deliver({"jsonrpc": "2.0", "id": 7, "method": "elicitation/create"})
    await asyncio.wait_for(begun.wait(), WAIT_S)
    params = {"requestId": 7}
    wire.deliver({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
    await asyncio.wait_for(dropped.wait(), WAIT_S)
    assert wire.sent == []


async def test_other_notifications_are_passed_on() -> None:
    received = Notifications()
    wire = FakeWire(echo)
    exchange = await opened(wire, received=received)
    wire.deliver({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    await start_request(exchange)
    assert received.notices == ["notifications/tools/list_changed"]


async def test_what_cannot_be_read_fails_the_call_it_would_have_answered() -> None:
    wire = FakeWire(lambda m: [b'{"jsonrpc":"2.0","id":%d,"result":{"x":\xff}}' % m["id"]])
    with pytest.raises(TargetError, match="fake sent an invalid message"):
        await start_request(await opened(wire))


async def test_a_log_line_that_quotes_an_id_fails_nothing() -> None:
    wire = FakeWire(lambda m: [b'INFO {"id": %d} came' % m["id"], result(m, "fine")])
    exchange = await opened(wire)
    assert await start_request(exchange) == b'"fine"'
    assert exchange.garbage == 1


GOOD = b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}'
TOO_DEEP = b'{"jsonrpc":"2.0","method":"x","params":[%s]}' % (b"[" * 500_000 + b"]" * 500_000)


async def test_broken_messages_count_by_bytes_whatever_comes_between() -> None:
    wire = FakeWire(lambda _: None)
    exchange = await opened(wire)
    call = start_request(exchange)
    await wire.until("work")
    for _ in range(MAX_GARBAGE_BYTES // len(TOO_DEEP) + 20):
        exchange.received(TOO_DEEP)
        exchange.received(GOOD)
    with pytest.raises(TargetError, match="fake sent more than 10485760 bytes of invalid messages"):
        await call
    await until(lambda: wire.closed)


async def test_stray_lines_between_messages_never_add_up(clock: Clock) -> None:
    exchange = await opened(FakeWire(echo))
    for _ in range(50):  # 25 MB, over 50 s
        await clock.advance(1)
        exchange.received(b"x" * 500_000)
        exchange.received(GOOD)
    assert not exchange.is_over()


async def test_a_batch_past_the_limit_is_broken() -> None:
    wire, received = FakeWire(lambda _: None), Notifications()
    exchange = await opened(wire, received=received)
    exchange.received(b"[%s]" % b",".join([GOOD] * MAX_BATCH))
    assert (len(received.notices), exchange.garbage) == (MAX_BATCH, 0)
    exchange.received(b"[%s]" % b",".join([GOOD] * 100_000))
    assert (len(received.notices), exchange.garbage) == (MAX_BATCH, 1)


async def test_a_batch_inside_a_batch_is_broken() -> None:
    wire, received = FakeWire(lambda _: None), Notifications()
    exchange = await opened(wire, received=received)
    exchange.received(b"[[%s],%s,[[%s]]]" % (GOOD, GOOD, GOOD))
    assert (len(received.notices), exchange.garbage) == (1, 2)


async def test_a_closed_exchange_fails_who_still_waits() -> None:
    wire = FakeWire(lambda _: None)
    exchange = await opened(wire)
    call = start_request(exchange)
    await wire.until("work")
    await exchange.close()
    with pytest.raises(TargetError, match="was closed"):
        await call
    assert wire.closed


def test_a_limit_that_has_just_passed_harms_no_later_request_on_uvloop() -> None:
    """The handle of uvloop's `call_at` has no time once it is due."""

    async def scene() -> list[str]:
        exchange = await opened(FakeWire(lambda _: None))
        calls = [start_request(exchange, timeout=0), start_request(exchange, timeout=0.01)]
        ended = await asyncio.gather(*calls, return_exceptions=True)
        await exchange.close()
        return [getattr(one, "kind", repr(one)) for one in ended]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(scene()) == ["timeout", "timeout"]


async def test_a_close_that_is_cancelled_closes_the_wire_all_the_same() -> None:
    began = asyncio.Event()

    async def linger(method: str, _: bytes, about: bytes) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            began.set()
            await asyncio.Event().wait()
        return b"{}"

    wire = FakeWire(lambda _: None)
    exchange = await opened(wire, linger)
    exchange.received(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    await asyncio.sleep(0)
    closing = asyncio.create_task(exchange.close())
    await began.wait()
    closing.cancel()
    await asyncio.wait({closing})
    assert wire.closed


class Slow(FakeWire):
    """A wire that finishes sending a message when the test releases it."""

    def __init__(self) -> None:
        super().__init__(lambda _: None)
        self.go_on = asyncio.Event()
        self.cut = asyncio.Event()

    async def send(self, message: Outgoing) -> None:
        await super().send(message)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cut.set()
            raise


async def test_an_answer_that_comes_before_all_is_sent_is_the_answer(clock: Clock) -> None:
    wire = Slow()
    exchange = await opened(wire)
    call = start_request(exchange)
    wire.deliver(result(await wire.until("work"), "fine"))
    assert await call == b'"fine"'
    assert not wire.cut.is_set(), "the rest may be sent"
    await clock.advance(1)
    assert wire.cut.is_set(), "but not for ever"
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await exchange.close()


async def test_progress_gives_more_time_also_to_a_call_that_is_not_all_sent(clock: Clock) -> None:
    wire = Slow()
    exchange = await opened(wire)
    call = start_request(exchange, timeout=60, progress=lambda _: None)
    message = await wire.until("work")
    params = {"progressToken": message["id"], "progress": 1}
    for _ in range(6):
        await clock.advance(50)
        wire.deliver({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    wire.deliver(result(message, "late"))
    assert await call == b'"late"'
    await exchange.close()


async def test_nobody_goes_on_sending_what_has_run_out() -> None:
    wire = Slow()
    with pytest.raises(TargetError, match=r"did not answer work within 0\.05 s"):
        await start_request(await opened(wire), timeout=0.05)
    await asyncio.wait_for(wire.cut.wait(), WAIT_S)
