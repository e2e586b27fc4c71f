"""Tasks at the doors of `serve`: followed among many servers, and at the door of one."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import tasks
from tests.serve.gateway import Gateway, command, written
from tests.support.messages import PREFIX
from tests.wrap.faults import until
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


@pytest.mark.parametrize("path", ["/mcp", "/groups/all/mcp"])
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("server", ERAS)
def test_a_task_is_followed_where_servers_are_merged(
    gateway: Gateway, path: str, modern: bool, server: str
) -> None:
    able = None if modern else {**LEGACY, "elicitation": {}}
    with web(gateway.port, able, path=path, modern=modern) as client:
        for name in (f"{server}__work", "execute_tool"):
            id = begun(client, name, f"{server}__work")
            assert id.startswith("ptk_")
            assert until(lambda id=id: follow(client, "tasks/get", id)["status"] == "completed")
        listed = client.ask("tools/list", {}).decode()
        assert ("taskSupport" in listed) is not modern


def begun(client: Client, name: str, tool: str) -> str:
    """Begin a task, directly or through `execute_tool`; its id."""
    arguments = {} if name == tool else {"name": tool, "arguments": {}}
    more: dict[str, Any] = {"_meta": META} if client.modern else {"task": {"ttl": 60_000}}
    result = json.loads(client.ask("tools/call", {"name": name, "arguments": arguments, **more}))
    task = result if client.modern else result["task"]
    id: str = task["taskId"]
    return id


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("server", ERAS)
def test_servers_do_not_see_tasks_of_clients_that_cannot_follow_them(
    tmp_path: Path, modern: bool, server: str
) -> None:
    config = written(tmp_path / "portico.toml", {server: command(tasks(server), era=server)})
    with (
        Gateway(tmp_path / "home", config) as portico,
        web(portico.port, {"elicitation": {}}, modern=modern) as client,
    ):
        assert client.call("execute_tool", name=f"{server}__work", arguments={}) == "worked"
        for said in json.loads(client.call("execute_tool", name=f"{server}__heard", arguments={})):
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
        assert until(lambda: follow(client, "tasks/get", id)["status"] == "completed")
        assert "taskSupport" in client.ask("tools/list", {}).decode()
