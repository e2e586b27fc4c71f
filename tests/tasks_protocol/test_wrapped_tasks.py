"""Tasks of a wrapped server: the log of them, and clients that nobody knows."""

import asyncio
import json
from pathlib import Path

import pytest

from portico.core.model.context import LOCAL
from portico.library.tasks.store.record import INTERRUPTED, TaskRecord
from portico.library.tasks.store.store import tasks_in_folder
from tests.tasks_protocol.doors import Doors, tasks_server
from tests.tasks_protocol.follower import FollowingWeb
from tests.wrap.faults import Wrap

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-doors")]

STOPPED = "interrupted: the process that ran the task was stopped before the task ended"


@pytest.mark.parametrize("server", ["legacy", "modern"])
def test_a_client_without_a_token_cannot_list_the_tasks_of_others(
    doors: Doors, server: str
) -> None:
    with (
        doors.visitor("wrap", "legacy", server) as first,
        doors.visitor("wrap", "legacy", server) as second,
    ):
        id = first.begin("slow_compute", seconds=600)
        for client in (first, second):
            answer = client.fetch("tasks/list")
            assert answer["error"]["code"] == -32601
            assert id not in json.dumps(answer)
        assert second.fetch("tasks/cancel", {"taskId": id})["result"]["status"] == "cancelled"


def test_each_task_of_a_wrapped_server_has_a_line_in_the_log_when_it_begins_and_ends(
    tmp_path: Path,
) -> None:
    log = tmp_path / "calls.log"
    with (
        Wrap(
            tmp_path / "home", "--log", str(log), "--era", "legacy", "--", *tasks_server()
        ) as wrap,
        FollowingWeb(wrap.port, modern=True) as client,
    ):
        done = client.begin("slow_compute", seconds=0, label="secret")
        assert client.outcome(done)["status"] == "completed"
        ended = client.begin("slow_compute", seconds=600)
        client.fetch("tasks/cancel", {"taskId": ended})
        client.reached(ended, "cancelled")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    events = [line["text"] for line in lines if line.get("kind") == "event"]
    states = {done: "completed", ended: "cancelled"}
    expected = [f"task {id} (remote) created" for id in states]
    expected += [f"task {id} (remote) {state}" for id, state in states.items()]
    assert sorted(events) == sorted(expected)
    assert "secret" not in log.read_text()


def test_a_task_of_a_wrapped_child_is_interrupted_after_the_drain(tmp_path: Path) -> None:
    home = tmp_path / "home"
    words = ("--era", "legacy", "--", *tasks_server())
    with (
        Wrap(home, "--drain", "0.2", *words) as wrap,
        FollowingWeb(wrap.port, modern=True) as client,
    ):
        id = client.begin("slow_compute", seconds=600)
    task = asyncio.run(_stored(home, id))
    assert task is not None
    assert (task.state, task.message) == (INTERRUPTED, STOPPED)


async def _stored(home: Path, id: str) -> TaskRecord | None:
    store = tasks_in_folder(str(home / "state"))
    try:
        return await store.get(LOCAL, id)
    finally:
        await store.close()
