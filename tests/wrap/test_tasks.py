"""Tasks through `wrap`: followed in either era, translated across eras, and never cut short."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.recorder import recorded
from tests.rigs.running import listening, recorder, tasks
from tests.support.messages import PREFIX
from tests.wrap.faults import Wrap, alive, until
from tests.wrap.talk import Client, Pipes, Web, web

ABLE: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
META = {PREFIX + "clientCapabilities": ABLE}
IDLE = ("--idle-timeout", "0.4")


def begin(client: Client, ms: int) -> str:
    """Begin a task; its id."""
    more: dict[str, Any] = {"_meta": META} if client.modern else {"task": {"ttl": 60_000}}
    work = {"name": "work", "arguments": {"ms": ms}, **more}
    result = json.loads(client.ask("tools/call", work))
    task = result if client.modern else result["task"]
    assert task["status"] == "working"
    id: str = task["taskId"]
    return id


def follow(client: Client, method: str, task: str) -> dict[str, Any]:
    """The status of a task."""
    more = {"_meta": META} if client.modern else {}
    answer: dict[str, Any] = json.loads(client.ask(method, {"taskId": task, **more}))
    return answer


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_task_is_followed_through_wrap(tmp_path: Path, era: str) -> None:
    modern = era == "modern"
    with (
        Wrap(tmp_path, "--", *tasks(era)) as portico,
        web(portico.port, modern=modern) as client,
    ):
        id = begin(client, 0 if modern else 100)
        if not modern:
            result = follow(client, "tasks/result", id)
            assert result["content"][0]["text"] == "worked as a task"
        assert until(lambda: follow(client, "tasks/get", id)["status"] == "completed")


@pytest.mark.slow
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_server_with_an_open_task_is_not_idle(tmp_path: Path, era: str) -> None:
    modern = era == "modern"
    with (
        Wrap(tmp_path / "one", *IDLE, "--", *tasks(era)) as portico,
        Wrap(tmp_path / "two", *IDLE, "--", *tasks(era)) as other,
        web(portico.port, modern=modern) as client,
        web(other.port, modern=modern) as clock,
    ):
        working = int(client.call("pid"))
        id = begin(client, 600_000)
        for _ in range(3):  # whatever else rests for as long is stopped meanwhile
            idle = int(clock.call("pid"))
            assert until(lambda gone=idle: not alive({gone}))
        assert alive({working})
        assert follow(client, "tasks/get", id)["status"] == "working"
        follow(client, "tasks/cancel", id)
        if modern:  # a cancellation is only acknowledged there
            assert until(lambda: follow(client, "tasks/get", id)["status"] == "cancelled")
        assert until(lambda: not alive({working}))


def test_a_task_is_asked_of_the_instance_that_has_it(tmp_path: Path) -> None:
    with Pipes(tmp_path, "--instances", "3", "--", *tasks("legacy")) as client:
        client.hello()
        ids = [begin(client, 600_000)]
        for number in (1, 2):
            # It keeps an instance busy, so that the next task begins on another.
            waiting = {"taskId": ids[-1], "_meta": {"progressToken": number}}
            client.request("tasks/result", waiting)
            client.next("notifications/progress", number)
            ids.append(begin(client, 600_000))
        assert len({id.rpartition("-")[2] for id in ids}) == 3
        assert [follow(client, "tasks/get", id)["status"] for id in ids] == ["working"] * 3


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_task_is_translated_for_clients_of_the_other_era(tmp_path: Path, era: str) -> None:
    modern = era == "legacy"
    with (
        Wrap(tmp_path, "--", *tasks(era)) as portico,
        web(portico.port, ABLE, modern=modern) as client,
    ):
        id = begin(client, 0)
        assert id.startswith("ptk_")
        if not modern:
            result = follow(client, "tasks/result", id)
            assert result["content"][0]["text"] == "worked as a task"
        assert until(lambda: follow(client, "tasks/get", id)["status"] == "completed")
        if modern:
            text = follow(client, "tasks/get", id)["result"]["content"][0]["text"]
            assert text == "worked as a task"


def test_capabilities_and_tools_say_in_the_clients_words_that_tasks_are_possible(
    tmp_path: Path,
) -> None:
    with (
        Wrap(tmp_path / "one", "--", *tasks("legacy")) as portico,
        web(portico.port, modern=True) as client,
    ):
        found = json.loads(client.ask("server/discover", {"_meta": META}))
        assert "tasks" not in found["capabilities"]
        assert found["capabilities"]["extensions"] == ABLE["extensions"]
        assert "taskSupport" not in client.ask("tools/list", {"_meta": META}).decode()
    with Wrap(tmp_path / "two", "--", *tasks("modern")) as portico, Web(portico.port) as legacy:
        able = json.loads(legacy.hello(ABLE))["capabilities"]
        # Whoever is not known cannot list tasks.
        assert able["tasks"] == {"cancel": {}, "requests": {"tools": {"call": {}}}}
        assert "extensions" not in able
        assert '"taskSupport":"optional"' in legacy.ask("tools/list", {}).decode()


def test_a_client_without_tasks_gets_a_result_across_eras(tmp_path: Path) -> None:
    with (
        Wrap(tmp_path / "one", "--", *tasks("legacy")) as portico,
        web(portico.port, modern=True) as client,
    ):
        work = {"name": "work", "arguments": {}, "task": {}}
        assert "worked" in client.ask("tools/call", work).decode()
    with (
        Wrap(tmp_path / "two", "--", *tasks("modern")) as portico,
        web(portico.port, {**ABLE, "tasks": {}}) as client,
    ):
        assert client.call("work") == "worked"
        heard = [
            said for said in json.loads(client.call("heard")) if said["method"] == "tools/call"
        ]
        assert heard[0]["params"]["_meta"][PREFIX + "clientCapabilities"] == {}


def test_a_request_about_a_task_names_it_in_its_headers(tmp_path: Path) -> None:
    found = {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"tools": {}},
        "ttlMs": 0,
        "cacheScope": "private",
    }
    task = {"resultType": "complete", "taskId": "ä 1", "status": "working"}
    script = tmp_path / "script"
    lines = {"server/discover": found, "tools/list": {"resultType": "complete", "tools": []}}
    lines |= dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), task)
    script.write_text("\n".join(f"{name} result {json.dumps(is_)}" for name, is_ in lines.items()))
    recording = tmp_path / "heard"
    with (
        listening(recorder("http", str(recording), str(script), "--modern", "--json")) as url,
        Pipes(tmp_path / "home", url, modern=True) as client,
    ):
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert follow(client, method, "ä 1")["status"] == "working"
    heads = [head.decode().lower() for head in recorded(tmp_path / "heard.heads")]
    about = [head for head in heads if "mcp-method: tasks/" in head]
    assert len(about) == 3
    assert all(
        "mcp-name: =?base64?w6qgmq==?=" in head for head in about
    )  # in lower case, as the rest
