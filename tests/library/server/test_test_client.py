"""`server.test_client()`: the real protocol in memory, in both eras, with typed results."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

from portico import (
    Context,
    Elicited,
    Image,
    McpError,
    MemoryClient,
    Message,
    Only,
    Server,
    StartError,
    Text,
    ToolResult,
)
from portico.core.model.errors import TargetError
from portico.edge.client.memory_client import Changed
from tests.support.backoff import until

Era = Literal["modern", "legacy"]
ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def library() -> Server:
    """A server with one of everything."""
    server = Server("library", "1.0", instructions="Be quiet.")

    @server.tool(title="Add")
    async def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def fail() -> str:
        """Fail."""
        raise KeyError("city")

    @server.tool
    async def picture() -> ToolResult:
        """Return several blocks."""
        content = [Text(text="one"), Image(data=b"png", mime_type="image/png"), Text(text="two")]
        return ToolResult(content=content, meta={"station": 7})

    @server.tool
    async def steps(context: Context) -> str:
        """Report progress, and log."""
        await context.progress(1, 2, "half")
        await context.progress(2)
        await context.debug("small")
        await context.warning({"skipped": 1}, logger="copier")
        return "done"

    @server.tool
    async def greet(context: Context) -> str:
        """Ask for a name."""
        answer = await context.elicit("Who?", NAME)
        return answer.content["name"] if answer.accepted else answer.action

    @server.tool
    async def visit(context: Context) -> str:
        """Send the person to a page."""
        return (await context.elicit_url("Log in", "https://example.com")).action

    @server.tool
    async def sample(context: Context) -> str:
        """Ask the client's model."""
        return str((await context.sample("Say hello"))["content"]["text"])

    @server.tool
    async def roots(context: Context) -> list[str]:
        """List the client's roots."""
        return [root["uri"] for root in await context.roots()]

    @server.tool
    async def whoami(context: Context) -> str:
        """Show the caller."""
        return f"{context.principal} of {context.data}"

    @server.resource("books://all", mime_type="application/json")
    def books() -> list[str]:
        """All books."""
        return ["Emma"]

    @server.resource("covers://{book}", mime_type="image/png")
    def cover(book: str) -> bytes:
        """The cover of a book."""
        return book.encode()

    @server.prompt
    def review(book: str, tone: str = "kind") -> list[Message]:
        """Review a book."""
        return [Message(f"Review {book}, be {tone}."), Message("It is good.", "assistant")]

    @server.completion("review", "book")
    def complete_book(value: str) -> list[str]:
        return [book for book in ("Emma", "Ulysses") if book.startswith(value)]

    @server.completion("covers://{book}", "book")
    def complete_cover(value: str, known: dict[str, str]) -> list[str]:
        return [f"{value} {known}"]

    return server


@ERAS
async def test_it_lists_everything_as_types(era: Era) -> None:
    async with library().test_client(era=era) as client:
        assert isinstance(client, MemoryClient)
        assert client.version.modern is (era == "modern")
        assert client.server_info["name"] == "library"
        assert client.instructions == "Be quiet."
        assert "tools" in client.capabilities
        add = (await client.list_tools())[0]
        assert (add.name, add.title, add.description) == ("add", "Add", "Add two numbers.")
        assert add.input_schema["required"] == ["a"]
        assert add.output_schema is not None
        (resource,) = await client.list_resources()
        assert (resource.uri, resource.mime_type) == ("books://all", "application/json")
        (template,) = await client.list_templates()
        assert template.uri_template == "covers://{book}"
        (prompt,) = await client.list_prompts()
        required = [(argument.name, argument.required) for argument in prompt.arguments]
        assert required == [("book", True), ("tone", False)]


@ERAS
async def test_a_tool_returns_text_structure_and_failures(era: Era) -> None:
    async with library().test_client(era=era) as client:
        result = await client.call_tool("add", {"a": 2})
        assert (result.text, result.structured, result.is_error) == ("3", {"result": 3}, False)
        picture = await client.call_tool("picture")
        assert picture.text == "one\ntwo"
        assert [block.block()["type"] for block in picture.content] == ["text", "image", "text"]
        assert picture.meta == {"station": 7}
        failed = await client.call_tool("fail")
        assert failed.is_error
        assert failed.text == "fail failed: KeyError: 'city'"
        wrong = await client.call_tool("add", {"a": "two"})
        assert wrong.is_error
        assert "expected integer" in wrong.text


@ERAS
async def test_resources_prompts_and_completions(era: Era) -> None:
    async with library().test_client(era=era) as client:
        (book,) = await client.read_resource("books://all")
        assert (book.body, book.uri, book.mime_type) == (
            '["Emma"]',
            "books://all",
            "application/json",
        )
        (cover,) = await client.read_resource("covers://Emma")
        assert cover.body == b"Emma"
        prompt = await client.get_prompt("review", {"book": "Emma"})
        assert prompt.description == "Review a book."
        assert prompt.messages[0] == Message("Review Emma, be kind.")
        assert prompt.text == "Review Emma, be kind.\nIt is good."
        found = await client.complete("review", "book", "E")
        assert (found.values, found.total, found.has_more) == (["Emma"], 1, False)
        known = await client.complete("covers://{book}", "book", "E", {"size": "2"})
        assert known.values == ["E {'size': '2'}"]


@ERAS
async def test_errors_of_the_protocol_are_raised(era: Era) -> None:
    async with library().test_client(era=era) as client:
        with pytest.raises(McpError, match="unknown tool: nothing") as caught:
            await client.call_tool("nothing")
        assert caught.value.code == -32602
        with pytest.raises(McpError, match="unknown resource"):
            await client.read_resource("books://none")
        with pytest.raises(McpError, match="missing argument book"):
            await client.get_prompt("review")
        with pytest.raises(McpError, match="nonsense") as caught:
            await client.request("nonsense")
        assert caught.value.code == -32601


@ERAS
async def test_progress_and_log_messages_arrive(era: Era) -> None:
    seen: list[tuple[float, float | None, str | None]] = []
    async with library().test_client(era=era) as client:
        result = await client.call_tool("steps", progress=lambda *told: seen.append(told))
        assert result.text == "done"
        assert seen == [(1, 2, "half"), (2, None, None)]
        assert [(one.level, one.data, one.logger) for one in client.logged] == [
            ("debug", "small", ""),
            ("warning", {"skipped": 1}, "copier"),
        ]


@ERAS
async def test_a_log_level_hides_the_messages_below(era: Era) -> None:
    async with library().test_client(era=era, log_level="warning") as client:
        await client.call_tool("steps")
        assert [one.level for one in client.logged] == ["warning"]


@ERAS
@pytest.mark.parametrize(
    ("answer", "text"),
    [({"name": "Ada"}, "Ada"), (None, "decline"), (Elicited("cancel", {}), "cancel")],
)
async def test_a_form_is_filled_in_declined_or_cancelled(era: Era, answer: Any, text: str) -> None:
    asked: list[str] = []

    def person(params: dict[str, Any]) -> Any:
        asked.append(params["message"])
        return answer

    async with library().test_client(era=era, elicit=person) as client:
        assert (await client.call_tool("greet")).text == text
    assert asked == ["Who?"]


@ERAS
async def test_answers_may_be_coroutines_and_cover_all_questions(era: Era) -> None:
    async def person(params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        assert params["url"] == "https://example.com"
        return {}

    async def model(params: dict[str, Any]) -> str:
        await asyncio.sleep(0)
        return f"Hello to {params['messages'][0]['content']['text']!r}"

    server = library()
    async with server.test_client(
        era=era, elicit=person, sample=model, roots=["file:///a", {"uri": "file:///b", "name": "b"}]
    ) as client:
        assert (await client.call_tool("visit")).text == "accept"
        assert (await client.call_tool("sample")).text == "Hello to 'Say hello'"
        assert (await client.call_tool("roots")).structured == {
            "result": ["file:///a", "file:///b"]
        }


@ERAS
async def test_a_whole_completion_may_be_returned(era: Era) -> None:
    whole = {"role": "assistant", "content": {"type": "text", "text": "Hi"}, "model": "mine"}
    async with library().test_client(era=era, sample=lambda params: whole) as client:
        assert (await client.call_tool("sample")).text == "Hi"


async def test_a_question_without_an_answer_is_a_missing_capability() -> None:
    async with library().test_client() as client:
        with pytest.raises(McpError, match="requires the elicitation capability"):
            await client.call_tool("greet")


@ERAS
async def test_changes_of_lists_and_resources_arrive(era: Era) -> None:
    server = library()
    async with server.test_client(era=era) as client, client.changes("books://all") as changes:
        server.add_tool({"name": "new", "inputSchema": {"type": "object"}}, lambda arguments: "")
        assert await anext(changes) == Changed("tools")
        server.resource_updated("books://other")
        server.resource_updated("books://all")
        assert await anext(changes) == Changed("resources", "books://all")
        assert "new" in [tool.name for tool in await client.list_tools()]


@ERAS
async def test_two_streams_of_changes_get_their_own(era: Era) -> None:
    server = library()
    async with server.test_client(era=era) as client:
        async with client.changes() as first, client.changes() as second:
            server.remove_tool("fail")
            assert await anext(first) == await anext(second) == Changed("tools")
        async with client.changes() as third:
            server.remove_tool("add")
            assert [change async for change in _first(third)] == [Changed("tools")]


async def _first(changes: Any) -> AsyncGenerator[Changed, None]:
    async for change in changes:
        yield change
        return


async def test_an_unknown_resource_cannot_be_followed_by_a_legacy_client() -> None:
    async with library().test_client(era="legacy") as client:
        with pytest.raises(McpError, match="unknown resource"):
            async with client.changes("books://none"):
                pytest.fail("there is nothing to follow")


@ERAS
async def test_links_principal_and_data_apply(era: Era) -> None:
    async with library().test_client(
        era=era, links=[Only(tools=["whoami"])], principal="ana", data="acme"
    ) as client:
        assert [tool.name for tool in await client.list_tools()] == ["whoami"]
        assert (await client.call_tool("whoami")).text == "ana of acme"
        with pytest.raises(McpError):
            await client.call_tool("add", {"a": 1})


@ERAS
async def test_the_lifespan_runs_around_it_and_outlives_its_calls(era: Era) -> None:
    events: list[str] = []
    entered = asyncio.Event()

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncGenerator[str, None]:
        events.append("start")
        yield "value"
        events.append("close")

    server = Server("a", lifespan=lifespan)

    @server.tool
    async def stay(context: Context) -> None:
        """Stay until the client leaves."""
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append(f"left with {context.lifespan}")

    async with server.test_client(era=era) as client:
        call = asyncio.create_task(client.call_tool("stay"))
        await entered.wait()
    assert events == ["start", "left with value", "close"]
    with pytest.raises(TargetError, match="a was closed"):
        await call


async def test_a_failed_start_is_raised() -> None:
    server = Server("a", lifespan=lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(StartError, match="cannot start a: ZeroDivisionError"):
        async with server.test_client():
            pytest.fail("it must not start")


async def test_a_call_that_takes_too_long_is_cancelled() -> None:
    server, cancelled = Server("a"), asyncio.Event()

    @server.tool
    async def wait() -> None:
        """Never return."""
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with server.test_client() as client:
        with pytest.raises(TargetError, match="did not answer tools/call within"):
            await client.call_tool("wait", timeout_s=0.01)
        await until(cancelled.is_set)
        assert cancelled.is_set()


async def test_an_exception_in_the_test_is_raised_as_it_is() -> None:
    async def tested() -> None:
        async with library().test_client() as client:
            assert await client.list_tools()
            raise LookupError("a bug in the test")

    with pytest.raises(LookupError, match="a bug in the test"):
        await tested()


async def test_another_era_is_refused() -> None:
    with pytest.raises(ValueError, match="era must be modern or legacy, not 'new'"):
        await library().test_client(era="new").__aenter__()  # type: ignore[arg-type]
