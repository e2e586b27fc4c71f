"""The quotas of agents, in memory and in a file: exact windows, on clocks that may be set back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from portico.agents.routing.availability import averages
from portico.agents.routing.quotas import (
    DAY_S,
    MINUTE_S,
    AgentQuotas,
    quotas_in_folder,
    quotas_in_memory,
)
from portico.agents.turns.usage import AgentUsage
from portico.core.config.agents_schema import RateLimit
from portico.core.state.store_error import StoreError
from tests.support.shared import ROOT
from tests.support.task_stores import SetClocks

PER_MINUTE = RateLimit(requests_per_minute=2)
CALLER = ROOT / "tests" / "rigs" / "quota_caller.py"


@pytest.fixture
def now() -> SetClocks:
    return SetClocks()


@pytest.fixture(params=["memory", "file"])
def quotas(request: pytest.FixtureRequest, tmp_path: Path, now: SetClocks) -> AgentQuotas:
    if request.param == "memory":
        return quotas_in_memory(now.clocks)
    return quotas_in_folder(str(tmp_path), now.clocks)


async def starts(quotas: AgentQuotas, limits: RateLimit, count: int = 1) -> int:
    """How many of some prompts may start."""
    return sum([await quotas.start("a", limits) is None for _ in range(count)])


async def used(quotas: AgentQuotas, task: str, **usage: float) -> bool:
    tokens, cost = usage.get("tokens"), usage.get("cost")
    total = None if tokens is None else int(tokens)
    reported = AgentUsage(total_tokens=total, cost=cost, currency="USD")
    return await quotas.finish(task, "a", "completed", reported)


async def test_an_agent_without_limits_may_always_start(quotas: AgentQuotas) -> None:
    assert await starts(quotas, RateLimit(), 100) == 100
    await quotas.close()


async def test_a_prompt_over_the_limit_is_refused_until_the_oldest_leaves_the_window(
    quotas: AgentQuotas, now: SetClocks
) -> None:
    begun = now.wall
    assert await starts(quotas, PER_MINUTE) == 1
    now.advance(20)
    assert await starts(quotas, PER_MINUTE, 2) == 1
    over = await quotas.start("a", PER_MINUTE)
    assert over is not None
    assert (over.limit, over.used, over.allowed) == ("requests_per_minute", 2, 2)
    assert (over.free_at, over.wait_s) == (begun + MINUTE_S, 40)
    assert str(over) == (
        "a is over its quota (2 of 2 requests per minute): "
        "the next slot is free in 40 s, at 2027-01-15T08:01:00Z"
    )
    now.advance(39.5)
    assert await starts(quotas, PER_MINUTE) == 0
    now.advance(0.5)
    assert await starts(quotas, PER_MINUTE, 2) == 1
    await quotas.close()


async def test_a_prompt_that_was_not_sent_is_taken_back_and_no_other(
    quotas: AgentQuotas, now: SetClocks
) -> None:
    assert await quotas.start("a", PER_MINUTE, "first") is None
    now.advance(20)
    assert await quotas.start("a", PER_MINUTE, "second") is None
    await quotas.refund("a", "first")
    await quotas.refund("a", "first")
    await quotas.refund("b", "second")
    assert await starts(quotas, PER_MINUTE, 3) == 1
    now.advance(40)  # the first one would have left the window
    assert await starts(quotas, PER_MINUTE) == 0
    await quotas.close()


async def test_the_limit_of_a_day_outlasts_that_of_a_minute(
    quotas: AgentQuotas, now: SetClocks
) -> None:
    limits = RateLimit(requests_per_minute=2, requests_per_day=3)
    assert await starts(quotas, limits, 3) == 2
    now.advance(MINUTE_S)
    assert await starts(quotas, limits, 3) == 1
    over = await quotas.start("a", limits)
    assert over is not None
    assert (over.limit, over.wait_s) == ("requests_per_day", DAY_S - MINUTE_S)
    now.advance(DAY_S - MINUTE_S)
    assert await starts(quotas, limits, 3) == 2
    await quotas.close()


async def test_a_refused_prompt_and_another_agent_use_nothing(quotas: AgentQuotas) -> None:
    assert await starts(quotas, PER_MINUTE, 10) == 2
    assert await quotas.start("b", PER_MINUTE) is None
    status = await quotas.status({"a": PER_MINUTE, "b": PER_MINUTE, "c": RateLimit()})
    assert [status[id].prompts for id in "abc"] == [2, 1, 0]
    assert [status[id].over is None for id in "abc"] == [False, True, True]
    assert [[one.left for one in status[id].limits] for id in "abc"] == [[0], [1], []]
    assert status["c"].last_prompt is None
    await quotas.close()


async def test_quotas_that_nobody_used_are_whole(quotas: AgentQuotas) -> None:
    limits = RateLimit(requests_per_day=5, cost_per_day=1.5)
    status = (await quotas.status({"a": limits}))["a"]
    assert [(one.limit, one.left) for one in status.limits] == [
        ("requests_per_day", 5),
        ("cost_per_day", 1.5),
    ]
    assert await quotas.totals() == {}
    await quotas.close()


@pytest.mark.parametrize("back_s", [1.0, 3600.0, 10 * DAY_S])
async def test_a_clock_that_is_set_back_frees_nothing_and_costs_nothing(
    quotas: AgentQuotas, now: SetClocks, back_s: float
) -> None:
    assert await starts(quotas, PER_MINUTE, 2) == 2
    now.wall -= back_s
    over = await quotas.start("a", PER_MINUTE)
    assert over is not None
    # The slot is shown by the clock as it is now.
    assert (over.wait_s, over.free_at) == (MINUTE_S, now.wall + MINUTE_S)
    now.advance(MINUTE_S)
    assert await starts(quotas, PER_MINUTE, 3) == 2
    await quotas.close()


async def test_after_a_restart_of_the_system_a_clock_set_back_frees_nothing(
    quotas: AgentQuotas, now: SetClocks
) -> None:
    assert await starts(quotas, PER_MINUTE, 2) == 2
    now.wall -= 3600
    now.steady = 10.0
    assert await starts(quotas, PER_MINUTE) == 0
    now.advance(3600 + MINUTE_S)
    assert await starts(quotas, PER_MINUTE, 3) == 2
    await quotas.close()


async def test_tokens_and_cost_count_when_they_are_reported(
    quotas: AgentQuotas, now: SetClocks
) -> None:
    limits = RateLimit(tokens_per_day=1000, cost_per_day=2.0)
    assert await used(quotas, "t1", tokens=600, cost=0.5)
    now.advance(3600)
    assert await starts(quotas, limits) == 1
    assert await used(quotas, "t2", tokens=600)
    over = await quotas.start("a", limits)
    assert over is not None
    assert (over.limit, over.used, over.wait_s) == ("tokens_per_day", 1200, DAY_S - 3600)
    now.advance(DAY_S - 3600)
    assert await starts(quotas, limits) == 1
    assert await used(quotas, "t3", cost=2.0)
    over = await quotas.start("a", limits)
    assert over is not None
    assert (over.limit, over.used, over.wait_s) == ("cost_per_day", 2, DAY_S)
    await quotas.close()


async def test_totals_count_each_task_once_and_unknown_is_not_0(quotas: AgentQuotas) -> None:
    assert await used(quotas, "t1")
    (totals,) = (await quotas.totals()).values()
    assert (totals.tasks, totals.tokens, totals.cost) == ({"completed": 1}, None, None)
    assert await used(quotas, "t2", tokens=10, cost=0.25)
    assert not await used(quotas, "t2", tokens=10, cost=0.25)
    assert await used(quotas, "t3", tokens=0)
    other = AgentUsage(input_tokens=1, output_tokens=2, cost=1.0, currency="EUR")
    assert await quotas.finish("t4", "a", "failed", other)
    totals = (await quotas.totals())["a"]
    assert totals.tasks == {"completed": 3, "failed": 1}
    assert (totals.tokens, totals.tasks_with_tokens) == (13, 3)
    assert (totals.cost, totals.tasks_with_cost) == ({"EUR": 1.0, "USD": 0.25}, 2)
    await quotas.close()


async def test_totals_have_the_mean_time_of_each_stage_and_the_permissions(
    quotas: AgentQuotas,
) -> None:
    first = {"queue": 1.0, "start": 2.0, "turn": None}
    assert await quotas.finish("t1", "a", "completed", AgentUsage(), first, {"allowed": 2})
    second = {"queue": 3.0, "start": None, "turn": 5.0}
    assert await quotas.finish("t2", "a", "failed", AgentUsage(), second, {"denied": 1})
    totals = (await quotas.totals())["a"]
    assert totals.seconds == {"queue": 2.0, "start": 2.0, "turn": 5.0}
    assert totals.permissions == {"allowed": 2, "denied": 1}
    assert averages(to_builtins(totals)) == [
        "on average waited 2 s, started in 2 s, worked 5 s",
        "permissions: 2 allowed, 1 denied",
    ]
    await quotas.close()


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -1.0])
async def test_a_report_that_makes_no_sense_is_unknown(quotas: AgentQuotas, cost: float) -> None:
    usage = AgentUsage(total_tokens=10**30, cost=cost, currency="USD")
    assert await quotas.finish("t", "a", "completed", usage)
    totals = (await quotas.totals())["a"]
    assert (totals.tokens, totals.cost) == (2**53, None)
    await quotas.close()


async def test_counts_and_totals_are_kept_across_restarts(tmp_path: Path, now: SetClocks) -> None:
    first = quotas_in_folder(str(tmp_path), now.clocks)
    assert await starts(first, PER_MINUTE, 2) == 2
    assert await used(first, "t", tokens=5)
    await first.close()
    second = quotas_in_folder(str(tmp_path), now.clocks)
    assert await starts(second, PER_MINUTE) == 0
    assert (await second.totals())["a"].tokens == 5
    assert not await used(second, "t", tokens=5)
    await second.close()


async def test_a_damaged_store_is_explained(tmp_path: Path, now: SetClocks) -> None:
    (tmp_path / "quotas.db").write_bytes(b"")
    quotas = quotas_in_folder(str(tmp_path), now.clocks)
    with pytest.raises(StoreError, match=r"cannot open the quota store .*: the file is empty"):
        await quotas.start("a", PER_MINUTE)
    await quotas.close()


_steps = st.lists(
    st.tuples(
        st.floats(0, 50).map(lambda s: round(s, 3)),
        st.sampled_from([0.0, 0.0, 0.0, -1.0, -30.0, -1e6]),
        st.booleans(),
    ),
    max_size=60,
)


@given(steps=_steps, limit=st.integers(1, 4))
async def test_no_window_has_more_than_its_limit_and_none_has_less_than_it_could(
    steps: list[tuple[float, float, bool]], limit: int
) -> None:
    now, elapsed, begun = SetClocks(), 0.0, list[float]()
    quotas = quotas_in_memory(now.clocks)
    limits = RateLimit(requests_per_minute=limit)
    for seconds, jump, is_prompt in steps:
        now.advance(seconds)
        now.wall += jump
        elapsed += seconds
        if is_prompt:
            recent = [at for at in begun if at > elapsed - MINUTE_S + 1e-6]
            surely_recent = [at for at in begun if at > elapsed - MINUTE_S - 1e-6]
            may = await quotas.start("a", limits) is None
            if len(recent) == len(surely_recent):  # not on the very edge of a window
                assert may is (len(recent) < limit)
            if may:
                begun.append(elapsed)
    await quotas.close()


def test_50_callers_in_2_processes_never_exceed_a_limit_and_never_miss_it(tmp_path: Path) -> None:
    limit, attempts = 333, 10
    command = [sys.executable, str(CALLER), str(tmp_path), "25", str(attempts), str(limit)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    started = [int(process.communicate(timeout=120)[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sum(started) == limit
