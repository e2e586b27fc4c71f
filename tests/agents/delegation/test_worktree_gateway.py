"""Worktrees through a real gateway: delegated by a client, continued, collected by the user."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from tests.agents.delegation.delegations import Crew, acp, data, delegate, refusal
from tests.agents.worktrees.repositories import git
from tests.support.running import WAIT_S

pytestmark = pytest.mark.slow


@pytest.fixture
def crew(tmp_path: Path) -> Crew:
    script = {"capabilities": {"loadSession": True}}
    agents = {
        "first": acp({"shell": "echo 1 > new.txt"}, {"say": "ok"}, script=script, worktree=True),
        "next": acp({"shell": "echo 2 >> new.txt"}, {"say": "ok"}, script=script, worktree=True),
    }
    made = Crew(tmp_path, agents)
    git(made.work, "init", "-q", "-b", "main")
    return made


async def portico(crew: Crew, *words: str) -> str:
    """Run a command of Portico; its output."""
    command = crew.command(*words)[:-2]  # without --config
    run = await asyncio.to_thread(
        subprocess.run,
        command,
        env=crew.environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return str(run.stdout)


@pytest.mark.parametrize("verb", ["serve", "run --agents"])
async def test_delegated_work_is_continued_and_collected(crew: Crew, verb: str) -> None:
    git(crew.work, "commit", "-q", "--allow-empty", "-m", "first")
    async with crew.window(verb=verb) as client:
        first = data(await delegate(client, "first"))
        assert first["files_changed"] == ["new.txt"]
        assert first["cwd"].startswith(str(crew.home / "state" / "worktrees"))
        second = data(await delegate(client, "next", resume=first["task_id"]))
        assert (second["cwd"], second["files_changed"]) == (first["cwd"], ["new.txt"])
        assert list(crew.work.iterdir()) == [crew.work / ".git"]
        assert "+2" in await portico(crew, "tasks", "diff", second["task_id"])
        shown = await portico(crew, "tasks", "collect", second["task_id"])
        assert shown == f"applied 1 file to {crew.work}\n"
        assert (crew.work / "new.txt").read_text() == "1\n2\n"
        assert not Path(first["cwd"]).exists()  # noqa: ASYNC240


async def test_a_repository_without_commits_is_explained_to_the_client(crew: Crew) -> None:
    async with crew.window() as client:
        told = refusal(await delegate(client, "first"))
    assert "has no commits yet" in told
