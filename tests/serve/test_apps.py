"""A real MCP Apps server, twice: the tool of each account gets its own account's page."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.gateway import Gateway, command, written
from tests.support import node
from tests.support.running import teed
from tests.wrap.faults import until
from tests.wrap.talk import Web, web

pytestmark = pytest.mark.slow

PAGE = "ui://budget-allocator/mcp-app.html"
SECOND = "ui://home--budget-allocator/mcp-app.html"
TOOL = "get-budget-data"
HTML = "text/html;profile=mcp-app"


class Accounts:
    """Two accounts of the server behind one gateway, each with a record of what it was asked."""

    def __init__(self, folder: Path, expose: str) -> None:
        self._folder = folder
        server = [str(node.node()), str(node.server("budget-allocator")), "--stdio"]
        servers = {
            name: command(teed(folder / f"{name}.record", server)) for name in ("work", "home")
        }
        self.config = written(folder / "portico.toml", servers, gateway={"expose": expose})

    def asked(self, name: str, method: str) -> list[dict[str, Any]]:
        """The params of the requests that reached an account."""
        lines = (self._folder / f"{name}.record").read_bytes().splitlines()
        messages = [json.loads(line[1:]) for line in lines if line.startswith(b">")]
        return [one["params"] for one in messages if one.get("method") == method]


@pytest.fixture(params=["all", "search"])
def accounts(request: pytest.FixtureRequest, tmp_path: Path) -> Accounts:
    return Accounts(tmp_path, request.param)


@pytest.fixture
def gateway(accounts: Accounts, tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path, accounts.config) as running:
        yield running


def result(client: Web, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.ask(method, params))
    return found


def pages(definition: dict[str, Any]) -> tuple[str, str]:
    meta = definition["_meta"]
    return meta["ui"]["resourceUri"], meta["ui/resourceUri"]


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
def test_each_account_of_a_real_apps_server_shows_its_own_page(
    modern: bool, accounts: Accounts, gateway: Gateway
) -> None:
    with web(gateway.port, modern=modern) as client:
        client.call("refresh_tools")
        tools = {tool["name"]: tool for tool in result(client, "tools/list")["tools"]}
        assert pages(tools[f"work__{TOOL}"]) == (PAGE, PAGE)
        assert pages(tools[f"home__{TOOL}"]) == (SECOND, SECOND)
        work, home = result(client, "resources/list")["resources"]
        assert (work["uri"], home["uri"]) == (PAGE, SECOND)
        assert {**home, "uri": PAGE} == work
        assert home["mimeType"] == HTML

        (first,) = result(client, "resources/read", {"uri": PAGE})["contents"]
        assert [params["uri"] for params in accounts.asked("work", "resources/read")] == [PAGE]
        assert accounts.asked("home", "resources/read") == []
        (second,) = result(client, "resources/read", {"uri": SECOND})["contents"]
        assert [params["uri"] for params in accounts.asked("home", "resources/read")] == [PAGE]
        assert len(accounts.asked("work", "resources/read")) == 1
        assert (first["uri"], second["uri"]) == (PAGE, SECOND)
        assert {**second, "uri": PAGE} == first
        assert second["mimeType"] == HTML
        assert second["text"].startswith("<!DOCTYPE html>")
        asked = {"name": "describe_tool", "arguments": {"name": f"home__{TOOL}"}}
        (tool,) = result(client, "tools/call", asked)["structuredContent"]["tools"]
        assert pages(tool["definition"]) == (SECOND, SECOND)


@pytest.mark.parametrize("expose", ["all", "search"])
@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
def test_a_page_calls_a_tool_by_its_bare_name_unless_two_servers_have_it(
    modern: bool, expose: str, tmp_path: Path
) -> None:
    accounts = Accounts(tmp_path, expose)
    both = accounts.config.read_text()
    accounts.config.write_text(both.replace("[servers.home]", "[servers.home]\nenabled = false"))
    with Gateway(tmp_path, accounts.config) as gateway, web(gateway.port, modern=modern) as client:
        client.call("refresh_tools")
        listed = [tool["name"] for tool in result(client, "tools/list")["tools"]]
        assert f"work__{TOOL}" in listed
        (page,) = result(client, "resources/read", {"uri": PAGE})["contents"]
        assert page["mimeType"] == HTML
        by_page = result(client, "tools/call", {"name": TOOL, "arguments": {}})
        by_name = result(client, "tools/call", {"name": f"work__{TOOL}", "arguments": {}})
        assert by_page["structuredContent"].keys() == by_name["structuredContent"].keys()
        assert [params["name"] for params in accounts.asked("work", "tools/call")] == [TOOL] * 2
        log = tmp_path / "state" / "logs" / "serve.log"
        assert until(lambda: log.exists() and log.read_text().count(f'"tool":"{TOOL}"') == 2)
        for name in (f"{TOOL}s", f"work_{TOOL}", "toString", ""):
            id = client.request("tools/call", {"name": name, "arguments": {}})
            assert json.loads(client.error(id))["code"] == -32602
        accounts.config.write_text(both)

        def refusal() -> str:
            id = client.request("tools/call", {"name": TOOL, "arguments": {}})
            return client.answer(id).decode()

        told = f"unknown tool: {TOOL}; call it as work__{TOOL} or home__{TOOL}"
        assert until(lambda: told in refusal())
        asked = [len(accounts.asked(name, "tools/call")) for name in ("work", "home")]
        assert told in refusal()
        assert [len(accounts.asked(name, "tools/call")) for name in ("work", "home")] == asked


@pytest.mark.parametrize("modern", [False, True], ids=["legacy", "modern"])
def test_at_its_own_endpoint_a_real_apps_server_is_as_it_is(
    modern: bool, accounts: Accounts, gateway: Gateway
) -> None:
    with web(gateway.port, modern=modern, path="/servers/home/mcp") as client:
        (tool,) = result(client, "tools/list")["tools"]
        assert pages(tool) == (PAGE, PAGE)
        (listed,) = result(client, "resources/list")["resources"]
        assert listed["uri"] == PAGE
        (page,) = result(client, "resources/read", {"uri": PAGE})["contents"]
        assert page["uri"] == PAGE
        assert accounts.asked("work", "resources/read") == []
