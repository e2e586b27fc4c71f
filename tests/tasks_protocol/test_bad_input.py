"""Requests about tasks that no client should send."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import everything
from tests.serve.gateway import Gateway, command, written
from tests.support.pairs import pairs
from tests.tasks_protocol.doors import ERAS, Doors, tasks_server
from tests.tasks_protocol.follower import ABLE, Follower, FollowingWeb
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-doors")]

FEW = [
    pytest.param(way, marks=pytest.mark.soak)
    for way in pairs(("wrap", "server", "executed"), ERAS, ERAS)
]
few = pytest.mark.parametrize("client", FEW, indirect=True, ids="-".join)
METHODS = {
    "legacy": ("tasks/get", "tasks/result", "tasks/cancel"),
    "modern": ("tasks/get", "tasks/update", "tasks/cancel"),
}


def about(client: Follower, method: str, id: Any) -> dict[str, Any]:
    """The answer to a request about a task."""
    return client.fetch(method, {"taskId": id, "inputResponses": {}})


@few
def test_an_id_of_a_megabyte_is_not_found(client: Follower) -> None:
    era = "modern" if client.modern else "legacy"
    for method in METHODS[era]:
        if era == "modern" and isinstance(client, FollowingWeb):
            continue  # a header of this size does not reach the endpoint
        error = about(client, method, "ptk_" + "x" * 1_000_000)["error"]
        assert error["code"] == -32602
        assert len(error["message"]) < 1000


@pytest.mark.parametrize("era", ERAS)
def test_a_first_request_about_a_task_waits_until_its_server_is_known(
    tmp_path: Path, era: str
) -> None:
    config = written(tmp_path / "portico.toml", {"rig": command(tasks_server(), era=era)})
    with (
        Gateway(tmp_path / "home", config) as gateway,
        FollowingWeb(gateway.port, "/servers/rig/mcp", modern=era == "modern") as client,
    ):
        if era == "legacy":
            client.hello(ABLE)
        assert about(client, "tasks/get", "ptk_x")["error"]["code"] == -32602


@pytest.mark.parametrize("era", ERAS)
def test_ids_of_every_length_and_form_are_not_found_in_the_same_words(
    doors: Doors, era: str
) -> None:
    client = doors.client("merged-stdio", era, "modern")
    ids = ["", "ptk_", "ptk_x", "x", "\0", "ä", "ptk_" + "x" * 1_000_000, "../x", "' or 1=1"]
    for method in METHODS[era]:
        errors = [about(client, method, id)["error"] for id in ids]
        assert errors == [errors[0]] * len(ids)
        assert errors[0]["code"] == -32602


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("id", [None, 5, 1.5, True, [], {}, ["x"]], ids=str)
def test_an_id_of_the_wrong_type_is_invalid(doors: Doors, era: str, id: Any) -> None:
    client = doors.client("merged-stdio", era, "modern")
    for method in METHODS[era]:
        assert about(client, method, id)["error"]["code"] == -32602
        assert client.fetch(method, {})["error"]["code"] == -32602


def ttl_of(client: Follower, ttl: Any) -> Any:
    """The answer to a call with this ttl: the ttl of the task, or the code of the error."""
    answer = client.called("slow_compute", ttl=ttl, seconds=0)
    if "error" in answer:
        return answer["error"]["code"]
    return answer["result"]["task"]["ttl"]


@pytest.mark.parametrize("server", ERAS)
def test_every_ttl_is_accepted_within_limits_or_refused(doors: Doors, server: str) -> None:
    client = doors.client("merged", "legacy", server)
    for ttl in (0, 1, 60_000, 1e18, None):
        kept = ttl_of(client, ttl)
        assert isinstance(kept, int)
        assert 1 <= kept <= 30 * 86400_000, ttl
    refused: list[Any] = [-1, "60000", [], {}, True]
    for bad in refused:
        assert ttl_of(client, bad) == -32602, bad
    wrong: list[Any] = [5, "x", []]
    for task in wrong:
        params = {**client.call_of("slow_compute", {"seconds": 0}), "task": task}
        assert client.fetch("tools/call", params)["error"]["code"] == -32602, task
    assert client.oracle.problems == []


@pytest.mark.parametrize("door", ["server", "merged", "executed"])
@pytest.mark.parametrize("server", ERAS)
def test_a_task_has_our_id_however_its_key_is_written(doors: Doors, door: str, server: str) -> None:
    client = doors.client(door, "legacy", server)
    params = {**client.call_of("slow_compute", {"seconds": 0}), "task": {}}
    escaped = json.dumps(params).replace('"task"', r'"t\u0061sk"').encode()
    answer = json.loads(client.answer(client.request("tools/call", escaped)))
    id = answer["result"]["task"]["taskId"]
    assert id.startswith("ptk_")
    assert client.outcome(id)["result"]["content"]


@pytest.mark.parametrize("door", ["wrap", "server", "merged"])
@pytest.mark.parametrize("server", ERAS)
def test_a_tool_that_forbids_tasks_says_so_only_to_clients_that_want_one(
    doors: Doors, door: str, server: str
) -> None:
    legacy = doors.client(door, "legacy", server)
    params = {**legacy.call_of("greet", {"name": "Ada"}), "task": {}}
    answer = legacy.fetch("tools/call", params)
    if server == "modern":  # which does not say which tools support tasks
        outcome = legacy.outcome(answer["result"]["task"]["taskId"])
        assert outcome["result"]["content"][0]["text"] == "Hello, Ada!"
    else:
        assert answer["error"]["code"] == -32601
    modern = doors.client(door, "modern", server)
    assert modern.called("greet", name="Ada")["result"]["content"][0]["text"] == "Hello, Ada!"


@pytest.mark.parametrize("door", ["wrap", "server", "merged"])
@pytest.mark.parametrize("server", ERAS)
def test_a_tool_that_requires_tasks_says_so_to_clients_that_cannot_have_one(
    doors: Doors, door: str, server: str
) -> None:
    legacy = doors.client(door, "legacy", server)
    error = legacy.fetch("tools/call", legacy.call_of("failing_job", {}))["error"]
    assert error["code"] == -32601
    assert "failing_job runs only as a task" in error["message"]
    modern = doors.client(door, "modern", server)
    meta: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {}}
    params = {**modern.call_of("failing_job", {}), "_meta": meta}
    assert modern.fetch("tools/call", params)["error"]["code"] == -32021


@pytest.mark.parametrize("era", ERAS)
def test_task_in_params_is_ignored_by_a_server_without_tasks(tmp_path: Path, era: str) -> None:
    rig = command(everything("--stdio", "--era", era), era=era)
    config = written(tmp_path / "portico.toml", {"rig": rig})
    with (
        Gateway(tmp_path / "home", config) as gateway,
        FollowingWeb(gateway.port, "/servers/rig/mcp") as client,
    ):
        assert "tasks" not in json.loads(client.hello(ABLE))["capabilities"]
        result = client.called("test_simple_text")["result"]
        assert result["content"][0]["type"] == "text"
        assert client.fetch("tasks/list")["error"]["code"] == -32601
        assert client.oracle.problems == []


def test_more_tasks_than_the_limit_are_refused_until_one_ends(tmp_path: Path) -> None:
    rig = command(tasks_server(), era="modern")
    tables: dict[str, Any] = {"gateway": {"expose": "all"}, "tasks": {"in_progress": 3}}
    config = written(tmp_path / "portico.toml", {"rig": rig}, **tables)
    with (
        Gateway(tmp_path / "home", config) as gateway,
        FollowingWeb(gateway.port, modern=True) as client,
    ):
        client.prefix = "rig__"
        ids = [client.begin("slow_compute", seconds=600) for _ in range(3)]
        for _ in range(20):
            error = client.called("slow_compute", seconds=600)["error"]
            assert "task limit reached (3 for rig); wait for one" in error["message"]
        assert client.called("greet", name="Ada")["result"]["content"]
        client.fetch("tasks/cancel", {"taskId": ids[0]})
        client.reached(ids[0], "cancelled")
        ids.append(client.begin("slow_compute", seconds=600))
        for id in ids[1:]:
            client.fetch("tasks/cancel", {"taskId": id})
            client.reached(id, "cancelled")


@pytest.mark.parametrize("server", ERAS)
@pytest.mark.parametrize("era", ERAS)
def test_a_large_result_arrives_whole(doors: Doors, era: str, server: str) -> None:
    client = doors.client("merged", era, server)
    outcome = client.outcome(client.begin("large", megabytes=15))
    assert len(outcome["result"]["content"][0]["text"]) == 15_000_000


@pytest.mark.parametrize("server", ERAS)
def test_a_result_of_100_mb_fails_its_task_with_the_reason(doors: Doors, server: str) -> None:
    client = doors.client("merged", "modern", server)
    outcome = client.outcome(client.begin("large", megabytes=100))
    assert outcome["status"] == "failed"
    assert "does not know its task any more; before that: " in outcome["error"]["message"]
    assert client.called("greet", name="Ada")["result"]["content"][0]["text"] == "Hello, Ada!"


def test_a_state_folder_that_cannot_be_written_leaves_calls_as_they_are(tmp_path: Path) -> None:
    rig = command(tasks_server(), era="modern")
    config = written(tmp_path / "portico.toml", {"rig": rig}, gateway={"expose": "all"})
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "state").write_text("a file where a folder should be")
    with (
        Gateway(tmp_path / "home", config) as gateway,
        FollowingWeb(gateway.port, modern=True) as client,
    ):
        assert until(lambda: "no call can become a task" in gateway.stderr())
        client.prefix = "rig__"
        declared = client.fetch("server/discover")["result"]["capabilities"]
        assert "tasks" not in json.dumps(declared)
        assert client.called("greet", name="Ada")["result"]["content"][0]["text"] == "Hello, Ada!"
        result = client.called("slow_compute", seconds=0)["result"]
        assert result["content"][0]["text"] == "computed  in 0.0 s"
        assert "error" in client.fetch("tasks/get", {"taskId": "ptk_x"})
