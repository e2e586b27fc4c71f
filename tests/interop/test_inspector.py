"""The Inspector's command line, in both eras, over stdio and HTTP."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.interop.doors import Doors
from tests.support.node import inspector, run_node

pytestmark = pytest.mark.slow

ERAS = ("legacy", "modern")


@pytest.fixture(params=["stdio", "http", "sse"])
def target(request: pytest.FixtureRequest, everything: Doors) -> list[str]:
    if request.param == "stdio":
        return everything.command()
    return [everything.url("/sse" if request.param == "sse" else "/mcp")]


def inspect(target: list[str], era: str, home: Path, *options: str) -> dict[str, Any]:
    """The JSON output of the Inspector."""
    # Options first: the rest belongs to the command.
    done = run_node(
        inspector(),
        *("--cli", "--protocol-era", era, "--format", "json", "-q", *options, "--", *target),
        home=home,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)["result"]
    return printed


def eras_of(target: list[str]) -> tuple[str, ...]:
    """The old SSE transport is of the legacy era only."""
    return ERAS[:1] if target[0].endswith("/sse") else ERAS


def test_the_inspector_lists_the_tools(target: list[str], tmp_path: Path) -> None:
    for era in eras_of(target):
        listed = inspect(target, era, tmp_path, "--method", "tools/list")
        assert "test_simple_text" in {tool["name"] for tool in listed["tools"]}


def test_the_inspector_calls_a_tool(target: list[str], tmp_path: Path) -> None:
    for era in eras_of(target):
        called = inspect(
            target,
            era,
            tmp_path,
            *("--method", "tools/call", "--tool-name", "test_x_mcp_header"),
            *("--tool-arg", "region=eu"),
        )
        assert called["content"] == [{"type": "text", "text": "region=eu"}]
