"""Progress and events reach the port in order, and never delay the agent."""

import asyncio

from portico.agents.turns.reports import MAX_RECORDS, TurnReports
from tests.agents.turns.rig import WAIT_S, FakePort
from tests.support.clock import Clock


class SlowPort(FakePort):
    """A port that waits before it takes the first event."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()

    async def record(self, text: str) -> None:
        await self.gate.wait()
        await super().record(text)


async def test_events_stay_in_order_and_only_the_latest_progress_is_shown() -> None:
    port = SlowPort()
    reports = TurnReports(port, lambda _: None)
    for number in range(5):
        reports.record(f"event {number}")
        reports.progress(f"step {number}")
    port.gate.set()
    await reports.close(WAIT_S)
    assert port.events == [f"event {number}" for number in range(5)]
    assert port.shown == ["step 4"]


async def test_events_beyond_the_limit_are_counted() -> None:
    port = SlowPort()
    reports = TurnReports(port, lambda _: None)
    for number in range(MAX_RECORDS + 7):
        reports.record(str(number))
    port.gate.set()
    await reports.close(WAIT_S)
    assert len(port.events) == MAX_RECORDS + 1
    assert port.events[-1] == "7 further events were dropped"


async def test_a_port_that_never_returns_is_left_behind(clock: Clock) -> None:
    port = SlowPort()
    reports = TurnReports(port, lambda _: None)
    reports.record("lost")
    closing = asyncio.create_task(reports.close(10))
    await clock.advance(11)
    await asyncio.wait_for(closing, WAIT_S)
    assert port.events == []


async def test_the_error_of_a_port_is_passed_on_once() -> None:
    class BrokenPort(FakePort):
        async def record(self, text: str) -> None:
            raise RuntimeError(text)

    errors: list[Exception] = []
    reports = TurnReports(BrokenPort(), errors.append)
    reports.record("first")
    reports.record("second")
    await reports.close(WAIT_S)
    assert [str(error) for error in errors] == ["first"]
