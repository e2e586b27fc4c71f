"""Claude Code and Codex show a model only the structured content of a result: all that the text of
Portico's own tools says is there, too."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portico.agents.delegation.delegate_definitions import AGENT_TOOL_NAMES
from portico.gateway.endpoints.metatool_definitions import RESERVED
from tests.agents.delegation.delegations import acp, wrote
from tests.agents.turns.rig import permission
from tests.rigs.running import bad, shelf
from tests.serve.gateway import Pipes, command, result_of, text_in, written
from tests.support.told import untold
from tests.tasks_protocol.doors import tasks_server
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-notes")]

SILENT = [sys.executable, "-c", "import sys; sys.stdin.read()"]


class Reader(Pipes):
    """A window whose model reads only the structured content."""

    def __init__(self, home: Path, config: Path, *options: str) -> None:
        super().__init__(home, config, *options)
        self.used: set[str] = set()

    def read(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The structured content, which has all that the text says."""
        result = result_of(self.call(tool, **arguments))
        assert "structuredContent" in result, text_in(result)
        assert untold(result) == [], (text_in(result), result["structuredContent"])
        self.used.add(tool)
        found: dict[str, Any] = result["structuredContent"]
        return found


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("notes")
    (folder / "words").write_text("\n".join(f"book-{number}" for number in range(30)))
    os.mkfifo(folder / "gate")  # nobody opens it
    servers = {"tasks": tasks_server(), "shelf": shelf(folder / "words")}
    servers |= {"broken": bad("stdio", "exits"), "silent": SILENT}
    agents = {
        "gone": {"command": "no-such-agent", "capabilities": ["code"], "priority": 9},
        "quick": acp({"say": "done"}, rate_limit={"requests_per_minute": 100}),
        "slow": acp({"pass": str(folder / "gate")}),
        "asking": acp(permission()),
        "trusting": acp(permission(), permissions={"ask": "model"}),
    }
    tables: dict[str, Any] = {f"servers__{name}": command(line) for name, line in servers.items()}
    tables["gateway"] = {"sync_budget_s": 0.5, "max_tools": 25, "expose": "search"}
    # `quick` is done within it on a busy machine too.
    tables["agents_defaults"] = {"sync_budget_s": 5, "roots": [str(folder)]}
    config = wrote(folder / "portico.toml", agents, **tables)
    with Reader(folder / "home", config) as opened:
        opened.initialize()
        yield opened
        for task in opened.read("list_tasks")["tasks"]:  # or the gateway would stay for them
            opened.call("cancel_task", task_id=task["task_id"])


def notes(found: dict[str, Any]) -> str:
    return "\n".join(found["notes"])


def test_a_search_says_what_it_did_not_search_and_what_there_is(reader: Reader) -> None:
    assert until(lambda: reader.status()["broken"]["error"])
    found = reader.read("search_tools", query="confirm and delete a file")
    assert found["results"][0]["tools"][0]["name"] == "tasks__confirm_delete"
    assert "still loading: the tools of silent" in notes(found)
    assert "unavailable: the tools of broken; see gateway_status" in notes(found)
    nothing = reader.read("search_tools", queries=["xyzzy", "book-7"], detail="full")
    assert nothing["results"][0]["note"] == "nothing found for 'xyzzy'"
    assert "the servers are tasks (" in notes(nothing)
    misspelt = reader.read("search_tools", query="grret")
    assert "did you mean tasks__greet" in misspelt["results"][0]["note"]


def test_a_definition_comes_with_the_names_that_do_not_exist(reader: Reader) -> None:
    found = reader.read("describe_tool", names=["tasks__greet", "tasks__gret"])
    assert [tool["name"] for tool in found["tools"]] == ["tasks__greet"]
    assert "there is no tool 'tasks__gret'; did you mean tasks__greet?" in notes(found)


def test_the_status_says_why_and_how_much(reader: Reader) -> None:
    reader.read("refresh_tools", server="broken")
    lines = reader.read("gateway_status")["servers"]
    assert any(re.fullmatch("silent: connecting, tools not known yet", line) for line in lines)
    assert any(re.fullmatch("shelf: idle, 25 of 30 tools .*max_tools.*", line) for line in lines)
    assert any(
        re.fullmatch("broken: fail.*, tools not known yet(, next try in .+)?: .+", line)
        for line in lines
    )
    (whole,) = reader.read("gateway_status", server="shelf", detail="full")["servers"]
    assert whole["omitted"] == {"tools": 5}


@pytest.mark.parametrize(
    ("tool", "given", "why"),
    [
        ("list_tasks", {"limit": "x"}, "list_tasks: limit: expected integer, got string"),
        ("list_tasks", {"page": 2}, 'list_tasks: unknown field "page"; known: limit'),
        ("task_status", {"id": "a"}, 'task_status: unknown field "id"; known: task_id, wait_s, '),
        ("cancel_task", {"task_id": "a", "x": 1}, 'cancel_task: unknown field "x"; known: task_id'),
        ("delegate_task", {"prompt": "x", "quick": 1}, 'delegate_task: unknown field "quick"; '),
    ],
)
def test_wrong_arguments_are_named_as_a_schema_would(
    reader: Reader, tool: str, given: dict[str, Any], why: str
) -> None:
    refused = result_of(reader.call(tool, **given))
    assert refused["isError"]
    assert text_in(refused).startswith(why)
    assert not result_of(reader.call("list_tasks", limit=5)).get("isError")


def test_a_call_that_becomes_a_task_says_how_to_get_its_result(reader: Reader) -> None:
    assert notes(reader.read("list_tasks")) == "there are no tasks"
    arguments = {"name": "tasks__wait", "arguments": {"seconds": 600}}
    begun = reader.read("execute_tool", **arguments)
    id = begun["task_id"]
    assert "tasks__wait is still running after 0.5 s." in notes(begun)
    assert f'Call task_status with {{"task_id": "{id}", "wait_s": 50}}' in notes(begun)
    assert "Call task_status again" in notes(reader.read("task_status", task_id=id))
    reader.read("describe_tool", name="tasks__doze")
    dozing = {"name": "tasks__doze", "arguments": {"seconds": 600}}
    asleep = reader.read("execute_read_tool", **dozing)
    assert "tasks__doze is still running after 0.5 s." in notes(asleep)
    reader.read("cancel_task", task_id=asleep["task_id"])
    listed = reader.read("list_tasks")["tasks"][1]
    assert (listed["tool"], listed["status"]) == ("tasks__wait", "running")
    assert listed["age_s"] >= 0
    assert reader.read("cancel_task", task_id=id)["status"] == "cancelled"
    assert "cancelled" in notes(reader.read("task_status", task_id=id))


def test_a_delegation_says_which_agents_were_skipped_and_how_it_goes_on(reader: Reader) -> None:
    done = reader.read("delegate_task", task_type="code", prompt="do it")
    assert done["result"] == "done"
    assert done["skipped"][0].startswith("gone cannot run")
    begun = reader.read("delegate_task", task_type="code", prompt="x", agent_id="slow")
    id = begun["task_id"]
    assert f'agent_status {{"task_id": "{id}", "wait_s": 50}}' in notes(begun)
    behind = reader.read(
        "delegate_task", task_type="code", prompt="x", agent_id="slow", background=True
    )
    assert "agent_status returns its result" in notes(behind)
    assert reader.read("agent_status", task_id=id)["tool"] == "code"
    agents = {one["id"]: one for one in reader.read("agent_status")["agents"]}
    assert agents["gone"]["reason"]


def test_a_question_of_an_agent_says_how_to_answer_it(reader: Reader) -> None:
    for agent, how in (("asking", "tasks answer"), ("trusting", "status and `answer`")):
        begun = reader.read("delegate_task", task_type="code", prompt="x", agent_id=agent)
        id = begun["task_id"]
        asked = [
            reader.read(tool, task_id=id, wait_s=50) for tool in ("agent_status", "task_status")
        ]
        if begun["status"] != "working":  # the agent was ready within the budget
            asked.append(begun)
        assert all("Question to a" in notes(one) and how in notes(one) for one in asked)
        reader.read("cancel_task", task_id=id)


def test_every_tool_of_portico_was_read(reader: Reader) -> None:
    listed = set(reader.tools())
    assert listed == {*RESERVED, *AGENT_TOOL_NAMES}
    assert listed == reader.used


def test_the_first_search_waits_for_servers_that_are_being_started(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("book")
    late = command(["sh", "-c", 'sleep 1; exec "$@"', "late", *shelf(tmp_path / "words")])
    config = written(tmp_path / "portico.toml", {"shelf": late})
    with Reader(tmp_path / "home", config, "--expose", "search") as fresh:
        fresh.initialize()
        found = fresh.read("search_tools", query="a book")
        assert [tool["name"] for tool in found["results"][0]["tools"]] == ["shelf__book"]
