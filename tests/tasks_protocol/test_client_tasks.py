"""A client's own tasks, which a server of 2025-11-25 may request of it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import questions
from tests.serve.gateway import Gateway, command, written
from tests.tasks_protocol.follower import FollowingWeb
from tests.tasks_protocol.test_reference_server import OWN, SAMPLED, WORKING

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-client")]

ASKED = {
    "method": "sampling/createMessage",
    "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": "?"}}],
        "maxTokens": 5,
        "task": {"ttl": 60_000},
    },
}


def served(folder: Path) -> Gateway:
    """A gateway in front of the server that asks."""
    rig = command(questions("legacy"), era="legacy")
    config = written(folder / "portico.toml", {"rig": rig}, gateway={"expose": "all"})
    return Gateway(folder / "home", config)


def test_a_legacy_client_runs_a_task_for_a_legacy_server_among_others(tmp_path: Path) -> None:
    answers: dict[str, Any] = {
        "sampling/createMessage": {"task": WORKING},
        "tasks/get": {**WORKING, "status": "completed"},
        "tasks/result": SAMPLED,
    }
    with served(tmp_path) as gateway, FollowingWeb(gateway.port, answers=answers) as client:
        client.hello(OWN)
        said = client.call("rig__ask", **ASKED)
        assert json.loads(said)["task"]["taskId"] == "client-1"
        assert json.loads(client.heard("sampling/createMessage")[0])["task"] == {"ttl": 60_000}
        for method, told in (("tasks/get", "completed"), ("tasks/result", "forty-two")):
            about = {"method": method, "params": {"taskId": "client-1"}}
            assert told in client.call("rig__ask", **about)


def test_a_modern_client_answers_a_legacy_server_with_a_plain_result(tmp_path: Path) -> None:
    with served(tmp_path) as gateway, FollowingWeb(gateway.port, modern=True) as client:
        client.able = {"sampling": {}}
        call = {"name": "rig__ask", "arguments": ASKED}
        first = client.fetch("tools/call", call)["result"]
        ((key, question),) = first["inputRequests"].items()
        assert "task" not in question["params"]
        more = {"inputResponses": {key: SAMPLED}, "requestState": first["requestState"]}
        last = client.fetch("tools/call", {**call, **more})["result"]
        assert json.loads(last["content"][0]["text"]) == SAMPLED
        assert client.oracle.problems == []


def test_a_legacy_client_without_tasks_is_asked_for_a_plain_result(tmp_path: Path) -> None:
    answers: dict[str, Any] = {"sampling/createMessage": SAMPLED}
    with served(tmp_path) as gateway, FollowingWeb(gateway.port, answers=answers) as client:
        client.hello({"sampling": {}})
        assert json.loads(client.call("rig__ask", **ASKED)) == SAMPLED
