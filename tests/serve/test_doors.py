"""The doors of a gateway over HTTP: to all servers, to one, to a group, and to nothing else."""

import http.client
import json
from collections.abc import Sequence
from pathlib import Path

import mcp_types as types
import pytest
from mcp import Client

from tests.interop.person import text_of
from tests.interop.sdk import code_of
from tests.rigs.conformance import count, run_suite
from tests.rigs.running import everything, listening
from tests.serve.fleet import Fleet
from tests.serve.gateway import Gateway, written
from tests.serve.ways import ERAS, Way, execute, token
from tests.support.proxy import RecordingProxy
from tests.support.running import LINKED, PLAIN, WAIT_S, initialize_params
from tests.support.soak import each

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fleet")]

over_http = pytest.mark.parametrize(
    "way", [("http", era) for era in ERAS], indirect=True, ids="-".join
)


@over_http
async def test_a_servers_own_door_shows_it_as_it_is(way: Way, ten: Fleet) -> None:
    git = ten.members["git"]
    async with Client(git.directly()) as client:
        direct = (await client.list_tools()).tools
    async with way.connect("/servers/git/mcp") as client:
        assert client.server_info is not None
        assert client.server_info.name == "mcp-git"
        assert (await client.list_tools()).tools == direct
        assert "kept.txt" in await text_of(client, *git.calls[0])
        assert await code_of(client.call_tool("time__convert_time")) == types.INVALID_PARAMS
        assert await code_of(client.call_tool("search_tools")) == types.INVALID_PARAMS


@over_http
async def test_a_groups_door_leads_to_its_servers_and_to_no_other(way: Way, ten: Fleet) -> None:
    tool, arguments = ten.members["time"].calls[0]
    async with way.connect("/groups/papers/mcp") as client:
        found = await client.call_tool("search_tools", {"query": "convert time", "limit": 50})
        tools = (found.structured_content or {})["results"][0]["tools"]
        assert {one["server"] for one in tools} <= {"git", "files"}
        for wanted in (f"time__{tool}", "everything__get-sum"):
            refused = await execute(client, wanted, **arguments)
            assert refused.is_error
            assert "the servers are git (12 tools), files (14 tools)" in str(refused.content)
            assert (await client.call_tool("describe_tool", {"name": wanted})).is_error
            assert await code_of(client.call_tool(wanted, arguments)) == types.INVALID_PARAMS
        for server in ("time", "nobody"):
            asked = {"query": "time", "server": server}
            assert (await client.call_tool("search_tools", asked)).is_error
            assert (await client.call_tool("refresh_tools", {"server": server})).is_error
        assert (await client.list_resources()).resources == []
        assert (await client.list_prompts()).prompts == []
        assert await code_of(client.read_resource("test://static-text"))
        status = await client.call_tool("gateway_status", {"detail": "full"})
        servers = (status.structured_content or {})["servers"]
        assert {one["server"] for one in servers} == {"git", "files"}
        git = await execute(client, "git__git_status", **ten.members["git"].calls[0][1])
        assert "kept.txt" in str(git.content)


NOWHERE = [
    "/servers/nobody/mcp",
    "/groups/nobody/mcp",
    "/groups/git/mcp",
    "/servers/papers/mcp",
    "/servers//mcp",
    "/groups//mcp",
    "/servers/mcp",
    "/servers/git",
    "/servers/git/mcp/",
    "/servers/git/mcp/more",
    "/servers/GIT/mcp",
    "/servers/git%00/mcp",
    "/servers/git%20/mcp",
    "/servers/nobody%2F..%2Fgit/mcp",
    "/servers/../mcp",
    "/servers/%2e%2e/mcp",
    "/mcp/servers/git",
    "/" + "x" * 5000,
]


def asked(port: int, path: str, authorization: str = "") -> http.client.HTTPResponse:
    """What comes back if one shakes hands at a path."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "authorization": authorization,
    }
    params = initialize_params("2025-11-25")
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    connection.request("POST", path, json.dumps(hello), headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response


@pytest.mark.parametrize("path", NOWHERE, ids=lambda path: path[:40])
def test_a_door_that_is_not_there_leads_nowhere(
    path: str, ten: Fleet, proxy: RecordingProxy
) -> None:
    response = asked(proxy.server.port, path, f"Bearer {token(ten.home)}")
    assert response.status == 404
    assert response.headers["mcp-session-id"] is None


@pytest.mark.parametrize("path", ["/mcp", "/servers/git/mcp", "/groups/papers/mcp"])
def test_no_door_opens_without_the_token(path: str, ten: Fleet, proxy: RecordingProxy) -> None:
    key = token(ten.home)
    for wrong in ("", "Bearer", "Bearer ", f"Bearer {key}x", f"Bearer {key[:-1]}", f"Basic {key}"):
        assert asked(proxy.server.port, path, wrong).status == 401, wrong
    assert asked(proxy.server.port, path, f"Bearer {key}").status == 200


LEAST = {"2025-11-25": 84, "2026-07-28": 152}
"""As many checks of the official suite as pass at the server itself."""


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("requirements", "by"), each(list(LEAST), [PLAIN, LINKED]), indirect=["by"]
)
def test_the_official_suite_finds_a_servers_own_door_as_it_finds_the_server(
    requirements: str, by: Sequence[str], tmp_path: Path
) -> None:
    with listening(everything("--http", "0", "--era", "both")) as url:
        config = written(tmp_path / "portico.toml", {"rig": {"url": url}})
        with Gateway(tmp_path / "home", config, by=by) as gateway:
            door = f"http://localhost:{gateway.port}/servers/rig/mcp"
            found = run_suite(door, requirements, tmp_path / "results")
    assert "FAILURE" not in found.values()
    assert count(found, "SUCCESS") >= LEAST[requirements]
