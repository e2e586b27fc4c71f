"""A server that answers with a task though its client requested none: the client gets the result,
and never the server's own id."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.pairs import pairs
from tests.tasks_protocol.doors import ERAS
from tests.tasks_protocol.follower import Follower, FollowingWeb
from tests.tasks_protocol.gated import Gated
from tests.wrap.faults import Wrap, until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-unasked")]

SILENT: dict[str, Any] = {}
"""The capabilities of a client without tasks, whose calls take the shortest path."""
MEMBER = "/servers/rig/mcp"


def pushed(client: Follower, gate: Path, **more: Any) -> dict[str, Any]:
    """The whole answer to a call whose server makes a task of it."""
    return client.fetch("tools/call", client.call_of("push", {"gate": str(gate), **more}))


def saw_no_id_of_the_server(client: Follower) -> bool:
    """True if the client has received nothing that begins like the ids of the server."""
    return not any(b"task-0" in raw for raw in (*client.told, *client.answers.values()))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("able", "era", "server"), pairs([SILENT, {"elicitation": {}}], ERAS, ERAS), ids=str
)
def test_the_client_gets_the_result_of_the_task(
    tmp_path: Path, server: str, era: str, able: dict[str, Any]
) -> None:
    gated = Gated(tmp_path, server)
    gated.gate.touch()
    with gated.gateway() as gateway, gated.client(gateway, era, able) as client:
        for executes in (False, True):
            client.executes = executes
            for _ in range(2):  # the second call finds an open connection
                result = pushed(client, gated.gate)["result"]
                assert "done by" in result["content"][0]["text"]
        assert saw_no_id_of_the_server(client)
        listed = gated.command("tasks", "list")
        assert listed.count("completed") == 4


@pytest.mark.parametrize("era", ERAS)
def test_the_endpoint_of_one_server_and_wrap_do_the_same(tmp_path: Path, era: str) -> None:
    gated = Gated(tmp_path, era)
    gated.gate.touch()
    with (
        gated.gateway() as gateway,
        Wrap(tmp_path / "wrap", "--era", era, "--", *gated.words) as wrap,
    ):
        for port, path in ((gateway.port, MEMBER), (wrap.port, "/mcp")):
            with FollowingWeb(port, path, modern=era == "modern") as client:
                client.able = SILENT
                if era == "legacy":
                    client.hello()
                for _ in range(2):
                    result = pushed(client, gated.gate)["result"]
                    assert "done by" in result["content"][0]["text"]
                assert saw_no_id_of_the_server(client)
                assert client.oracle.problems == []


@pytest.mark.parametrize("server", ERAS)
def test_a_client_that_leaves_ends_the_task(tmp_path: Path, server: str) -> None:
    gated = Gated(tmp_path, server)
    with gated.gateway() as gateway:
        with gated.client(gateway, "modern", SILENT) as client:
            id = client.request("tools/call", client.call_of("push", {"gate": str(gated.gate)}))
            assert until(lambda: "running" in gated.command("tasks", "list"))
            client.hang_up(id)
        assert until(lambda: len(gated.received("tasks/cancel")) == 1)


@pytest.mark.parametrize("server", ERAS)
def test_a_task_beyond_the_timeout_of_calls_is_an_error_and_ends(
    tmp_path: Path, server: str
) -> None:
    gated = Gated(tmp_path, server, timeouts={"call": 1})
    with gated.gateway() as gateway, gated.client(gateway, server, SILENT) as client:
        error = pushed(client, gated.gate)["error"]
        assert error["message"] == "rig did not finish its task within 1 s"
        assert error["data"] == {"kind": "timeout", "server": "rig"}
        assert saw_no_id_of_the_server(client)
        assert until(lambda: len(gated.received("tasks/cancel")) == 1)


def test_a_promoted_call_waits_for_the_task_beyond_the_timeout_of_calls(tmp_path: Path) -> None:
    gated = Gated(tmp_path, "modern", timeouts={"call": 1}, sync_budget_s=0.2)
    with gated.gateway() as gateway, gated.client(gateway, "modern", SILENT) as client:
        promoted = pushed(client, gated.gate)["result"]["structuredContent"]
        asked = {"task_id": promoted["task_id"], "wait_s": 1.5}  # longer than a call may take
        waiting = client.fetch("tools/call", {"name": "task_status", "arguments": asked})
        assert waiting["result"]["structuredContent"]["status"] == "running"
        gated.gate.touch()
        asked["wait_s"] = 50
        ended = client.fetch("tools/call", {"name": "task_status", "arguments": asked})
        assert "done by" in str(ended["result"]["content"])
        assert saw_no_id_of_the_server(client)


ODD: dict[str, dict[str, Any]] = {
    "without an id": {"resultType": "task", "status": "working"},
    "with a number as its id": {"resultType": "task", "taskId": 5, "status": "working"},
    "without a state": {"task": {"taskId": "task-0"}},
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("server", ERAS)
def test_a_task_that_cannot_be_read_is_an_error(tmp_path: Path, server: str, name: str) -> None:
    gated = Gated(tmp_path, server)
    with gated.gateway() as gateway, gated.client(gateway, server, SILENT) as client:
        for _ in range(2):
            error = pushed(client, gated.gate, answer=ODD[name])["error"]
            words = "rig answered tools/call with a task that was not requested"
            assert error["message"] == words
            assert error["data"] == {"kind": "protocol", "server": "rig"}
        assert saw_no_id_of_the_server(client)


def test_a_result_that_only_mentions_a_task_is_a_result(tmp_path: Path) -> None:
    content = [{"type": "text", "text": "task"}]
    result = {"content": content, "structuredContent": {"task": {"taskId": "mine"}}}
    gated = Gated(tmp_path, "legacy")
    with gated.gateway() as gateway, gated.client(gateway, "legacy", SILENT) as client:
        for _ in range(2):
            assert pushed(client, gated.gate, answer=result)["result"] == result
