"""The folder of a task is what it was when the task was delegated, or the task does not begin."""

import asyncio
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.agents.turns.rig import WAIT_S
from tests.agents.worktrees.repositories import delegations, worker_entry


@pytest.mark.parametrize("is_above", [False, True])
async def test_a_folder_that_became_a_link_is_refused(tmp_path: Path, is_above: bool) -> None:
    own, outside, gate = tmp_path / "own", tmp_path / "outside", tmp_path / "gate"
    wanted = own / "above" / "inner"
    wanted.mkdir(parents=True)
    (outside / "inner").mkdir(parents=True)
    os.mkfifo(gate)
    agent = worker_entry("single", {"pass": str(gate)}, {"touch": "started"}, worktree=False)
    async with delegations(tmp_path / "state", replace(agent, max_concurrent=1)) as work:
        first = await work.submit("single", own)
        async with asyncio.timeout(WAIT_S):
            opened = await asyncio.to_thread(gate.open, "w")  # once the agent reads it
        second = await work.submit("single", wanted)  # waits until the agent is free
        replaced = wanted.parent if is_above else wanted
        replaced.rename(own / "moved")
        replaced.symlink_to(outside if is_above else outside / "inner")
        opened.close()
        assert not (await work.ended(first))[0].is_error
        refused, result = await work.ended(second)
        assert refused.is_error
        assert result.result == f"the folder of the task is a link now: {wanted}"
        assert not (outside / "inner" / "started").exists()
