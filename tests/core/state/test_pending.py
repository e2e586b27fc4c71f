"""Pending answers: awaited, changed, observed, cancelled."""

import asyncio

import pytest

from portico.core.model.message import Response
from portico.core.model.types import Answer
from portico.core.state.pending import Pending, after, discard, observed

OK = Response(id=b"1", result=b"{}")
OTHER = Response(id=b"1", result=b'{"other":true}')


class Waiting(Pending):
    """An answer that arrives when the test decides."""

    cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        super().cancel()

    def arrive(self) -> None:
        self.arrived(OK)


async def later(response: Response = OK) -> Response:
    await asyncio.sleep(0)
    return response


async def test_every_kind_of_answer_can_be_awaited() -> None:
    pending = Waiting()
    asyncio.get_running_loop().call_soon(pending.arrive)
    for answer in (OK, pending, later()):
        assert await answer is OK


async def test_a_task_that_is_cancelled_cancels_the_answer_it_waits_for() -> None:
    pending = Waiting()

    async def wait() -> Response:
        return await pending

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pending.cancelled
    pending.arrive()  # too late, and harmless


async def test_an_answer_is_changed_when_it_arrives() -> None:
    pending = Waiting()
    asyncio.get_running_loop().call_soon(pending.arrive)
    for answer in (OK, pending, later()):
        assert await after(answer, lambda _: OTHER) is OTHER


async def test_a_change_that_fails_is_an_answer_too() -> None:
    failures: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(str(context["exception"])))
    pending = Waiting()

    def fail(_: Response) -> Response:
        raise ValueError("oh no")

    loop.call_soon(pending.arrive)
    response = await after(pending, fail)
    assert response.code == -32603
    assert response.id == b"1"
    assert failures == ["oh no"]


async def test_an_observer_hears_of_each_answer_once() -> None:
    pending = Waiting()
    asyncio.get_running_loop().call_soon(pending.arrive)
    seen: list[Response | None] = []
    for answer in (OK, pending, later()):
        assert await observed(answer, seen.append) is OK
    assert seen == [OK, OK, OK]


async def test_an_observer_hears_that_a_call_was_cancelled() -> None:
    seen: list[Response | None] = []
    pending = Waiting()
    answers: list[Answer] = [observed(pending, seen.append), observed(later(), seen.append)]
    for answer in answers:
        task = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert seen == [None, None]
    assert pending.cancelled


async def test_an_answer_that_nobody_wants_is_dropped_without_a_trace() -> None:
    pending = Waiting()
    for answer in (OK, pending, later(), None):
        discard(answer)
    assert pending.cancelled


async def test_an_answer_that_has_arrived_can_be_changed_and_observed() -> None:
    seen: list[Response | None] = []
    pending = Waiting()
    pending.arrive()
    assert observed(after(pending, lambda _: OTHER), seen.append) is pending
    assert seen == [OTHER]
    assert await pending is OTHER


async def test_changes_and_observers_take_their_turns_and_hear_nothing_twice() -> None:
    seen: list[Response | None] = []
    pending = Waiting()
    answer = observed(after(observed(pending, seen.append), lambda _: OTHER), seen.append)
    asyncio.get_running_loop().call_soon(pending.arrive)
    assert await answer is OTHER
    pending.cancel()
    assert seen == [OK, OTHER]
