"""When a call is over, and when its guest is stuck."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from portico.library.wasm.running_call import GRACE_S, RunningCall


@pytest.fixture
def call() -> Iterator[RunningCall]:
    loop = asyncio.new_event_loop()
    yield RunningCall(loop, 0.0)
    loop.close()


def test_a_guest_has_a_moment_to_end_once_its_time_is_over(call: RunningCall) -> None:
    assert call.is_over
    assert 0 < call.until_stuck_s <= GRACE_S
    call.deadline -= GRACE_S
    assert call.until_stuck_s <= 0


def test_time_outside_moves_the_deadline_and_the_moment_after_it(call: RunningCall) -> None:
    call.deadline, call.outside_since = 100.0, 95.0  # long ago
    assert call.left_s == 5
    assert call.until_stuck_s == 5 + GRACE_S
    call.outside_since = None
    call.deadline = time.monotonic() + 60
    assert not call.is_over
    assert call.until_stuck_s > GRACE_S
