"""How long a failing upstream is not retried, by a clock that only the test moves."""

import pytest

from portico.core.model.errors import TargetError
from portico.upstream.connections.backoff import Backoff, BackoffLimits, CircuitBreaker

LIMITS = BackoffLimits(first_pause_s=1.0, max_pause_s=8.0, failures=3, open_s=10.0)


class Clock:
    """A time of our own."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(clock: Clock) -> CircuitBreaker:
    """A breaker that has just opened."""
    breaker = CircuitBreaker("files", LIMITS, clock)
    for _ in range(LIMITS.failures):
        breaker.failed("exited with code 1")
    return breaker


def refusal(breaker: CircuitBreaker) -> TargetError:
    with pytest.raises(TargetError) as raised:
        breaker.check()
    return raised.value


def test_the_first_failure_costs_no_pause(clock: Clock) -> None:
    pause = Backoff(LIMITS, clock)
    assert pause.remaining_s == 0
    pause.failed()
    assert pause.remaining_s == 0


def test_each_further_failure_doubles_the_pause_up_to_the_longest(clock: Clock) -> None:
    pause = Backoff(LIMITS, clock)
    pause.failed()
    for longest in (1, 2, 4, 8, 8, 8):
        pause.failed()
        assert longest / 2 <= pause.remaining_s <= longest
        clock.now += pause.remaining_s
        assert pause.remaining_s == 0


def test_a_thousand_failures_do_not_overflow(clock: Clock) -> None:
    pause = Backoff(LIMITS, clock)
    for _ in range(1000):
        pause.failed()
    assert pause.remaining_s <= LIMITS.max_pause_s


def test_pauses_are_spread_so_that_many_do_not_come_back_together(clock: Clock) -> None:
    pauses = []
    for _ in range(50):
        pause = Backoff(LIMITS, clock)
        pause.failed()
        pause.failed()
        pauses.append(pause.remaining_s)
    assert len(set(pauses)) > 10
    assert max(pauses) - min(pauses) > 0.1


def test_a_pause_runs_down_with_the_clock_and_never_below_none(clock: Clock) -> None:
    pause = Backoff(LIMITS, clock)
    pause.failed()
    pause.failed()
    before = pause.remaining_s
    clock.now += before / 2
    assert pause.remaining_s == pytest.approx(before / 2)
    clock.now += 100
    assert pause.remaining_s == 0


def test_after_a_success_the_pauses_begin_anew(clock: Clock) -> None:
    pause = Backoff(LIMITS, clock)
    for _ in range(5):
        pause.failed()
    pause.succeeded()
    assert pause.remaining_s == 0
    pause.failed()
    assert pause.remaining_s == 0


def test_a_closed_breaker_lets_all_pass(clock: Clock) -> None:
    breaker = CircuitBreaker("files", LIMITS, clock)
    assert breaker.check() is False
    breaker.failed("exited")
    breaker.failed("exited")
    assert (breaker.failures > 0, breaker.is_open) == (True, False)
    assert breaker.check() is False


def test_an_open_breaker_says_who_why_and_how_long(clock: Clock) -> None:
    breaker = opened(clock)
    clock.now += 4
    assert breaker.is_open
    error = refusal(breaker)
    assert (error.kind, error.server) == ("breaker", "files")
    assert error.details == {"retry_after_s": 6.0}
    why = "files failed 3 times in a row; try again in 6 s; last failure: exited with code 1"
    assert str(error) == why


def test_when_the_time_is_up_one_call_may_try_and_the_others_wait(clock: Clock) -> None:
    breaker = opened(clock)
    clock.now += LIMITS.open_s
    assert breaker.check() is True
    assert refusal(breaker).details == {"retry_after_s": 0.0}


def test_the_try_that_succeeds_closes_the_breaker(clock: Clock) -> None:
    breaker = opened(clock)
    clock.now += LIMITS.open_s
    breaker.check()
    breaker.succeeded()
    breaker.cancel_trial()
    assert not breaker.failures
    assert breaker.check() is False


def test_the_try_that_fails_opens_it_for_as_long_again(clock: Clock) -> None:
    breaker = opened(clock)
    clock.now += LIMITS.open_s
    breaker.check()
    breaker.failed("exited")
    breaker.cancel_trial()
    assert refusal(breaker).details == {"retry_after_s": LIMITS.open_s}


def test_the_try_that_is_given_up_leaves_its_turn_to_the_next(clock: Clock) -> None:
    breaker = opened(clock)
    clock.now += LIMITS.open_s
    breaker.check()
    breaker.cancel_trial()
    assert breaker.check() is True


def test_one_success_in_between_starts_the_count_anew(clock: Clock) -> None:
    breaker = CircuitBreaker("files", LIMITS, clock)
    for _ in range(10):
        breaker.failed("exited")
        breaker.failed("exited")
        breaker.succeeded()
    assert not breaker.is_open


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (TargetError("files did not answer", kind="timeout", server="files"), True),
        (TargetError("files dropped the connection", kind="network", server="files"), True),
        (TargetError("files answered", kind="http", server="files", status=503), True),
        (TargetError("files answered", kind="http", server="files", status=404), False),
        (TargetError("files sent rubbish", kind="garbage", server="files"), False),
        # Its connection has ended, which was already counted.
        (TargetError("files exited", kind="exited", server="files"), False),
    ],
)
def test_a_failed_call_counts_if_it_shows_an_ill_upstream(
    clock: Clock, error: TargetError, counts: bool
) -> None:
    breaker = CircuitBreaker("files", LIMITS, clock)
    for _ in range(LIMITS.failures):
        breaker.call_failed(error, breaker.failures)
    assert breaker.is_open is counts
    if counts:
        why = str(error).removeprefix("files ")
        assert str(refusal(breaker)).endswith(f"; last failure: {why}")


def test_calls_that_fail_together_count_once(clock: Clock) -> None:
    breaker = CircuitBreaker("files", LIMITS, clock)
    late = TargetError("files did not answer", kind="timeout", server="files")
    for _ in range(LIMITS.failures * 2):
        breaker.call_failed(late, 0)
    assert breaker.failures == 1
