"""The tasks of a server that is a process of the gateway: they end with it, and can be resumed."""

import json
import os
import signal
from pathlib import Path

import pytest

from portico.core.model.defaults import LEASE_S
from portico.library.tasks.store.record import CANCELLED, COMPLETED, INTERRUPTED
from tests.tasks_protocol.doors import ERAS
from tests.tasks_protocol.gated import Gated
from tests.wrap.faults import alive, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-of-children")]

KILLED = "interrupted: the process that ran the task ended before the task did"
STOPPED = "interrupted: the process that ran the task was stopped before the task ended"
LASTING = {"lease_s": LEASE_S}
"""Outlasts a pause of an owner that stops: the next one is there while it drains."""


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
def test_a_task_whose_gateway_is_killed_is_interrupted_and_its_call_is_made_again_on_resume(
    tmp_path: Path, era: str, server: str
) -> None:
    gated = Gated(tmp_path, server)
    with gated.window(era) as window:
        id = window.begin("work", gate=str(gated.gate))
        os.kill(gated.owner(), signal.SIGKILL)
        assert gated.ended(id).state is INTERRUPTED
        assert window.outcome(id)["error"]["message"] == KILLED
        new = gated.resumed(id)
        assert until(lambda: len(gated.received("tools/call", "work")) == 2)
        gated.gate.touch()
        outcome = window.outcome(new)
        first, second = gated.received("tools/call", "work")
        assert outcome["result"]["content"][0]["text"] == f"done by {second['pid']}"
        assert first["pid"] != second["pid"]
        assert first["arguments"] == second["arguments"]
        assert gated.ended(new).resumes == id


def test_a_result_that_is_awaited_when_the_gateway_is_killed_comes_from_the_next(
    tmp_path: Path,
) -> None:
    gated = Gated(tmp_path, "legacy")
    with gated.window("legacy") as window:
        id = window.begin("work", gate=str(gated.gate))
        awaited = window.request("tasks/result", {"taskId": id})
        assert window.task(id)["status"] == "working"  # the gateway has the request before it
        os.kill(gated.owner(), signal.SIGKILL)
        assert json.loads(window.answer(awaited))["error"]["message"] == KILLED


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
def test_a_cancelled_task_of_a_server_that_is_resumed_calls_again(
    tmp_path: Path, era: str, server: str
) -> None:
    gated = Gated(tmp_path, server)
    with gated.gateway() as gateway, gated.client(gateway, era) as client:
        id = client.begin("work", gate=str(gated.gate))
        gated.cancelled(id)
        assert len(gated.received("tasks/cancel")) == 1
        new = gated.resumed(id)
        assert until(lambda: len(gated.received("tools/call", "work")) == 2)
        gated.gate.touch()
        assert "done by" in str(client.outcome(new)["result"])
        assert gated.record(id).state is CANCELLED


@pytest.mark.parametrize("server", ERAS)
def test_a_stop_waits_for_the_task_of_a_child(tmp_path: Path, server: str) -> None:
    gated = Gated(tmp_path, server, gateway={"drain": 60}, tasks=LASTING)
    with gated.window("modern") as window:
        id = window.begin("work", gate=str(gated.gate))
        owner = gated.owner()
        os.kill(owner, signal.SIGTERM)
        assert until(lambda: gated.owner() != owner or not window.task(id))
        assert gated.record(id).lease is not None
        gated.gate.touch()
        assert gated.ended(id).state is COMPLETED
        assert until(lambda: not alive({owner})), "the owner stays"
        assert "done by" in str(window.outcome(id)["result"])
        assert len(gated.received("tools/call", "work")) == 1


@pytest.mark.parametrize("server", ERAS)
def test_a_stop_interrupts_the_task_of_a_child_after_the_drain_and_says_why(
    tmp_path: Path, server: str
) -> None:
    gated = Gated(tmp_path, server, gateway={"drain": 0.2}, tasks=LASTING)
    with gated.window("modern") as window:
        id = window.begin("work", gate=str(gated.gate))
        gated.command("stop", "--config", str(gated.config))
        ended = gated.record(id)
        assert (ended.state, ended.message) == (INTERRUPTED, STOPPED)
        gated.gate.touch()
        assert "done by" in str(window.outcome(gated.resumed(id))["result"])
        assert len(gated.received("tools/call", "work")) == 2


def test_a_task_that_was_resumed_is_interrupted_and_resumed_like_the_first(tmp_path: Path) -> None:
    gated = Gated(tmp_path, "modern")
    with gated.window("modern") as window:
        id = window.begin("work", gate=str(gated.gate))
        for count in (2, 3):
            os.kill(gated.owner(), signal.SIGKILL)
            assert gated.ended(id).state is INTERRUPTED
            id = gated.resumed(id)
            assert until(lambda count=count: len(gated.received("tools/call", "work")) == count)
            assert gated.when(id, lambda task: task.note).state == "running"
        gated.gate.touch()
        assert "done by" in str(window.outcome(id)["result"])
        assert len(set(gated.keys("work"))) == 1


def test_another_gateway_of_the_config_interrupts_the_task_of_a_child_that_it_cannot_reach(
    tmp_path: Path,
) -> None:
    gated = Gated(tmp_path, "modern")
    with gated.window("modern") as window:
        id = window.begin("work", gate=str(gated.gate))
    owner = gated.owner()
    with gated.gateway() as other, gated.client(other, "modern") as client:
        assert client.task(id)["status"] == "working"
        assert owner not in (0, other.process.pid)
        os.kill(owner, signal.SIGKILL)
        assert client.reached(id, "failed")["statusMessage"] == KILLED
        new = gated.resumed(id)
        assert until(lambda: len(gated.received("tools/call", "work")) == 2)
        gated.gate.touch()
        assert "done by" in str(client.outcome(new)["result"])
