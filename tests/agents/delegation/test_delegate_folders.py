"""The folders of tasks: the agent's own, that of an earlier task, and one that is gone."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.agents.delegation.delegations import Crew, acp, data, delegate, over_http, refusal, words
from tests.agents.delegation.desk_windows import DeskGateway, mcp_agent
from tests.serve.gateway import Gateway

pytestmark = pytest.mark.slow

RESUMABLE: dict[str, Any] = {"capabilities": {"sessionCapabilities": {"resume": {}}}}
FOLDER = ["folder"]


def settled(**keys: Any) -> dict[str, Any]:
    """An agent that tells in which folder its process runs."""
    return acp({"cwd": True}, script=RESUMABLE, **keys)


async def test_an_agent_with_a_folder_works_there_unless_a_task_has_another(
    tmp_path: Path,
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    agents = {"settled": settled(cwd="own"), "guest": settled(), "lost": settled(cwd="nowhere")}
    crew = Crew(tmp_path, agents)
    with Gateway(crew.home, crew.config) as gateway:
        async with over_http(gateway.port) as client:
            first = await delegate(client, "settled")
            assert words(first) == str(own)
            assert words(await delegate(client, "settled", cwd=str(crew.work))) == str(crew.work)
            resumed = await delegate(client, resume=data(first)["task_id"])
            assert words(resumed) == str(own)
            assert words(await delegate(client, "guest")) == str(crew.work)
            why = refusal(await delegate(client, "lost"))
            assert why == f"lost: its folder {tmp_path / 'nowhere'} does not exist"


async def test_an_agent_with_a_folder_needs_no_other(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    agents = {"guest": settled(priority=9), "settled": settled(cwd="own")}
    crew = Crew(tmp_path, agents, agents_defaults={"roots": []})
    with Gateway(crew.home, crew.config) as gateway:
        async with over_http(gateway.port) as client:
            found = data(await delegate(client))
            assert (found["agent_id"], found["result"]) == ("settled", str(tmp_path / "own"))
            assert found["skipped"] == ["guest has no folder to work in: give `cwd`"]
            why = refusal(await delegate(client, "guest"))
            assert why.startswith("no folder is known for this task: give `cwd`")


async def test_a_task_whose_folder_is_gone_fails_alone(tmp_path: Path) -> None:
    crew = Crew(tmp_path, {"plain": settled(rate_limit={"requests_per_day": 2})})
    gone = crew.work / "gone"
    gone.mkdir()
    with Gateway(crew.home, crew.config) as gateway:
        async with over_http(gateway.port) as client:
            first = data(await delegate(client, cwd=str(gone)))["task_id"]
            shutil.rmtree(gone)
            assert refusal(await delegate(client, resume=first)) == f"cwd: {gone} is not a folder"
            assert words(await delegate(client)) == str(crew.work)


async def test_a_session_that_cannot_be_continued_is_not_a_failure_of_its_agent(
    tmp_path: Path,
) -> None:
    refused = {"session/resume": {"error": {"code": -32602, "message": "no such session"}}}
    crew = Crew(tmp_path, {"plain": acp({"say": "done"}, script={**RESUMABLE, "answers": refused})})
    with Gateway(crew.home, crew.config) as gateway:
        async with over_http(gateway.port) as client:
            first = data(await delegate(client))["task_id"]
            assert "no such session" in refusal(await delegate(client, resume=first))
            assert words(await delegate(client)) == "done"
            (agent,) = data(await client.call_tool("agent_status", {}))["agents"]
            assert agent["state"] == "ready"
            assert agent["totals"]["tasks"] == {"completed": 2, "failed": 1}


def test_a_window_continues_no_task_of_another_folder(tmp_path: Path) -> None:
    with DeskGateway(tmp_path, {"plain": mcp_agent()}) as gateway:
        folders = [tmp_path / name for name in ("first", "second")]
        for folder in folders:
            folder.mkdir()
        one, two = (gateway.window(folder=folder) for folder in folders)
        task = one.submit("plain", [FOLDER])
        assert one.outcomes(task) == [str(folders[0])]
        assert "is not inside the allowed folders" in two.refusal("plain", resume=task)
        assert two.delegate("plain", FOLDER, resume=task, cwd=".") == [str(folders[1])]
        assert one.delegate("plain", FOLDER, resume=task) == [str(folders[0])]
