"""Tasks that report by themselves: to listeners, to sessions, and as progress."""

import json
from typing import Any

import pytest

from tests.tasks_protocol.doors import DOORS, ERAS, Doors
from tests.tasks_protocol.follower import ACCEPT, RELATED, Follower
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-doors")]

LISTENERS = [(door, "modern", server) for door in DOORS for server in ERAS]
SESSIONS = [(door, "legacy", server) for door in DOORS for server in ERAS]
listeners = pytest.mark.parametrize("client", LISTENERS, indirect=True, ids="-".join)
sessions = pytest.mark.parametrize("client", SESSIONS, indirect=True, ids="-".join)
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def listen(client: Follower, *ids: str) -> tuple[bytes, list[str]]:
    """Listen to tasks; the request, and the tasks that are acknowledged."""
    before = len(client.heard("notifications/subscriptions/acknowledged"))
    request = client.request("subscriptions/listen", {"notifications": {"taskIds": list(ids)}})
    told = json.loads(client.next("notifications/subscriptions/acknowledged", before + 1))
    return request, told["notifications"].get("taskIds", [])


def states(client: Follower, method: str, id: str) -> list[dict[str, Any]]:
    """All notifications about a task so far."""
    told = [json.loads(raw) for raw in client.heard(method)]
    return [one for one in told if one["taskId"] == id]


@listeners
def test_a_listener_gets_every_state_of_its_task_in_full(client: Follower) -> None:
    id, other = client.begin("multi_input"), client.begin("multi_input")
    client.questions(id, 2)
    request, acknowledged = listen(client, id)
    assert acknowledged == [id]

    def seen() -> list[dict[str, Any]]:
        return states(client, "notifications/tasks", id)

    assert until(lambda: any("inputRequests" in one for one in seen()))
    asked = next(one for one in reversed(seen()) if "inputRequests" in one)["inputRequests"]
    assert asked == client.task(id)["inputRequests"]
    for task in (id, other):
        client.update(task, dict.fromkeys(client.questions(task, 2), ACCEPT))
    assert until(lambda: seen() and seen()[-1]["status"] == "completed"), seen()
    last = seen()[-1]
    assert last["result"]["content"][0]["text"] == "accept accept"
    assert last["_meta"][SUBSCRIPTION] == json.loads(request)
    assert client.outcome(other)["status"] == "completed"
    assert states(client, "notifications/tasks", other) == []
    assert states(client, "notifications/tasks/status", id) == []


@listeners
def test_a_listener_of_a_finished_task_gets_its_result(client: Follower) -> None:
    id = client.begin("slow_compute", seconds=0, label="done")
    client.outcome(id)
    assert listen(client, id)[1] == [id]
    assert until(lambda: states(client, "notifications/tasks", id))
    (only,) = states(client, "notifications/tasks", id)
    assert only["result"]["content"][0]["text"] == "computed done in 0.0 s"


@pytest.mark.parametrize("door", DOORS)
def test_a_listener_without_the_extension_is_refused(doors: Doors, door: str) -> None:
    client = doors.client(door, "modern", "modern")
    id = client.begin("slow_compute", seconds=0)
    meta: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {}}
    asked = {"notifications": {"taskIds": [id]}, "_meta": meta}
    error = client.fetch("subscriptions/listen", asked)["error"]
    assert error["code"] == -32021
    needed: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    assert error["data"]["requiredCapabilities"] == needed
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        given = {"taskId": id, "inputResponses": {}, "_meta": meta}
        assert client.fetch(method, given)["error"]["code"] == -32021
    assert client.outcome(id)["status"] == "completed"
    assert client.oracle.problems == []


@pytest.mark.parametrize("door", ["merged", "server"])
def test_only_known_tasks_are_acknowledged(doors: Doors, door: str) -> None:
    client = doors.client(door, "modern", "modern")
    id = client.begin("slow_compute", seconds=0)
    assert listen(client, "ptk_nobody", id, "x" * 1_000_000)[1] == [id]
    assert client.outcome(id)["status"] == "completed"


@sessions
def test_a_session_hears_of_the_end_of_its_task(client: Follower) -> None:
    id = client.begin("slow_compute", seconds=0.3)
    assert until(lambda: states(client, "notifications/tasks/status", id))
    assert until(
        lambda: states(client, "notifications/tasks/status", id)[-1]["status"] == "completed"
    )
    others = [json.loads(raw)["taskId"] for raw in client.heard("notifications/tasks/status")]
    if "__" in client.prefix:
        assert all(other.startswith("ptk_") for other in others)
    assert client.heard("notifications/tasks") == []


@pytest.mark.parametrize(
    "client", [(door, "legacy", "legacy") for door in DOORS], indirect=True, ids="-".join
)
def test_a_progress_token_lasts_as_long_as_the_task(client: Follower) -> None:
    token = f"token {client.prefix} {client.executes}"
    params = client.call_of("stages", {"pause": 0.3})
    params |= {"task": {"ttl": 60_000}, "_meta": {"progressToken": token}}
    id = client.fetch("tools/call", params)["result"]["task"]["taskId"]

    def seen() -> list[str]:
        told = [json.loads(raw) for raw in client.heard("notifications/progress")]
        ours = [one for one in told if one["progressToken"] == token]
        assert all(one["_meta"][RELATED] == {"taskId": id} for one in ours)
        return [one.get("message", "") for one in ours]

    client.outcome(id)
    assert until(lambda: any("two thirds" in one for one in seen())), seen()
