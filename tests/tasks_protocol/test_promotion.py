"""Calls that outlive `sync_budget_s` and become tasks, for clients with tasks and without."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import everything
from tests.serve.gateway import Gateway, command, serve_command, written
from tests.tasks_protocol.doors import ANSWERS, ERAS, tasks_server
from tests.tasks_protocol.follower import ABLE, ACCEPT, FollowingPipes, FollowingWeb
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("tasks-promotion")]

TOOLS = {"task_status", "cancel_task", "list_tasks"}
PLAIN: dict[str, Any] = {"elicitation": {"form": {}}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway whose servers may take half a second; two patient ones may take longer."""
    home = tmp_path_factory.mktemp("promotion")
    # Calls of several clients are at the legacy server when it sends its first question.
    per_client = {"legacy": {"sharing": "per-client"}}
    servers = {era: command(tasks_server(), era=era, **per_client.get(era, {})) for era in ERAS}
    servers["patient"] = command(tasks_server(), era="modern", sync_budget_s=600)
    servers["patient-legacy"] = command(tasks_server(), era="legacy", sync_budget_s=600)
    tables = {"gateway": {"expose": "all", "sync_budget_s": 0.5}}
    with Gateway(home, written(home / "portico.toml", servers, **tables)) as ready:
        yield ready


@pytest.fixture(params=ERAS)
def able(request: pytest.FixtureRequest, gateway: Gateway) -> Iterator[FollowingWeb]:
    """A modern client that can follow tasks, for servers of either era."""
    yield from connected(gateway, "modern", request.param, ABLE)


@pytest.fixture(params=[(era, server) for era in ERAS for server in ERAS], ids="-".join)
def plain(request: pytest.FixtureRequest, gateway: Gateway) -> Iterator[FollowingWeb]:
    """A client that cannot, of either era."""
    era, server = request.param
    yield from connected(gateway, era, server, PLAIN)


def connected(
    gateway: Gateway, era: str, server: str, able: dict[str, Any]
) -> Iterator[FollowingWeb]:
    """A client of a gateway; whatever it receives is valid."""
    with FollowingWeb(gateway.port, answers=ANSWERS, modern=era == "modern") as client:
        client.able, client.prefix = able, f"{server}__"
        if era == "legacy":
            client.hello(able)
        yield client
        assert client.oracle.problems == []


def plainly(client: FollowingWeb, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result of a call whose client does not mention tasks."""
    answer = client.fetch("tools/call", client.call_of(tool, arguments))
    assert "result" in answer, answer
    found: dict[str, Any] = answer["result"]
    return found


def own(client: FollowingWeb, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result of one of the gateway's tools."""
    answer = client.fetch("tools/call", {"name": tool, "arguments": arguments})
    found: dict[str, Any] = answer["result"]
    return found


def text(result: dict[str, Any]) -> str:
    """The text of a result."""
    return "\n".join(block["text"] for block in result["content"])


def test_a_long_call_becomes_a_task_of_a_client_that_can_follow_it(able: FollowingWeb) -> None:
    for executes in (False, True):
        able.executes = executes
        outcome = able.outcome(able.begin("wait", seconds=1))
        assert outcome["status"] == "completed"
        assert text(outcome["result"]) == "waited 1.0 s"


def test_a_structured_result_also_arrives_through_a_task(able: FollowingWeb) -> None:
    outcome = able.outcome(able.begin("measure", seconds=1))
    assert outcome["result"]["structuredContent"] == {"degrees": 21.5}


def test_a_legacy_client_that_requests_a_task_gets_it_after_the_budget(gateway: Gateway) -> None:
    for client in connected(gateway, "legacy", "modern", ABLE):
        assert text(client.outcome(client.begin("wait", seconds=1))["result"]) == "waited 1.0 s"
        client.prefix = "legacy__"  # where the tool says that it does not run as a task
        assert client.called("wait", seconds=1)["error"]["code"] == -32601


def test_a_client_without_tasks_gets_a_text_and_fetches_the_result(plain: FollowingWeb) -> None:
    for executes in (False, True):
        plain.executes = executes
        result = plainly(plain, "wait", seconds=1.5)
        assert "It continues as task ptk_" in text(result)
        id = result["structuredContent"]["task_id"]
        listed = own(plain, "list_tasks")  # the gateway has no token
        assert listed["isError"]
        assert "use the id that you were given" in text(listed)
        status = own(plain, "task_status", task_id=id)
        assert status["structuredContent"]["task_id"] == id
        done = own(plain, "task_status", task_id=id, wait_s=3600)
        assert text(done) == "waited 1.5 s"


def test_a_structured_result_is_fetched_with_task_status(plain: FollowingWeb) -> None:
    for executes in (False, True):
        plain.executes = executes
        promoted = plainly(plain, "measure", seconds=1)
        id = promoted["structuredContent"]["task_id"]
        done = own(plain, "task_status", task_id=id, wait_s=50)
        assert done["structuredContent"] == {"degrees": 21.5}


def test_a_promoted_call_can_be_cancelled_with_a_tool(plain: FollowingWeb) -> None:
    id = plainly(plain, "wait", seconds=600)["structuredContent"]["task_id"]
    assert "cancelled" in text(own(plain, "cancel_task", task_id=id))
    ended = own(plain, "task_status", task_id=id, wait_s=50)
    assert ended["isError"] is True
    assert "cancelled" in text(ended)


def test_a_promoted_call_shows_its_question_to_a_model_but_not_its_answer(
    gateway: Gateway, plain: FollowingWeb
) -> None:
    id = plainly(plain, "wait_and_ask", seconds=1)["structuredContent"]["task_id"]
    for other in connected(gateway, "modern", "modern", {}):  # which cannot ask a person
        asked = own(other, "task_status", task_id=id, wait_s=50)
        assert "Question to a person: " in text(asked)
        assert "Go on?" in text(asked)
        assert f"portico tasks answer {id}" in text(asked)
        refused = own(other, "task_status", task_id=id, answer={"confirm": True})
        assert refused["isError"] is True
        assert f"portico tasks answer {id}" in text(refused)
        assert "cancelled" in text(own(other, "cancel_task", task_id=id))


def test_task_status_asks_the_person_in_front_of_a_client_without_tasks(
    plain: FollowingWeb,
) -> None:
    id = plainly(plain, "wait_and_ask", seconds=1)["structuredContent"]["task_id"]
    result = own(plain, "task_status", task_id=id, wait_s=50)
    if plain.modern:
        assert result["resultType"] == "input_required"
        ((key, question),) = result["inputRequests"].items()
        assert "Go on?" in question["params"]["message"]
        params = {"name": "task_status", "arguments": {"task_id": id, "wait_s": 50}}
        retry = {"inputResponses": {key: ACCEPT}, "requestState": result["requestState"]}
        result = plain.fetch("tools/call", {**params, **retry})["result"]
    assert text(result) == "answered accept"


def test_a_promoted_call_asks_a_client_with_tasks_in_its_task(able: FollowingWeb) -> None:
    id = able.begin("wait_and_ask", seconds=1)
    able.update(id, dict.fromkeys(able.questions(id, 1), ACCEPT))
    assert text(able.outcome(id)["result"]) == "answered accept"


def test_a_server_may_have_a_budget_of_its_own(gateway: Gateway) -> None:
    for client in connected(gateway, "modern", "patient", ABLE):
        result = client.called("wait", seconds=1)["result"]
        assert text(result) == "waited 1.0 s"


BAD = [
    {"task_id": "ptk_nobody"},
    {"task_id": "x" * 1_000_000},
    {"task_id": 5},
    {"task_id": None},
    {},
    {"task_id": "ptk_x", "wait_s": "soon"},
    {"task_id": "ptk_x", "nobody": 1},
]


@pytest.mark.parametrize("arguments", BAD, ids=lambda one: json.dumps(one)[:40])
def test_the_tools_explain_bad_arguments(gateway: Gateway, arguments: dict[str, Any]) -> None:
    for client in connected(gateway, "legacy", "modern", PLAIN):
        for tool in ("task_status", "cancel_task"):
            result = own(client, tool, **arguments)
            assert result["isError"] is True
            assert 0 < len(text(result)) < 1000


def test_the_tools_are_listed_only_where_calls_can_become_tasks(gateway: Gateway) -> None:
    def listed(port: int, path: str) -> set[str]:
        with FollowingWeb(port, path, modern=True) as client:
            tools = client.fetch("tools/list")["result"]["tools"]
            return TOOLS & {tool["name"] for tool in tools}

    assert until(lambda: listed(gateway.port, "/mcp") == TOOLS)
    assert listed(gateway.port, "/servers/modern/mcp") == set()
    with FollowingWeb(gateway.port, "/servers/modern/mcp", modern=True) as client:
        answer = client.fetch("tools/call", {"name": "task_status", "arguments": {"task_id": "x"}})
        assert answer["error"]["code"] == -32602


def test_the_tools_are_not_listed_where_no_server_has_tasks(tmp_path: Path) -> None:
    rig = command(everything("--stdio", "--era", "modern"))
    config = written(tmp_path / "portico.toml", {"rig": rig})
    with (
        Gateway(tmp_path / "home", config) as gateway,
        FollowingWeb(gateway.port, modern=True) as client,
    ):
        client.called("execute_tool", name="rig__test_simple_text", arguments={})
        tools = client.fetch("tools/list")["result"]["tools"]
        assert not TOOLS & {tool["name"] for tool in tools}


def test_a_promoted_call_goes_on_when_its_window_is_closed(tmp_path: Path) -> None:
    servers = {"rig": command(tasks_server(), era="modern")}
    tables = {"gateway": {"expose": "all", "sync_budget_s": 0.3}}
    config = written(tmp_path / "portico.toml", servers, **tables)
    words = serve_command(tmp_path / "home", config)
    with FollowingPipes(tmp_path, words=words, modern=True) as first:
        id = first.begin("rig__wait", seconds=1.5)
    with FollowingPipes(tmp_path, words=words, modern=True) as second:
        assert text(second.outcome(id)["result"]) == "waited 1.5 s"


@pytest.mark.parametrize("era", ERAS)
def test_a_tool_that_runs_only_as_a_task_can_be_executed_by_every_client(
    gateway: Gateway, era: str
) -> None:
    for client in connected(gateway, era, "patient-legacy", PLAIN):
        client.executes = True
        result = plainly(client, "failing_job")
        assert (text(result), result["isError"]) == ("the job failed", True)
