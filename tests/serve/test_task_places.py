"""A server or an agent whose tasks never end takes no place from the tasks of others."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.delegation.delegations import Crew, acp
from tests.serve.gateway import Gateway, command
from tests.tasks_protocol.doors import ERAS
from tests.tasks_protocol.follower import EXTENSION, FollowingWeb
from tests.tasks_protocol.gated import Gated

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-task-places")]

RUNNING, IN_PROGRESS = 2, 5
COOK = '''
from portico import Server

server = Server("cook", "1")


@server.tool(task=True)
async def cook() -> str:
    """Cook something."""
    return "cooked"
'''


class Kitchen:
    """A gateway with a component of its own, a server and agents, and a client with tasks."""

    def __init__(self, folder: Path, era: str) -> None:
        (folder / "cook.py").write_text(COOK)
        self.gated = Gated(folder, era)
        self.crew = Crew(
            folder,
            {
                "quick": acp({"say": "done"}),
                "stuck": acp({"wait_for_cancel": True}, max_concurrent=1),
            },
            gateway={"expose": "all", "drain": 0},
            tasks={"running": RUNNING, "in_progress": IN_PROGRESS},
            servers__rig=command(self.gated.words, era=era, sync_budget_s=0.1),
            components__cook={"path": str(folder / "cook.py"), "in_process": True},
        )
        self.gate = str(folder / "gate")

    def fill(self, client: FollowingWeb) -> None:
        """Begin as many tasks of the server as it may have, which never end."""
        client.prefix = "rig__"
        for number in range(IN_PROGRESS):  # its own tasks, and calls that become tasks by time
            client.begin("hold" if number < RUNNING else "work", gate=self.gate)
        refused = client.called("work", gate=self.gate)["error"]
        assert refused["message"].startswith(f"task limit reached ({IN_PROGRESS} for rig); wait")
        assert refused["data"] == {"kind": "limit"}


@pytest.fixture(params=ERAS)
def kitchen(request: pytest.FixtureRequest, tmp_path: Path) -> Kitchen:
    return Kitchen(tmp_path, request.param)


@pytest.fixture
def client(kitchen: Kitchen) -> Iterator[FollowingWeb]:
    with (
        Gateway(kitchen.crew.home, kitchen.crew.config) as gateway,
        FollowingWeb(gateway.port, modern=True) as client,
    ):
        client.able = {"extensions": {EXTENSION: {}}}
        yield client


def delegated(client: FollowingWeb, agent: str = "") -> dict[str, Any]:
    """The answer to a delegation."""
    given = {"task_type": "code", "prompt": "Work.", **({"agent_id": agent} if agent else {})}
    client.prefix = ""
    return client.called("delegate_task", **given)


def cooked(client: FollowingWeb) -> str:
    """The result of a task of the component."""
    client.prefix = "cook__"
    outcome = client.outcome(client.begin("cook"))
    text: str = outcome["result"]["content"][0]["text"]
    return text


def test_the_tasks_of_one_server_leave_places_for_components_and_agents(
    kitchen: Kitchen, client: FollowingWeb
) -> None:
    kitchen.fill(client)
    assert cooked(client) == "cooked"
    for agent in ("quick", ""):
        id = delegated(client, agent)["result"]["taskId"]
        assert "done" in str(client.outcome(id)["result"])


def test_the_tasks_of_one_agent_leave_places_for_others(
    kitchen: Kitchen, client: FollowingWeb
) -> None:
    for _ in range(IN_PROGRESS):
        assert delegated(client, "stuck")["result"]["status"] == "working"
    refused = delegated(client, "stuck")["error"]["message"]
    assert refused.startswith(f"task limit reached ({IN_PROGRESS} for agent stuck); wait")
    assert "done" in str(client.outcome(delegated(client, "quick")["result"]["taskId"])["result"])
    assert cooked(client) == "cooked"
    kitchen.fill(client)
