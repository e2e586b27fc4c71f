"""Tasks at the doors of `serve`: withheld among many servers, passed on at a door of one."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.rigs.running import tasks
from tests.serve.gateway import Gateway, command, written
from tests.support.messages import PREFIX
from tests.wrap.talk import Client, web
from tests.wrap.test_tasks import ABLE, META, begin, follow

ERAS = ("legacy", "modern")
LEGACY: dict[str, Any] = {**ABLE, "tasks": {"requests": {"sampling": {"createMessage": {}}}}}


@pytest.fixture(scope="module")
def gateway(by: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("serve")
    servers = {era: command(tasks(era), era=era) for era in ERAS}
    config = written(
        home / "portico.toml", servers, groups={"all": list(ERAS)}, gateway={"expose": "all"}
    )
    with Gateway(home, config, by=by) as gateway:
        yield gateway


def call(client: Client, tool: str, **arguments: Any) -> str:
    """The text of a call by a client that would follow a task."""
    more: dict[str, Any] = {"_meta": META} if client.modern else {"task": {"ttl": 60_000}}
    result = json.loads(client.ask("tools/call", {"name": tool, "arguments": arguments, **more}))
    assert "content" in result, result
    text: str = result["content"][0]["text"]
    return text


@pytest.mark.parametrize("path", ["/mcp", "/groups/all/mcp"])
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("server", ERAS)
def test_tasks_are_withheld_where_servers_are_merged(
    gateway: Gateway, path: str, modern: bool, server: str
) -> None:
    able = None if modern else {**LEGACY, "elicitation": {}}
    with web(gateway.port, able, path=path, modern=modern) as client:
        assert call(client, f"{server}__work", ms=600_000) == "worked"
        execute = {"name": f"{server}__work", "arguments": {"ms": 600_000}}
        assert call(client, "execute_tool", **execute) == "worked"
        assert "taskSupport" not in client.ask("tools/list", {}).decode()
        for said in json.loads(call(client, f"{server}__heard")):
            params = said.get("params", {})
            assert "task" not in params
            declared = params.get("_meta", {}).get(PREFIX + "clientCapabilities", {})
            assert "tasks" not in json.dumps([declared, params.get("capabilities", {})])


@pytest.mark.faithful
@pytest.mark.parametrize("era", ERAS)
def test_a_servers_own_door_passes_tasks_on(gateway: Gateway, era: str) -> None:
    modern = era == "modern"
    with web(gateway.port, None, path=f"/servers/{era}/mcp", modern=modern) as client:
        id = begin(client, 0)
        assert follow(client, "tasks/get", id)["status"] == "completed"
        assert "taskSupport" in client.ask("tools/list", {}).decode()
