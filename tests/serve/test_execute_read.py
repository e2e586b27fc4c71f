"""`execute_read_tool` at a real gateway: servers that change their minds, trust, tasks, windows."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import scripted
from tests.serve.gateway import Gateway, Pipes, command, result_of, serve_command, text_in, written
from tests.tasks_protocol.doors import ERAS, tasks_server
from tests.tasks_protocol.follower import Follower, FollowingPipes, FollowingWeb

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-execute-read")]

REFUSED = "is not marked as read-only, or the config does not trust its server's marks"
DONE = '{"name": "page", "arguments": {}}'
UNSEEN = "was not shown to you as read-only; call describe_tool first"


class Script:
    """A server whose only tool has the annotations of a file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "script.json"
        self.marks({"readOnlyHint": True})

    def marks(self, annotations: Any) -> None:
        """Give the tool other annotations, from the next list on."""
        more = {} if annotations is None else {"annotations": annotations}
        tool = {"name": "page", "inputSchema": {"type": "object"}, **more}
        self.file.write_text(json.dumps({"tools": [tool]}))


class Place:
    """A gateway in front of the script and a slow server, and a client of it."""

    def __init__(self, script: Script, client: Follower) -> None:
        self.script, self.client = script, client

    def result(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The result of one of the gateway's tools."""
        answer = self.client.fetch("tools/call", {"name": tool, "arguments": arguments})
        return result_of(answer)

    def read(self, name: str = "pages__page", **arguments: Any) -> str:
        """The text of a read-only call."""
        return text_in(self.result("execute_read_tool", name=name, arguments=arguments))

    def shown(self, name: str = "pages__page") -> str:
        """The meta-tool that a description names."""
        (tool,) = self.result("describe_tool", name=name)["structuredContent"]["tools"]
        call: str = tool["call"]
        return call

    def change(self, annotations: Any) -> None:
        """Have the server list its tool with other annotations."""
        self.script.marks(annotations)
        self.result("refresh_tools", server="pages")


@pytest.fixture(params=[(way, era) for way in ("stdio", "http") for era in ERAS], ids="-".join)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    way, era = request.param
    script = Script(tmp_path)
    tasks = command(tasks_server(), sync_budget_s=0.5)
    servers = {"pages": command(scripted(script.file)), "tasks": tasks}
    tables = {"gateway": {"expose": "search"}}
    config, home = written(tmp_path / "portico.toml", servers, **tables), tmp_path / "home"
    with ExitStack() as stack:
        client: Follower
        if way == "stdio":
            words = serve_command(home, config)
            client = FollowingPipes(home, words=words, modern=era == "modern")
        else:
            port = stack.enter_context(Gateway(home, config)).port
            client = FollowingWeb(port, modern=era == "modern")
        stack.enter_context(client)
        client.able = {}
        if era == "legacy":
            client.hello({})
        yield Place(script, client)
        assert client.oracle.problems == []


def test_both_definitions_must_be_read_only(place: Place) -> None:
    place.change({"readOnlyHint": True})
    assert UNSEEN in place.read()
    assert place.shown() == "execute_read_tool"
    assert '{"id": 1}' in place.read(id=1)
    place.change({"readOnlyHint": False})
    assert REFUSED in place.read(id=2)
    assert place.shown() == "execute_tool"
    assert REFUSED in place.read(id=3)
    place.change({"readOnlyHint": True})
    assert UNSEEN in place.read(id=4)  # it was last shown as a tool that writes
    assert "execute_read_tool" in str(place.result("search_tools", query="page"))
    assert '{"id": 5}' in place.read(id=5)
    odds: list[Any] = [None, ["readOnlyHint"], {"readOnlyHint": "true"}]
    for odd in odds:
        place.change(odd)
        assert REFUSED in place.read(id=6)
        assert place.shown() == "execute_tool"


def test_a_long_read_becomes_a_task_as_any_call_does(place: Place) -> None:
    assert place.shown("tasks__wait") == "execute_tool"
    assert REFUSED in place.read("tasks__wait", seconds=600)
    assert place.shown("tasks__doze") == "execute_read_tool"
    for tool in ("execute_read_tool", "execute_tool"):
        begun = place.result(tool, name="tasks__doze", arguments={"seconds": 1})
        id = begun["structuredContent"]["task_id"]
        done = place.result("task_status", task_id=id, wait_s=50)
        assert text_in(done) == "dozed 1.0 s"


def test_hints_of_a_server_that_is_not_trusted_do_not_count(tmp_path: Path) -> None:
    script = Script(tmp_path)
    entry = command(scripted(script.file))
    unsure = {"pages": {**entry, "trust_hints": False}, "sure": entry}
    config = written(tmp_path / "portico.toml", unsure, gateway={"expose": "search"})
    theirs = tmp_path / "mcp.json"
    vouched = {**entry, "trust_hints": True}
    theirs.write_text(json.dumps({"mcpServers": {"pages": entry, "sure": vouched}}))
    for file in (config, theirs):
        with Pipes(tmp_path / file.stem, file, "--expose", "search") as window:
            window.initialize()
            for name, call in (("pages", "execute_tool"), ("sure", "execute_read_tool")):
                tool = f"{name}__page"
                assert f"call: {call}\n" in window.said("describe_tool", name=tool)
                said = window.said("execute_read_tool", name=tool, arguments={})
                assert (DONE if name == "sure" else REFUSED) in said
                assert DONE in text_in(window.execute(tool))


def test_a_window_reads_only_what_it_was_shown_itself(tmp_path: Path) -> None:
    script = Script(tmp_path)
    servers = {"pages": command(scripted(script.file))}
    config = written(tmp_path / "portico.toml", servers, gateway={"expose": "search"})
    with Pipes(tmp_path / "home", config) as one, Pipes(tmp_path / "home", config) as other:
        for window in (one, other):
            window.initialize()
        one.said("describe_tool", name="pages__page")
        assert DONE in one.said("execute_read_tool", name="pages__page")
        assert UNSEEN in other.said("execute_read_tool", name="pages__page")


def test_permissions_in_a_clients_file_are_reported(tmp_path: Path) -> None:
    script = Script(tmp_path)
    entry = {**command(scripted(script.file)), "alwaysAllow": ["page"], "autoApprove": ["*"]}
    theirs = tmp_path / "mcp.json"
    theirs.write_text(json.dumps({"mcpServers": {"pages": entry}}))
    with Pipes(tmp_path / "home", theirs, "--alone") as window:
        window.initialize()
        window.said("gateway_status")
        told = window.stderr()
    for key in ("alwaysAllow", "autoApprove"):
        assert f"mcpServers.pages.{key}: has no effect here" in told
    assert "allow execute_read_tool there" in told
