"""A link that redacts, before `serve`, `wrap` and a library server: whichever way the result of a
task leaves, it has passed the link."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.running import REDACTING
from tests.tasks_protocol.doors import ERAS, LIBRARY_WAYS, LibraryDoors
from tests.tasks_protocol.doors import WAYS as DOOR_WAYS
from tests.tasks_protocol.follower import Follower
from tests.tasks_protocol.test_task_notifications import listen, states
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("linked-results")]

SECRET = "ana@example.com"
CLEAN = "computed [e-mail] in 0.0 s"
WAYS = [*DOOR_WAYS, *LIBRARY_WAYS]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LibraryDoors]:
    with LibraryDoors(tmp_path_factory.mktemp("linked"), REDACTING) as ready:
        yield ready


@pytest.fixture(params=WAYS, ids="-".join)
def client(request: pytest.FixtureRequest, doors: LibraryDoors) -> Iterator[Follower]:
    """A client of each way."""
    found = doors.client(*request.param)
    yield found
    assert found.oracle.problems == []


def test_no_client_gets_a_result_that_did_not_pass_the_link(client: Follower) -> None:
    id = client.begin("slow_compute", seconds=0, label=SECRET)
    outcome = client.outcome(id)
    assert outcome["result"]["content"][0]["text"] == CLEAN
    assert SECRET not in json.dumps(outcome)
    if client.modern:
        assert listen(client, id)[1] == [id]
        assert until(lambda: states(client, "notifications/tasks", id))
        (only,) = states(client, "notifications/tasks", id)
        assert only["result"]["content"][0]["text"] == CLEAN


def test_a_listener_gets_what_the_link_returned(client: Follower) -> None:
    if not client.modern:  # it has no such notifications
        ended = client.fetch("tasks/result", {"taskId": client.begin("slow_compute", seconds=0)})
        assert "computed  in" in json.dumps(ended)
        return
    id = client.begin("slow_compute", seconds=0.5, label=SECRET)
    listen(client, id)

    def seen() -> list[dict[str, Any]]:
        return states(client, "notifications/tasks", id)

    assert until(lambda: seen() and seen()[-1]["status"] == "completed"), seen()
    assert seen()[-1]["result"]["content"][0]["text"] == "computed [e-mail] in 0.5 s"


def test_wrap_follows_the_tasks_of_its_server_itself(doors: LibraryDoors) -> None:
    for era in ERAS:
        client = doors.client("wrap-stdio", era, era)
        assert client.begin("slow_compute", seconds=0).startswith("ptk_")


def test_the_failure_of_a_servers_task_passes_the_link(client: Follower) -> None:
    outcome = client.outcome(client.begin("protocol_error_job"))
    assert outcome["status"] == "failed"
    assert outcome["error"]["message"] == "the machinery broke"


def test_the_questions_of_a_task_are_asked_through_the_link(client: Follower) -> None:
    id = client.begin("confirm_delete", filename=SECRET)
    if client.modern:
        (key,) = client.questions(id, 1)
        client.update(id, {key: {"action": "accept", "content": {"confirm": True}}})
    assert client.outcome(id)["result"]["content"][0]["text"] == "deleted [e-mail]"
