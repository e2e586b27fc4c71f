"""Tasks of a wrapped server that several clients share: none can name the tasks of another."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import tasks
from tests.tasks_protocol.follower import EXTENSION, FollowingPipes, FollowingWeb
from tests.wrap.faults import Wrap

ERAS = ("legacy", "modern")
TOKEN = "a-token-for-the-test"
LONG_MS = 600_000
METHODS = {
    "legacy": ("tasks/get", "tasks/result", "tasks/cancel"),
    "modern": ("tasks/get", "tasks/update", "tasks/cancel"),
}
FOLLOWS: dict[str, Any] = {"extensions": {EXTENSION: {}}}
"""The capabilities of clients that share a process, since they accept no questions."""
UNKNOWN = -32602, "task not found: the id is not known here, or the task has expired"


class Shared(Wrap):
    """A wrapped server, and new clients of its era."""

    def __init__(self, home: Path, era: str, *words: str, server: list[str] | None = None) -> None:
        super().__init__(home, *words, "--", *(server or tasks(era)))
        self.modern = era == "modern"

    def visitor(self, token: str = "") -> FollowingWeb:
        """A new client."""
        client = FollowingWeb(self.port, modern=self.modern)
        client.token, client.able = token, FOLLOWS
        if not self.modern:
            client.hello()
        return client


@pytest.fixture(params=ERAS)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shared]:
    """A wrapped server without a token, for clients of its own era."""
    with Shared(tmp_path / "home", request.param) as portico:
        yield portico


def own_ids(client: FollowingWeb | FollowingPipes) -> list[str]:
    """The ids that the server itself has given so far, which anyone could guess."""
    heard: list[dict[str, Any]] = json.loads(client.call("heard"))
    created = [one for one in heard if one.get("params", {}).get("name") == "work"]
    process = client.call("pid")
    return [f"task-{number}-{process}" for number in range(len(created))]


def test_the_ids_of_the_server_name_no_task(shared: Shared) -> None:
    with shared.visitor() as victim, shared.visitor() as guesser:
        id = victim.begin("work", ms=LONG_MS)
        assert id.startswith("ptk_")
        (own,) = own_ids(guesser)
        for method in METHODS["modern" if shared.modern else "legacy"]:
            error = guesser.fetch(method, {"taskId": own, "inputResponses": {}})["error"]
            assert (error["code"], error["message"]) == UNKNOWN
        heard = json.loads(guesser.call("heard"))
        about = [one for one in heard if one["method"] in ("tasks/cancel", "tasks/update")]
        assert about == []
        assert victim.task(id)["status"] == "working"
        assert not any(own.encode() in raw for raw in (*victim.told, *victim.answers.values()))
        victim.fetch("tasks/cancel", {"taskId": id})
        victim.reached(id, "cancelled")


def test_a_listener_hears_nothing_of_a_task_that_it_guessed(tmp_path: Path) -> None:
    with Shared(tmp_path / "home", "modern") as shared, shared.visitor() as guesser:
        id = guesser.begin("work", ms=LONG_MS)
        (own,) = own_ids(guesser)
        guesser.request("subscriptions/listen", {"notifications": {"taskIds": [own, id]}})
        first = json.loads(guesser.next("notifications/subscriptions/acknowledged"))
        assert first["notifications"]["taskIds"] == [id]
        guesser.fetch("tasks/cancel", {"taskId": id})
        guesser.reached(id, "cancelled")
        assert json.loads(guesser.next("notifications/tasks"))["taskId"] == id
        assert not any(own.encode() in raw for raw in guesser.told if b"acknowledged" not in raw)


def test_nobody_lists_the_tasks_of_others_without_a_token(shared: Shared) -> None:
    with shared.visitor() as victim, shared.visitor() as other:
        id = victim.begin("work", ms=LONG_MS)
        answer = other.fetch("tasks/list")
        assert answer["error"]["code"] == -32601
        assert id not in json.dumps(answer)


def test_with_a_token_a_list_has_the_ids_of_portico(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    words = ("--auth", "token", "--token-file", str(file))
    with (
        Shared(tmp_path / "home", "legacy", *words) as shared,
        shared.visitor(TOKEN) as one,
        shared.visitor(TOKEN) as two,
    ):
        ids = [one.begin("work", ms=LONG_MS), two.begin("work", ms=LONG_MS)]
        listed = one.fetch("tasks/list")["result"]["tasks"]
        assert {task["taskId"] for task in listed} == set(ids)


@pytest.mark.parametrize("era", ERAS)
def test_a_server_that_declares_no_tasks_answers_for_none(tmp_path: Path, era: str) -> None:
    server = [*tasks(era), "undeclared"]
    with Shared(tmp_path / "home", era, server=server) as shared, shared.visitor() as guesser:
        guesser.call("pid")
        for method in METHODS[era]:
            assert guesser.fetch(method, {"taskId": "task-0"})["error"]["code"] == -32601
        assert all(
            not one["method"].startswith("tasks/") for one in json.loads(guesser.call("heard"))
        )


@pytest.mark.parametrize("era", ERAS)
def test_a_single_client_over_pipes_keeps_the_ids_of_its_server(tmp_path: Path, era: str) -> None:
    modern = era == "modern"
    with FollowingPipes(tmp_path, "--era", era, "--", *tasks(era), modern=modern) as client:
        if not modern:
            client.hello()
        id = client.begin("work", ms=LONG_MS)
        assert id == own_ids(client)[0]
        assert client.task(id)["status"] == "working"


def test_tasks_last_as_long_as_the_process_where_nothing_can_be_stored() -> None:
    with Shared(Path("/dev/null/home"), "modern", "--no-cache") as shared:
        with shared.visitor() as client:
            id = client.begin("work", ms=0)
            assert client.outcome(id)["status"] == "completed"
        assert "tasks end with this process: /dev/null/home/state is not writable" in (
            shared.stderr()
        )
