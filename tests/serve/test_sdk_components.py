"""Servers, components and middleware of one config, as the official SDK's client sees them."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.interop.person import Person, text_of
from tests.interop.sdk import Heard, code_of, only_one
from tests.serve.components import CALC, Workshop
from tests.serve.gateway import Gateway, command, serve_command
from tests.support import node
from tests.support.running import FEATURES, WAIT_S

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("serve-sdk-components")]

LINK = '''
from portico import Offer


class Middle:
    """Hides a tool, adds one that calls another, and passes everything else on."""

    def __call__(self, next):
        def handle(request, context):
            if request.method == "tools/call" and request.name == "double":
                number = request.decode()["arguments"]["number"]
                request = request.calling("calc__add", {"a": number, "b": number})
            return next(request, context)

        return handle

    def view(self, offer: Offer) -> Offer:
        schema = {"type": "object", "properties": {"number": {"type": "integer"}}}
        double = {"name": "double", "description": "Double it.", "inputSchema": schema}
        return offer.keep(tools=lambda name: name != "everything__get-env").adding(tools=[double])


link = Middle()
'''
Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture(scope="module", params=[False, True], ids=["own process", "in process"])
def workshop(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    made = Workshop(tmp_path_factory.mktemp("sdk"))
    made.file("calc.py", CALC)
    made.file("middle.py", LINK)
    made.write(
        {
            "features": {"path": str(FEATURES), "in_process": request.param},
            "calc": {"path": "calc.py"},
        },
        {"everything": command([str(node.node()), str(node.everything_server()), "stdio"])},
        links=["./middle.py"],
    )
    return made


@pytest.fixture(scope="module")
def gateway(workshop: Workshop) -> Iterator[Gateway]:
    with Gateway(workshop.home, workshop.config) as running:
        yield running


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["stdio", "http"])
def connect(
    request: pytest.FixtureRequest, workshop: Workshop, gateway: Gateway, era: str, tmp_path: Path
) -> Connect:
    def transport() -> Any:
        if request.param == "http":
            return streamable_http_client(f"http://127.0.0.1:{gateway.port}/mcp")
        first, *rest = serve_command(tmp_path, workshop.config)
        return stdio_client(StdioServerParameters(command=first, args=rest))

    @asynccontextmanager
    async def connected(**options: Any) -> AsyncIterator[Client]:
        mode = "auto" if era == "modern" else "legacy"
        try:
            with anyio.fail_after(WAIT_S):
                async with Client(transport(), mode=mode, **options) as client:
                    await client.call_tool("refresh_tools")
                    yield client
        except BaseExceptionGroup as group:
            raise only_one(group) from None

    return connected


async def test_tools_of_all_kinds_are_listed_and_called(connect: Connect) -> None:
    async with connect() as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {"features__weather", "calc__add", "everything__echo", "double"} <= names
        assert "everything__get-env" not in names
        assert await text_of(client, "calc__add", {"a": 2, "b": 3}) == "5"
        assert await text_of(client, "double", {"number": 21}) == "42"
        assert await text_of(client, "everything__echo", {"message": "hi"}) == "Echo: hi"
        weather = await client.call_tool("features__weather", {"city": "Oslo"})
        assert weather.structured_content == {"city": "Oslo", "degrees": 21.5}
        assert await code_of(client.call_tool("everything__get-env")) == types.INVALID_PARAMS


async def test_resources_prompts_and_completions_pass(connect: Connect) -> None:
    async with connect() as client:
        (note,) = (await client.read_resource("note://one")).contents
        assert isinstance(note, types.TextResourceContents)
        templates = (await client.list_resource_templates()).resource_templates
        assert "day://{month}/{day}" in {one.uri_template for one in templates}
        prompts = {one.name for one in (await client.list_prompts()).prompts}
        assert {"features__greet", "everything__simple-prompt"} <= prompts
        greeting = await client.get_prompt("features__greet", {"name": "Ada"})
        assert "Ada" in str(greeting.messages)
        reference = types.PromptReference(type="ref/prompt", name="features__greet")
        completed = await client.complete(reference, {"name": "tone", "value": ""})
        assert completed.completion.values


async def test_progress_and_questions_pass(connect: Connect) -> None:
    steps: list[float] = []
    person = Person()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    async with connect(**person.callbacks) as client:
        await client.call_tool("features__steps", progress_callback=on_progress)
        assert steps == [1, 2, 3]
        assert "Ada" in await text_of(client, "features__ask_name")
        assert "42" in await text_of(client, "features__ask_model", {"prompt": "6 * 7?"})
    assert len(person.asked) == 2


async def test_a_changed_list_is_announced(connect: Connect, era: str) -> None:
    heard = Heard()
    # One list for each era: both have the same gateway over HTTP.
    kind = "prompts" if era == "modern" else "tools"
    async with connect(message_handler=heard) as client:

        async def is_grown() -> bool:
            if kind == "prompts":
                return "features__grown" in {
                    one.name for one in (await client.list_prompts()).prompts
                }
            return "features__grown" in {one.name for one in (await client.list_tools()).tools}

        async def grow(announced: Callable[[], Awaitable[Any]]) -> None:
            assert not await is_grown()
            await client.call_tool("features__grow", {"kind": kind})
            await announced()
            while not await is_grown():  # that was of the start
                await announced()

        if era == "modern":
            async with client.listen(prompts_list_changed=True) as events:
                await grow(events.__anext__)
        else:
            await grow(lambda: heard.next(types.ToolListChangedNotification))
        assert await is_grown()
