"""Questions of tasks: asked once, under keys of their own, and answered in any order."""

import json

import pytest

from tests.tasks_protocol.doors import DOORS, ERAS, Doors
from tests.tasks_protocol.follower import ACCEPT, RELATED, Follower
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-doors")]

DECLINE = {"action": "decline"}
FEW = ("wrap", "merged", "executed-stdio")
TO_MODERN = [(door, "modern", server) for door in FEW for server in ERAS]
TO_LEGACY = [(door, "legacy", server) for door in DOORS for server in ERAS]
modern_clients = pytest.mark.parametrize("client", TO_MODERN, indirect=True, ids="-".join)


def answered_in_turn(client: Follower, id: str) -> list[str]:
    """Answer the two questions of `ask_twice`; their keys."""
    (first,) = client.questions(id, 1)
    client.update(id, {first: ACCEPT})
    assert until(lambda: client.task(id).get("inputRequests", {first: 0}).keys() != {first})
    (second,) = client.questions(id, 1)
    client.update(id, {second: DECLINE})
    return [first, second]


@modern_clients
def test_a_handler_that_asks_twice_in_a_task_runs_once(client: Follower) -> None:
    id = client.begin("ask_twice", label=str(client.prefix))
    first, second = answered_in_turn(client, id)
    assert first != second
    outcome = client.outcome(id)
    assert outcome["result"]["content"][0]["text"] == "accept decline, run 1"


@pytest.mark.parametrize("client", TO_LEGACY, indirect=True, ids="-".join)
def test_a_legacy_client_is_asked_while_it_waits_for_the_result(client: Follower) -> None:
    id = client.begin("ask_twice", label=f"legacy {client.prefix} {client.executes}")
    outcome = client.outcome(id)
    assert outcome["result"]["content"][0]["text"] == "accept accept, run 1", outcome
    asked = [json.loads(raw) for raw in client.heard("elicitation/create")]
    ours = [one for one in asked if one["_meta"][RELATED] == {"taskId": id}]
    assert [one["message"][-7:].strip() for one in ours] == ["First?", "Second?"]


@modern_clients
def test_answers_may_come_one_by_one_and_each_counts_once(client: Follower) -> None:
    id = client.begin("multi_input")
    first, second = client.questions(id, 2)
    client.update(id, {first: ACCEPT})
    assert client.questions(id, 1).keys() == {second}
    assert client.task(id)["status"] == "input_required"
    client.update(id, {first: DECLINE})  # it was answered already
    client.update(id, {second: ACCEPT, first: DECLINE})
    assert client.outcome(id)["result"]["content"][0]["text"] == "accept accept"
    client.update(id, {second: DECLINE})  # the task is over


@modern_clients
def test_answers_to_questions_that_were_not_asked_are_ignored(client: Follower) -> None:
    id = client.begin("multi_input")
    client.update(id, {})
    asked = client.questions(id, 2)
    client.update(id, {"nobody": ACCEPT, "": ACCEPT, "x" * 10_000: ACCEPT})
    assert client.questions(id, 2) == asked
    client.update(id, dict.fromkeys(asked, ACCEPT) | {"nobody": DECLINE})
    assert client.outcome(id)["result"]["content"][0]["text"] == "accept accept"


@pytest.mark.parametrize("answer", [{"action": "perhaps"}, {}, "yes", None, []], ids=str)
def test_an_answer_of_the_wrong_form_leaves_the_question_open(doors: Doors, answer: object) -> None:
    client = doors.client("merged", "modern", "modern")
    id = client.begin("multi_input")
    first, second = client.questions(id, 2)
    given = {"taskId": id, "inputResponses": {first: answer}}
    assert client.fetch("tasks/update", given)["error"]["code"] == -32602
    assert client.questions(id, 2).keys() == {first, second}
    client.update(id, {first: ACCEPT, second: ACCEPT})
    assert client.outcome(id)["status"] == "completed"


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize(("door", "named"), [("merged", True), ("server", False), ("wrap", False)])
def test_questions_name_their_server_where_there_are_several(
    doors: Doors, door: str, named: bool, server: str
) -> None:
    client = doors.client(door, "modern", server)
    id = client.begin("multi_input")
    asked = client.questions(id, 2)
    assert all((server in one["params"]["message"]) is named for one in asked.values())
    client.update(id, dict.fromkeys(asked, ACCEPT))
    assert client.outcome(id)["status"] == "completed"
    assert client.oracle.problems == []


@modern_clients
def test_a_task_that_waits_for_an_answer_can_be_cancelled(client: Follower) -> None:
    id = client.begin("ask_twice", label="cancelled")
    client.questions(id, 1)
    client.fetch("tasks/cancel", {"taskId": id})
    assert "inputRequests" not in client.reached(id, "cancelled")
