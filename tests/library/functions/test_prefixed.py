"""`include(server, prefix=...)`: another server's tools and prompts, with its name before them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from portico import Context, McpError, RegistrationError, Server, ToolError
from tests.support.running import Piped, portico_run

FILE = '''
from portico import Server

other = Server("other")


@other.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@other.prompt
def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello {name}"


@other.resource("notes://all")
def notes() -> str:
    """All notes."""
    return "none"


server = Server("whole")
server.include(other, prefix="calc")


@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers, and one."""
    return a + b + 1
'''


def calculator() -> Server:
    other = Server("calculator")

    @other.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @other.tool
    def fail() -> str:
        """Always fail."""
        raise ToolError("no way")

    @other.prompt
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"hello {name}"

    @other.completion("greet", "name")
    def names(value: str) -> list[str]:
        return [one for one in ("Ada", "Alan") if one.startswith(value)]

    return other


def test_a_real_process_serves_both_names(tmp_path: Path) -> None:
    path = tmp_path / "whole.py"
    path.write_text(FILE)
    with Piped(portico_run(path.with_name("whole.py:server"))) as process:
        process.initialize()
        tools = process.ask("tools/list", {})["result"]["tools"]
        assert sorted(tool["name"] for tool in tools) == ["add", "calc__add"]

        def called(name: str) -> Any:
            arguments = {"a": 1, "b": 2}
            answer = process.ask("tools/call", {"name": name, "arguments": arguments})
            return answer["result"]["content"][0]["text"]

        assert (called("calc__add"), called("add")) == ("3", "4")
        given = {"name": "calc__greet", "arguments": {"name": "Ada"}}
        prompt = process.ask("prompts/get", given)["result"]
        assert prompt["messages"][0]["content"]["text"] == "hello Ada"
        read = process.ask("resources/read", {"uri": "notes://all"})["result"]
        assert read["contents"][0]["text"] == "none"


async def test_only_the_names_with_the_prefix_exist() -> None:
    whole = Server("whole")
    whole.include(calculator(), prefix="calc")
    async with whole.test_client() as client:
        assert (await client.call_tool("calc__add", {"a": 1, "b": 2})).structured == {"result": 3}
        for name in ("add", "calc__", "calc__nothing", "__add"):
            with pytest.raises(McpError, match="unknown tool"):
                await client.call_tool(name, {"a": 1, "b": 2})


async def test_completions_find_the_prompt_by_its_name_here() -> None:
    whole = Server("whole")
    whole.include(calculator(), prefix="calc")
    async with whole.test_client() as client:
        for name, found in (("calc__greet", ["Ada"]), ("greet", [])):
            ref = {"type": "ref/prompt", "name": name}
            params = {"ref": ref, "argument": {"name": "name", "value": "Ad"}}
            try:
                answer = await client.request("completion/complete", params)
            except McpError:
                answer = {"completion": {"values": []}}
            assert answer["completion"]["values"] == found


async def test_two_servers_of_the_same_names_fit_beside_each_other() -> None:
    whole = Server.compose("whole")
    for prefix in ("a", "b"):
        whole.include(calculator(), prefix=prefix)
    async with whole.test_client() as client:
        names = [tool.name for tool in await client.list_tools()]
        assert names == ["a__add", "a__fail", "b__add", "b__fail"]


async def test_a_prefix_within_a_prefix() -> None:
    middle, whole = Server("middle"), Server("whole")
    middle.include(calculator(), prefix="calc")
    whole.include(middle, prefix="m")
    async with whole.test_client() as client:
        result = await client.call_tool("m__calc__add", {"a": 1, "b": 2})
        assert result.structured == {"result": 3}


async def test_the_lifespan_of_an_included_server_runs() -> None:
    entered = asyncio.Event()

    @asynccontextmanager
    async def lifespan(_: Server) -> AsyncGenerator[str, None]:
        entered.set()
        yield "open"

    other = Server("other", lifespan=lifespan)

    @other.tool
    def state(context: Context) -> str:
        """The state."""
        return str(context.lifespan)

    whole = Server("whole")
    whole.include(other, prefix="o")
    async with whole.test_client() as client:
        assert entered.is_set()
        assert (await client.call_tool("o__state", {})).text == "open"


async def test_a_tool_that_is_added_later_has_the_prefix() -> None:
    other, whole = Server("other"), Server("whole")

    @other.tool
    def early() -> str:
        """Come early."""
        return ""

    whole.include(other, prefix="o")
    async with whole.test_client() as client:
        assert [tool.name for tool in await client.list_tools()] == ["o__early"]

        @other.tool
        def late() -> str:
            """Come late."""
            return "here"

        assert [tool.name for tool in await client.list_tools()] == ["o__early", "o__late"]
        assert (await client.call_tool("o__late", {})).text == "here"


@pytest.mark.parametrize("prefix", ["a b", "a.b", "ü", "a/b", "\n"])
def test_a_prefix_that_cannot_begin_a_name_is_refused(prefix: str) -> None:
    whole = Server("whole")
    with pytest.raises(RegistrationError, match="give letters, digits, - and _"):
        whole.include(calculator(), prefix=prefix)


def test_a_name_that_clashes_with_the_prefix_is_refused() -> None:
    whole = Server("whole")

    @whole.tool
    def calc__add() -> str:
        """Be in the way."""
        return ""

    with pytest.raises(RegistrationError, match="calc__add"):
        whole.include(calculator(), prefix="calc")
