"""Middleware of wasmcp in Python, which reaches its client, and calls tools behind it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from portico import McpError, Server
from tests.library.wasm import building
from tests.library.wasm.test_middleware import client_behind, shop, text

pytestmark = pytest.mark.slow
every_version = pytest.mark.parametrize("version", ["v20251125", "v20250618"])
every_era = pytest.mark.parametrize("era", ["modern", "legacy"])


def guest(version: str) -> Path:
    wit = building.WIT / version
    return building.python("typed.py", wit, "reaching-middleware", stub_wasi=False)


def pythagorean() -> Path:
    return building.python("pythagorean.py", building.WIT / "beta", "middleware", stub_wasi=False)


def numbers() -> tuple[Server, list[str]]:
    server, calls = Server("numbers"), list[str]()

    @server.tool
    async def square(x: float) -> float:
        """Return x times x."""
        calls.append("square")
        return x * x

    @server.tool
    async def add(a: float, b: float) -> float:
        """Return the sum."""
        calls.append("add")
        return a + b

    @server.tool
    async def square_root(x: float) -> float:
        """Return the square root."""
        calls.append("square_root")
        return float(x**0.5)

    return server, calls


@every_era
async def test_one_of_the_first_version_adds_a_tool_that_calls_three_tools_behind_it(
    era: Any, tmp_path: Path
) -> None:
    server, calls = numbers()
    told: list[Any] = []
    async with client_behind(server, tmp_path, era, pythagorean()) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert list(tools) == ["square", "add", "square_root", "pythagorean"]
        assert tools["pythagorean"].description == "The longest side of a triangle."
        answer = await client.call_tool(
            "pythagorean", {"a": 3, "b": 4}, progress=lambda *news: told.append(news)
        )
        assert (answer.text, answer.structured) == ("5.0", {"side": 5.0})
        assert calls == ["square", "square", "add", "square_root"]
        assert told == [(1, 3, "squares")]
        assert [(note.level, note.data) for note in client.logged] == [("info", "nearly done")]
        with pytest.raises(McpError, match="a and b are missing") as refusal:
            await client.call_tool("pythagorean", {})
        assert refusal.value.code == -32602
        assert await text(client, "square", x=3) == "9.0"


@every_era
@every_version
async def test_its_notifications_reach_the_client(version: str, era: Any, tmp_path: Path) -> None:
    server, _ = shop()
    async with client_behind(server, tmp_path, era, guest(version)) as client:
        told: list[Any] = []
        async with client.changes("note:one") as changes:
            answer = await client.call_tool("told", {}, progress=lambda *news: told.append(news))
            async with asyncio.timeout(60):
                assert (await anext(changes)).uri == "note:one"
        assert answer.text == "told, and not: a request cannot be sent; ask with session.elicit"
        assert told == [(1, 2, "half")]
        noted = [(note.level, note.data, note.logger) for note in client.logged]
        assert noted == [("warning", {"what": "careful"}, "guest")]


@every_era
@every_version
async def test_it_asks_only_if_that_is_granted(version: str, era: Any, tmp_path: Path) -> None:
    server, _ = shop()
    asked: list[Any] = []

    def person(question: Any) -> Any:
        asked.append(question)
        return {"sure": True, "age": 7, "colour": "g"}

    path = guest(version)
    async with client_behind(server, tmp_path, era, path, elicit_by=person) as client:
        assert await text(client, "asked") == "refused: elicit is not granted"
    assert asked == []
    async with client_behind(server, tmp_path, era, path, elicit_by=person, elicit=True) as client:
        action, content = json.loads(await text(client, "asked"))
    assert action == "ACCEPT"
    assert content == [
        ["sure", "ElicitResultContent_Boolean", True],
        ["age", "ElicitResultContent_Number", 7.0],
        ["colour", "ElicitResultContent_String", "g"],
    ]
    (question,) = asked
    assert question["message"] == "[guest] Really?"
    colours: dict[str, Any] = {
        "v20251125": {
            "oneOf": [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}],
        },
        "v20250618": {"enum": ["r", "g"], "enumNames": ["Red", "Green"]},
    }
    assert question["requestedSchema"] == {
        "type": "object",
        "properties": {
            "sure": {"type": "boolean", "title": "Sure?"},
            "age": {"type": "integer", "minimum": 0, "maximum": 99},
            "colour": {"type": "string", **colours[version]},
        },
        "required": ["sure"],
    }


@every_era
async def test_a_person_may_decline_and_a_client_may_be_unable(era: Any, tmp_path: Path) -> None:
    server, _ = shop()
    path = guest("v20251125")
    async with client_behind(
        server, tmp_path, era, path, elicit_by=lambda _: None, elicit=True
    ) as client:
        assert json.loads(await text(client, "asked")) == ["DECLINE", []]
    async with client_behind(server, tmp_path, era, path, elicit=True) as client:
        assert "elicitation" in await text(client, "asked")


@every_version
async def test_one_that_raises_fails_its_request_and_may_call_next_twice(
    version: str, tmp_path: Path
) -> None:
    server, calls = shop()
    async with client_behind(server, tmp_path, path=guest(version)) as client:
        with pytest.raises(McpError, match="this guest is broken"):
            await client.call_tool("raised", {})
        assert await text(client, "again", text="twice") == "twice"
    assert calls == ["twice", "twice"]
