"""Every outcome of a task, from a server of either era to a client of either era."""

import pytest

from tests.tasks_protocol.follower import ACCEPT, Follower

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-doors")]


def content(text: str) -> list[dict[str, str]]:
    """The content of a result with one text."""
    return [{"type": "text", "text": text}]


def test_a_task_completes_with_its_result(client: Follower) -> None:
    outcome = client.outcome(client.begin("slow_compute", seconds=0, label="a"))
    assert outcome["status"] == "completed", outcome
    assert outcome["result"]["content"] == content("computed a in 0.0 s")


def test_a_failed_tool_is_a_result_in_one_era_and_a_failure_in_the_other(client: Follower) -> None:
    outcome = client.outcome(client.begin("failing_job"))
    assert outcome["status"] == ("completed" if client.modern else "failed"), outcome
    assert outcome["result"]["isError"] is True
    assert outcome["result"]["content"] == content("the job failed")


def test_an_error_of_the_protocol_is_the_error_of_the_task(client: Follower) -> None:
    outcome = client.outcome(client.begin("protocol_error_job"))
    assert outcome["status"] == "failed"
    assert outcome["error"] == {"code": -32603, "message": "the machinery broke"}


def test_a_cancelled_task_stays_cancelled(client: Follower) -> None:
    id = client.begin("slow_compute", seconds=600)
    answer = client.fetch("tasks/cancel", {"taskId": id})
    if not client.modern:
        assert answer["result"]["status"] == "cancelled"
    assert client.reached(id, "cancelled")["taskId"] == id
    again = client.fetch("tasks/cancel", {"taskId": id})
    assert ("result" in again) == client.modern
    if not client.modern:
        assert again["error"]["code"] == -32602


def test_two_questions_of_a_task_reach_its_client_together(client: Follower) -> None:
    id = client.begin("multi_input")
    if client.modern:
        asked = client.questions(id, 2)
        assert {one["params"]["message"][-6:] for one in asked.values()} <= {"First?", "econd?"}
        client.update(id, dict.fromkeys(asked, ACCEPT))
    outcome = client.outcome(id)
    assert outcome["status"] == "completed", outcome
    assert outcome["result"]["content"] == content("accept accept")


def test_an_unknown_task_is_not_found(client: Follower) -> None:
    for method in (
        "tasks/get",
        "tasks/cancel",
        "tasks/update" if client.modern else "tasks/result",
    ):
        params = {"taskId": "ptk_nobody", "inputResponses": {}}
        assert client.fetch(method, params)["error"]["code"] == -32602
