"""The reference server, which has tasks of its own and lets its client run some, behind Portico."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.serve.gateway import Gateway, command, written
from tests.support.node import everything_server, node
from tests.tasks_protocol.doors import ANSWERS
from tests.tasks_protocol.follower import ABLE, FollowingWeb
from tests.wrap.faults import Wrap

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-reference-server")]

CLARIFY = {"action": "accept", "content": {"interpretation": "snake"}}
WORKING = {
    "taskId": "client-1",
    "status": "working",
    "createdAt": "2026-11-17T00:00:00Z",
    "lastUpdatedAt": "2026-11-17T00:00:00Z",
    "ttl": 60_000,
    "pollInterval": 100,
}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "forty-two"}, "model": "tiny"}
OWN: dict[str, Any] = {
    "sampling": {},
    "elicitation": {"form": {}},
    "tasks": {
        "requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}},
        "cancel": {},
    },
}


@contextmanager
def behind(
    door: str, folder: Path, answers: dict[str, Any], modern: bool
) -> Iterator[FollowingWeb]:
    """A client of the reference server, through Portico."""
    words = [str(node()), str(everything_server()), "stdio"]
    config = written(folder / "portico.toml", {"rig": command(words)}, gateway={"expose": "all"})
    portico = Wrap(folder / "home", "--", *words) if door == "wrap" else None
    with portico or Gateway(folder / "home", config) as running:
        path = "/servers/rig/mcp" if door == "server" else "/mcp"
        with FollowingWeb(running.port, path, answers=answers, modern=modern) as client:
            client.prefix = "rig__" if door == "merged" else ""
            yield client
            assert client.oracle.problems == []


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
@pytest.mark.parametrize("door", ["wrap", "merged"])
def test_a_task_of_the_reference_server_asks_and_completes(
    tmp_path: Path, door: str, modern: bool
) -> None:
    answers = {**ANSWERS, "elicitation/create": CLARIFY}
    with behind(door, tmp_path, answers, modern) as client:
        if not modern:
            client.hello(ABLE)
        id = client.begin("simulate-research-query", topic="python", ambiguous=True)
        if modern:
            client.update(id, dict.fromkeys(client.questions(id, 1), CLARIFY))
        text = client.outcome(id)["result"]["content"][0]["text"]
        assert text.startswith("# Research Report: python (snake)")


@pytest.mark.parametrize("door", ["wrap", "server"])
def test_a_client_of_the_same_era_runs_tasks_of_its_own(tmp_path: Path, door: str) -> None:
    accepted = {"action": "accept", "content": {"name": "Ada"}}
    answers: dict[str, Any] = {
        "sampling/createMessage": {"task": WORKING},
        "elicitation/create": {"task": WORKING},
        "tasks/get": {**WORKING, "status": "completed"},
        "tasks/result": SAMPLED,
    }
    with behind(door, tmp_path, answers, modern=False) as client:
        client.hello(OWN)
        text = client.call("trigger-sampling-request-async", prompt="six times seven")
        assert "forty-two" in text
        assert "client-1" in text
        asked = json.loads(client.heard("sampling/createMessage")[0])
        assert asked["task"] == {"ttl": 300000}
        assert json.loads(client.heard("tasks/get")[0])["taskId"] == "client-1"
        assert json.loads(client.heard("tasks/result")[0])["taskId"] == "client-1"
        answers["tasks/result"] = accepted
        text = client.call("trigger-elicitation-request-async")
        assert text == "[COMPLETED] User provided the requested information!"
