"""A task whose gateway was killed is interrupted for everyone who looks at it, or waits for it,
long before its lease expires."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.serve.gateway import serve_command, written
from tests.support.running import WAIT_S
from tests.tasks_protocol.doors import ERAS
from tests.tasks_protocol.follower import FollowingPipes
from tests.tasks_protocol.gated import Gated
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-killed-owner")]

SEEN_S = 8.0
"""The promise is 2 s."""


@pytest.fixture
def gated(tmp_path: Path) -> Gated:
    """A gateway whose leases are so long that no test sees one expire."""
    return Gated(tmp_path, "legacy", gateway={"sync_budget_s": 0.2}, tasks={"lease_s": 600})


def promoted(gated: Gated) -> str:
    """The id of a task that runs in the owner, after its last window was closed."""
    with gated.window("modern", able={}) as window:
        call = window.call_of("hold", {"gate": str(gated.gate)})
        found: str = window.fetch("tools/call", call)["result"]["structuredContent"]["task_id"]
        return found


@contextmanager
def neighbour(gated: Gated, era: str) -> Iterator[FollowingPipes]:
    """A window of another gateway with the same store."""
    config = written(gated.home.parent / "other.toml", {}, gateway={"sync_budget_s": 5})
    words = serve_command(gated.home, config, "--alone")
    with FollowingPipes(gated.home, words=words, modern=era == "modern") as client:
        client.able = {}
        if era == "legacy":
            client.hello({})
        yield client


def own(client: FollowingPipes, tool: str, **arguments: Any) -> dict[str, Any]:
    """The structured result of one of the gateway's tools."""
    answer = client.fetch("tools/call", {"name": tool, "arguments": arguments})
    found: dict[str, Any] = answer["result"]["structuredContent"]
    return found


def test_a_command_shows_that_a_task_was_interrupted(gated: Gated) -> None:
    for action in ("list", "show"):
        id = promoted(gated)
        assert gated.record(id).state == "running"
        os.kill(gated.owner(), signal.SIGKILL)
        words = () if action == "list" else (id,)

        def is_seen(action: str = action, words: tuple[str, ...] = words) -> bool:
            data = json.loads(gated.command("tasks", action, *words, "--json"))
            state: str = (data[0] if action == "list" else data)["state"]
            return state == "interrupted"

        assert until(is_seen, SEEN_S)


def test_a_command_that_waits_ends_when_the_owner_is_killed(gated: Gated) -> None:
    id = promoted(gated)
    waiting = subprocess.Popen(
        [sys.executable, "-m", "portico", "tasks", "wait", id],
        env={**os.environ, "PORTICO_HOME": str(gated.home)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert waiting.poll() is None
    os.kill(gated.owner(), signal.SIGKILL)
    _, told = waiting.communicate(timeout=WAIT_S)
    assert waiting.returncode == 1
    assert "interrupted: the process that ran the task ended before the task did" in told


@pytest.mark.parametrize("era", ERAS)
def test_another_gateway_shows_that_a_task_was_interrupted(gated: Gated, era: str) -> None:
    id = promoted(gated)
    with neighbour(gated, era) as client:
        assert own(client, "task_status", task_id=id)["status"] == "running"
        assert own(client, "list_tasks")["tasks"][0]["status"] == "running"
        os.kill(gated.owner(), signal.SIGKILL)
        assert until(
            lambda: own(client, "list_tasks")["tasks"][0]["status"] == "interrupted", SEEN_S
        )
        assert own(client, "task_status", task_id=id)["status"] == "interrupted"


def test_a_client_of_another_gateway_that_waits_is_told(gated: Gated) -> None:
    id = promoted(gated)
    with neighbour(gated, "legacy") as client:
        params = {"name": "task_status", "arguments": {"task_id": id, "wait_s": 50}}
        asked = client.request("tools/call", params)
        os.kill(gated.owner(), signal.SIGKILL)
        told = json.loads(client.answer(asked))["result"]
    assert told["structuredContent"]["status"] == "interrupted"


def test_a_stopped_owner_keeps_its_tasks(gated: Gated) -> None:
    id = promoted(gated)
    owner = gated.owner()
    os.kill(owner, signal.SIGSTOP)
    try:
        assert json.loads(gated.command("tasks", "show", id, "--json"))["state"] == "running"
    finally:
        os.kill(owner, signal.SIGCONT)
    gated.gate.touch()
    assert gated.ended(id).state == "completed"
