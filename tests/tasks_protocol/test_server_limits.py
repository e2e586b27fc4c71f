"""The limits of Portico's tasks, met by the tasks of servers."""

import json
from pathlib import Path

import pytest

from tests.tasks_protocol.doors import ERAS
from tests.tasks_protocol.follower import ACCEPT
from tests.tasks_protocol.gated import Gated
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-server-limits")]


# Questions.


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("server", ERAS)
def test_a_question_that_is_too_large_fails_its_task_and_ends_the_servers(
    tmp_path: Path, server: str, era: str
) -> None:
    gated = Gated(tmp_path, server)
    with gated.gateway() as gateway, gated.client(gateway, era) as client:
        outcome = client.outcome(client.begin("ask", count=1, size=70_000))
        assert outcome["error"]["message"] == (
            "cannot pass on a question of rig: a question exceeds the limit of 65536 bytes; "
            "its task was cancelled"
        )
        assert outcome["error"]["data"] == {"kind": "question", "server": "rig"}
        assert len(gated.received("tasks/cancel")) == 1


def test_questions_beyond_the_limit_wait_until_others_are_answered(tmp_path: Path) -> None:
    gated = Gated(tmp_path, "modern")
    with gated.gateway() as gateway, gated.client(gateway, "modern") as client:
        id = client.begin("ask", count=20)
        first = client.questions(id, 16)
        client.update(id, dict.fromkeys([*first][:15], ACCEPT))
        second = client.questions(id, 5)
        client.update(id, dict.fromkeys(second, ACCEPT))
        assert "done by" in str(client.outcome(id)["result"])
        assert len({*first, *second}) == 20


# Unfinished tasks of one client.


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
def test_a_call_of_a_client_with_too_many_tasks_does_not_reach_its_server(
    tmp_path: Path, era: str, server: str
) -> None:
    gated = Gated(tmp_path, server, tasks={"in_progress": 1})
    with gated.gateway() as gateway, gated.client(gateway, era) as client:
        id = client.begin("work", gate=str(gated.gate))
        for _ in range(3):
            error = client.called("work", gate=str(gated.gate))["error"]
            assert error["message"].startswith("task limit reached (1 for rig); wait for one")
            assert error["data"] == {"kind": "limit"}
        assert len(gated.received("tools/call", "work")) == 1
        gated.gate.touch()
        client.outcome(id)
        assert "done by" in str(client.outcome(client.begin("work", gate=str(gated.gate))))


@pytest.mark.parametrize("server", ERAS)
def test_a_servers_task_that_cannot_be_stored_is_cancelled(tmp_path: Path, server: str) -> None:
    gated, begin = Gated(tmp_path, server, tasks={"in_progress": 1}), tmp_path / "begin"
    with gated.gateway() as gateway, gated.client(gateway, "modern") as client:
        call = client.call_of("work", {"gate": str(gated.gate), "begin": str(begin)})
        sent = [client.request("tools/call", call) for _ in range(3)]
        assert until(lambda: len(gated.received("tools/call", "work")) == 3)
        begin.touch()
        answers = [json.loads(client.answer(id)) for id in sent]
        (task,) = [answer["result"]["taskId"] for answer in answers if "result" in answer]
        assert [answer["error"]["data"] for answer in answers if "error" in answer] == [
            {"kind": "limit"}
        ] * 2
        assert until(lambda: len(gated.received("tasks/cancel")) == 2)
        gated.gate.touch()
        assert "done by" in str(client.outcome(task)["result"])
        assert len({one["taskId"] for one in gated.received("tasks/cancel")}) == 2


# Time to live.


@pytest.mark.parametrize("server", ERAS)
def test_a_task_is_kept_for_the_shorter_of_the_times_of_client_and_server(
    tmp_path: Path, server: str
) -> None:
    gated = Gated(tmp_path, server)
    gated.gate.touch()
    with gated.gateway() as gateway, gated.client(gateway, "legacy") as client:
        for wish, keep, kept in ((90_000, 120_000, 90_000), (120_000, 100_000, 100_000)):
            answer = client.called("work", wish, gate=str(gated.gate), keep=keep)
            assert answer["result"]["task"]["ttl"] == kept


def test_a_promoted_call_is_kept_for_the_time_that_its_client_requires(tmp_path: Path) -> None:
    gated = Gated(tmp_path, "modern", sync_budget_s=0.1)
    with gated.gateway() as gateway, gated.client(gateway, "legacy") as client:
        answer = client.called("hold", 90_000, gate=str(gated.gate))
        assert answer["result"]["task"]["ttl"] == 90_000
        gated.gate.touch()
        client.outcome(answer["result"]["task"]["taskId"])
