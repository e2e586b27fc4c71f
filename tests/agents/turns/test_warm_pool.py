"""Warm processes: started in advance, handed over once, replaced, and all ended."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from portico.agents.turns.run_turn import run_turn
from portico.agents.turns.warm_pool import WarmPool
from portico.core.config.agents_schema import AgentPool
from portico.upstream.process.guardian import GUARDIAN
from tests.agents.turns.rig import FakePort, is_alive, launch, prompt
from tests.support.backoff import until
from tests.support.clock import Clock
from tests.wrap.faults import descendants

FOLDER = str(Path(__file__).parent)


@asynccontextmanager
async def pool(agent: Any = None, **limits: Any) -> AsyncIterator[WarmPool]:
    with TemporaryDirectory() as home:
        opened = WarmPool(agent or launch(), AgentPool(**limits), home)
        try:
            yield opened
        finally:
            await opened.close()


def pids() -> list[int]:
    """The processes of this test that run."""
    return [group for group in GUARDIAN.groups.values() if group]


async def test_none_is_started_before_the_first_use() -> None:
    async with pool(max=2) as warm:
        warm.start()
        assert pids() == []
        assert warm.take(FOLDER) is None
        await until(lambda: warm.status.ready == 2)
        assert (warm.status.hits, warm.status.misses) == (0, 1)


async def test_the_minimum_is_started_at_once_and_a_hit_is_replaced(tmp_path: Path) -> None:
    async with pool(min=1, max=1) as warm:
        warm.start()
        await until(lambda: warm.status.ready == 1)
        connection = warm.take(FOLDER)
        assert connection is not None
        assert connection.profile.name == "Fake Agent"
        outcome = await run_turn(connection.launch, prompt(tmp_path), FakePort(), connection)
        assert outcome.text == "done"
        assert outcome.timings.is_warm
        await until(lambda: warm.status.ready == 1)
        assert warm.status.hits == 1


async def test_a_process_is_for_tasks_in_the_folder_in_which_it_was_started(
    tmp_path: Path,
) -> None:
    agent = launch({"cwd": True})
    folders = [str(tmp_path / name) for name in "ab"]
    for folder in folders:
        os.mkdir(folder)

    async def ran(warm: WarmPool, folder: str) -> tuple[str, bool]:
        taken = warm.take(folder)
        outcome = await run_turn(agent, prompt(Path(folder)), FakePort(), taken)
        return outcome.text, outcome.timings.is_warm

    async with pool(agent, max=1) as warm:
        for folder in folders:  # one of another folder is replaced
            assert await ran(warm, folder) == (folder, False)
            await until(lambda: warm.status.ready == 1)
            assert await ran(warm, folder) == (folder, True)
            await until(lambda: warm.status.ready == 1)
    async with pool(agent, min=1, max=1) as warm:
        warm.start()
        await until(lambda: warm.status.ready == 1)
        home, is_warm = await ran(warm, folders[0])  # started before the first task
        assert is_warm
        assert home not in folders
        await until(lambda: warm.status.ready == 1)
        assert await ran(warm, folders[0]) == (folders[0], True)


async def test_closing_ends_all_processes() -> None:
    async with pool(min=2, max=2) as warm:
        warm.start()
        await until(lambda: warm.status.ready == 2)
        started = pids()
        assert len(started) == 2
    assert not any(map(is_alive, started))


async def test_a_dead_process_is_replaced_after_a_pause(clock: Clock) -> None:
    async with pool(min=1, max=1) as warm:
        warm.start()
        await until(lambda: warm.status.ready == 1)
        (pid,) = pids()
        os.kill(pid, 9)
        await until(lambda: warm.status.problem != "")
        assert "was killed by SIGKILL" in warm.status.problem
        assert warm.status.ready == 0
        await clock.advance(2)
        await until(lambda: warm.status.ready == 1)


async def test_a_process_that_died_unnoticed_costs_only_a_cold_start(tmp_path: Path) -> None:
    async with pool(min=1, max=1) as warm:
        warm.start()
        await until(lambda: warm.status.ready == 1)
        (keeper,) = pids()
        connection = warm.take(FOLDER)
        (agent,) = descendants(keeper)
        os.kill(agent, 9)
        outcome = await run_turn(launch(), prompt(tmp_path), FakePort(), connection)
        assert outcome.text == "done"
        assert not outcome.timings.is_warm


async def test_old_processes_go_and_only_the_minimum_is_renewed(clock: Clock) -> None:
    async with pool(min=1, max=3, max_age_s=100) as warm:
        warm.take(FOLDER)
        await until(lambda: warm.status.ready == 3)
        before = set(pids())
        await clock.advance(101)
        await until(lambda: warm.status.ready == 1 and len(set(pids())) == 1)
        assert not before & set(pids())


async def test_a_start_that_fails_is_tried_again_after_growing_pauses(
    tmp_path: Path, clock: Clock
) -> None:
    count = tmp_path / "count"
    script = f"echo x >> {count}; exit 3"
    agent = launch()
    broken = type(agent)(name="broken", argv=("sh", "-c", script))

    def starts() -> int:
        return len(count.read_text().split()) if count.exists() else 0

    async with pool(broken, min=1, max=1) as warm:
        warm.start()
        await until(lambda: warm.status.problem != "")
        assert starts() == 1
        await clock.advance(1.5)
        await until(lambda: warm.status.failures == 2)
        assert starts() == 2
        await clock.advance(1.5)  # the pause is two seconds now
        assert starts() == 2
        assert warm.take(FOLDER) is None


async def test_a_pool_without_room_never_starts_one() -> None:
    async with pool(max=0) as warm:
        assert warm.take(FOLDER) is None
        assert warm.status.ready == 0
        assert pids() == []
