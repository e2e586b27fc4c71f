"""A client that leaves after it has the id of its task loses nothing."""

from pathlib import Path

import pytest

from tests.serve.gateway import command, serve_command, written
from tests.support.pairs import pairs
from tests.tasks_protocol.doors import ANSWERS, ERAS, Doors, tasks_server
from tests.tasks_protocol.follower import ABLE, ACCEPT, FollowingPipes

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-doors")]


@pytest.mark.soak
@pytest.mark.parametrize(("door", "era", "server"), pairs(["wrap", "server", "merged"], ERAS, ERAS))
def test_a_client_over_http_finds_its_tasks_when_it_returns(
    doors: Doors, door: str, era: str, server: str
) -> None:
    first, second = doors.visitor(door, era, server), doors.visitor(door, era, server)
    with first:
        done = first.begin("slow_compute", seconds=0.2, label="left")
        asking = first.begin("multi_input")
    with second:
        outcome = second.outcome(done)
        assert outcome["result"]["content"][0]["text"] == "computed left in 0.2 s"
        if second.modern:
            second.update(asking, dict.fromkeys(second.questions(asking, 2), ACCEPT))
        assert second.outcome(asking)["result"]["content"][0]["text"] == "accept accept"
    assert first.oracle.problems == second.oracle.problems == []


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
def test_a_window_that_is_opened_later_finds_the_tasks_of_an_earlier_one(
    tmp_path: Path, era: str, server: str
) -> None:
    entry = command(tasks_server(), era=server)
    config = written(tmp_path / "portico.toml", {server: entry}, gateway={"expose": "all"})
    words = serve_command(tmp_path / "home", config)

    def window() -> FollowingPipes:
        made = FollowingPipes(tmp_path, words=words, answers=ANSWERS, modern=era == "modern")
        made.prefix = f"{server}__"
        if not made.modern:
            made.hello(ABLE)
        return made

    with window() as first:
        done = first.begin("slow_compute", seconds=0.2, label="left")
        asking = first.begin("multi_input")
    with window() as second:
        outcome = second.outcome(done)
        assert outcome["result"]["content"][0]["text"] == "computed left in 0.2 s"
        if second.modern:
            second.update(asking, dict.fromkeys(second.questions(asking, 2), ACCEPT))
        assert second.outcome(asking)["result"]["content"][0]["text"] == "accept accept"
    assert first.oracle.problems == second.oracle.problems == []


def test_a_result_waits_for_a_client_that_hung_up(doors: Doors) -> None:
    client = doors.visitor("merged", "legacy", "legacy")
    with client:
        id = client.begin("slow_compute", seconds=0.3)
        waiting = client.request("tasks/result", {"taskId": id})
        client.hang_up(waiting)
        assert client.outcome(id)["status"] == "completed"
