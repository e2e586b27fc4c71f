"""A handler that misbehaves hurts only its own call."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.oracle import MODERN
from tests.support.running import HttpServer, StdioServer, modern_meta
from tests.support.shared import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("bad-handlers")]

HOSTILE = ROOT / "tests" / "interop" / "servers" / "hostile.py"


@contextlib.contextmanager
def served(era: str) -> Iterator[StdioServer]:
    """A server for a client of an era."""
    with StdioServer(HOSTILE, "--drain", "0.2") as server:
        server.modern = era == "modern"  # type: ignore[attr-defined]  # a note for `call`
        if era == "legacy":
            server.initialize()
        yield server


@pytest.fixture(scope="module", params=["legacy", "modern"])
def running(request: pytest.FixtureRequest) -> Iterator[StdioServer]:
    with served(request.param) as server:
        yield server


@pytest.fixture
def server(running: StdioServer) -> Iterator[StdioServer]:
    """One server for the tests that leave nothing running in it."""
    yield running
    assert_good(running)


@pytest.fixture(params=["legacy", "modern"])
def fresh(request: pytest.FixtureRequest) -> Iterator[StdioServer]:
    """A server for one test, which must be able to end while its handlers hang."""
    with served(request.param) as server:
        yield server
        assert_good(server)


def assert_good(server: StdioServer) -> None:
    """Whatever its handlers did, the server answers the next call."""
    assert call(server, "good")["result"]["content"][0]["text"] == "good"
    assert server.oracle.problems == []


def start(server: StdioServer, method: str, **params: Any) -> int:
    meta = {"progressToken": "t"}
    if server.modern:  # type: ignore[attr-defined]  # see the fixture
        meta = modern_meta(**meta)
    return server.start(method, {**params, "_meta": meta})


def call(server: StdioServer, tool: str) -> dict[str, Any]:
    return server.answer_to(start(server, "tools/call", name=tool, arguments={}))


@pytest.mark.parametrize(
    "tool",
    [
        *("raises", "raises_in_thread", "raises_stop_iteration"),
        *("exits", "exits_in_thread"),
        *("wrong_type", "no_json", "endless", "lone_surrogate"),
    ],
)
def test_one_that_raises_or_returns_nonsense_is_an_error_of_that_call(
    server: StdioServer, tool: str
) -> None:
    answer = call(server, tool)
    if "error" in answer:
        assert answer["error"]["code"] == -32603
    else:
        assert answer["result"]["isError"] is True
        assert tool in answer["result"]["content"][0]["text"]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/read", {"uri": "hostile://raises"}),
        ("resources/read", {"uri": "hostile://wrong"}),
        ("prompts/get", {"name": "prompt_raises"}),
        ("prompts/get", {"name": "prompt_wrong"}),
        (
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "prompt_wrong"},
                "argument": {"name": "name", "value": ""},
            },
        ),
    ],
)
def test_so_it_is_with_resources_prompts_and_completions(
    server: StdioServer, method: str, params: dict[str, Any]
) -> None:
    answer = server.answer_to(start(server, method, **params))
    assert answer["error"]["code"] == -32603


@pytest.mark.parametrize(
    "tool", ["never_returns", "never_returns_in_thread", "ignores_cancellation"]
)
def test_one_that_never_returns_holds_up_nobody(fresh: StdioServer, tool: str) -> None:
    id = start(fresh, "tools/call", name=tool, arguments={})
    assert fresh.receive()["method"] == "notifications/progress"
    assert call(fresh, "good")["result"]["content"][0]["text"] == "good"
    cancelled = {"requestId": id, "reason": "enough"}
    fresh.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
    assert call(fresh, "good")["result"]["content"][0]["text"] == "good"
    # A cancelled call has no answer, and the server can still end while it hangs.
    assert fresh.received_before() == []


def test_many_that_never_return_leave_room_for_others(fresh: StdioServer) -> None:
    for _ in range(100):
        start(fresh, "tools/call", name="never_returns_in_thread", arguments={})
    for _ in range(100):
        assert fresh.receive()["method"] == "notifications/progress"
    assert call(fresh, "raises_in_thread")["result"]["isError"] is True


@pytest.mark.parametrize("tool", ["never_returns", "never_returns_in_thread"])
def test_a_client_that_leaves_takes_its_hanging_calls_along(server: StdioServer, tool: str) -> None:
    with StdioServer(HOSTILE, "--drain", "0.2") as other:
        other.initialize()
        other.start("tools/call", {"name": tool, "arguments": {}, "_meta": {"progressToken": "t"}})
        assert other.receive()["method"] == "notifications/progress"
    assert other.process.returncode == 0


@pytest.mark.parametrize(
    "tool", ["never_returns", "never_returns_in_thread", "ignores_cancellation"]
)
def test_an_http_server_can_still_end_while_a_call_hangs(tool: str) -> None:
    server = HttpServer(HOSTILE, "--drain", "0.2")
    connection = server.connection()
    meta = modern_meta(progressToken="t")
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body["params"] = {"name": tool, "arguments": {}, "_meta": meta}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    try:
        connection.request("POST", "/mcp", json.dumps(body), headers)
        response = connection.getresponse()
        assert b"notifications/progress" in response.readline() + response.readline()
        assert server.stop() == 0
        with contextlib.suppress(http.client.IncompleteRead):  # it may be cut off, but not held up
            response.read()
    finally:
        connection.close()
