"""Ten real servers as one, used by the official SDK's client over stdio and HTTP, in both eras."""

import asyncio
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import unquote

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.subscriptions import PromptsListChanged, ResourceUpdated

from portico.gateway.endpoints.metatool_definitions import NAMES
from tests.interop.person import Person, text_of
from tests.interop.sdk import Heard, code_of, raw
from tests.serve.fleet import Call, Fleet, Member
from tests.serve.ways import ERAS, TRANSPORTS, Way, execute, told
from tests.support.backoff import until
from tests.support.soak import each

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("fleet")]

WATCHED = "test://watched-resource"
META_TOOLS = [
    *NAMES,
    *("task_status", "cancel_task", "list_tasks"),  # one server has a tool that requires tasks
]
# It counts the thoughts of all its clients.
_COUNTED = re.compile(r"(thoughtHistoryLength\W+)\d+")


over_two_ways = pytest.mark.parametrize("way", each(TRANSPORTS, ERAS), indirect=True, ids="-".join)
"""For what is read; what is pushed and asked goes over all four."""


class Direct:
    """What a server says with nothing in between."""

    def __init__(self, definitions: dict[str, Any], results: dict[str, Any]) -> None:
        self.definitions = definitions
        self.results = results


@pytest.fixture(scope="session")
def direct(ten: Fleet) -> dict[str, Direct]:
    """By server, its tools and the results of its calls."""

    async def asked(member: Member) -> Direct:
        async with Client(member.directly()) as client:
            tools = (await client.list_tools()).tools
            definitions = {tool.name: dumped(tool) for tool in tools}
            calls = [(call, await client.call_tool(*call)) for call in member.calls]
            return Direct(definitions, {key(call): told(result) for call, result in calls})

    async def all_asked() -> dict[str, Direct]:
        return {name: await asked(member) for name, member in ten.members.items()}

    return asyncio.run(all_asked())


def key(call: Call) -> str:
    return f"{call[0]} {call[1]}"


def dumped(tool: types.Tool) -> dict[str, Any]:
    whole = tool.model_dump(by_alias=True, exclude_none=True)
    del whole["name"]
    return whole


def same(one: Any, other: Any) -> bool:
    first, second = (_COUNTED.sub(r"\1n", _plain_uris(repr(side))) for side in (one, other))
    return first == second


def _plain_uris(text: str) -> str:
    """The same with the URIs that several of these servers mention as each has them."""
    return re.sub(r"portico://[^/]+/([^'\"]+)", lambda uri: unquote(uri[1]), text)


@pytest.mark.soak
@over_two_ways
async def test_each_is_found_described_and_called_as_with_nothing_in_between(
    way: Way, ten: Fleet, direct: dict[str, Direct]
) -> None:
    async with way.connect() as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == META_TOOLS
        for name, member in ten.members.items():
            tool = member.calls[0][0]
            shown = f"{name}__{tool}"
            assert shown in await found(client, member.query)
            described = await client.call_tool("describe_tool", {"name": shown})
            (full,) = structured(described)["tools"]
            assert full["definition"] == direct[name].definitions[tool], name
            for call in member.calls:
                result = await execute(client, f"{name}__{call[0]}", **call[1])
                assert same(told(result), direct[name].results[key(call)]), (name, call)


async def found(client: Client, query: str) -> list[str]:
    result = await client.call_tool("search_tools", {"query": query, "limit": 10})
    return [tool["name"] for tool in structured(result)["results"][0]["tools"]]


def structured(result: types.CallToolResult) -> dict[str, Any]:
    assert not result.is_error, result
    content: dict[str, Any] = result.structured_content
    return content


@pytest.mark.soak
@over_two_ways
async def test_every_resource_is_listed_and_read_under_the_uri_it_is_listed_by(way: Way) -> None:
    async with way.connect() as client:
        listed = [str(one.uri) for one in (await client.list_resources()).resources]
        for uri in listed:
            (contents, *_) = (await client.read_resource(uri)).contents
            assert str(contents.uri) == uri
    assert len(set(listed)) == len(listed)
    # Three servers have it: the first as it is, the others under their own names.
    copies = [uri for uri in listed if "static-text" in uri]
    assert copies == [
        "test://static-text",
        "portico://modern/test%3A%2F%2Fstatic-text",
        "portico://portico/test%3A%2F%2Fstatic-text",
    ]


@pytest.mark.soak
@over_two_ways
async def test_templates_lead_to_their_servers_and_are_completed_there(way: Way) -> None:
    template = "test://template/{id}/data"
    async with way.connect() as client:
        listed = (await client.list_resource_templates()).resource_templates
        templates = [one.uri_template for one in listed]
        for shown in (template, f"portico://modern/{template}"):
            assert shown in templates
            uri = shown.replace("{id}", "7")
            (contents,) = (await client.read_resource(uri)).contents
            assert "Data for ID: 7" in str(contents)
            reference = types.ResourceTemplateReference(type="ref/resource", uri=shown)
            completed = await client.complete(reference, {"name": "id", "value": "par"})
            assert "paris" in completed.completion.values
        missing = client.read_resource("test://nobody/has/this")
        assert await code_of(missing) == (types.INVALID_PARAMS if way.modern else -32002)


@pytest.mark.parametrize(
    ("server", "uri"),
    [("legacy", WATCHED), ("modern", "portico://modern/test%3A%2F%2Fwatched-resource")],
)
async def test_a_subscriber_is_told_under_the_uri_it_knows(way: Way, server: str, uri: str) -> None:
    heard = Heard()
    async with way.connect(message_handler=heard) as client:
        trigger = f"{server}__test_trigger_resource_update"
        if way.modern:
            async with client.listen(resource_subscriptions=[uri]) as events:
                await execute(client, trigger)
                assert await anext(events) == ResourceUpdated(uri=uri)
        else:
            await raw(client.session, "resources/subscribe", uri=uri)
            await execute(client, trigger)
            told_of = await heard.next(types.ResourceUpdatedNotification)
            assert str(told_of.params.uri) == uri


@pytest.mark.soak
@over_two_ways
async def test_prompts_are_listed_filled_in_and_completed_under_their_servers_names(
    way: Way,
) -> None:
    async with way.connect() as client:
        names = await prompt_names(client)
        assert {"everything__args-prompt", "modern__test_prompt_with_arguments"} <= names
        city = await client.get_prompt("everything__args-prompt", {"city": "Oslo"})
        assert "Oslo" in str(city.messages)
        words = {"arg1": "this", "arg2": "that"}
        filled = await client.get_prompt("modern__test_prompt_with_arguments", words)
        assert "arg1='this', arg2='that'" in str(filled.messages)
        picture = await client.get_prompt("portico__test_prompt_with_image")
        assert picture.messages[0].content.type == "image"
        of = types.PromptReference(type="ref/prompt", name="everything__completable-prompt")
        completed = await client.complete(of, {"name": "department", "value": "E"})
        assert completed.completion.values == ["Engineering"]
        assert await code_of(client.get_prompt("args-prompt")) == types.INVALID_PARAMS


async def test_a_list_that_changes_at_a_server_is_announced_and_read_anew(way: Way) -> None:
    heard = Heard()
    async with way.connect(message_handler=heard) as client, AsyncExitStack() as stack:
        # What a server says on its own stream before that is open, in the very first call, is lost.
        await execute(client, "legacy__test_simple_text")
        before = await prompt_names(client)
        if way.modern:
            events = await stack.enter_async_context(client.listen(prompts_list_changed=True))
        # It comes, and goes again: the server is left as other gateways know it.
        for difference in ({"legacy__passing"}, set()):
            await execute(client, "legacy__toggle_prompt")
            if way.modern:
                assert await anext(events) == PromptsListChanged()
            else:
                await heard.next(types.PromptListChangedNotification)
            assert before ^ await prompt_names(client) == difference


async def prompt_names(client: Client) -> set[str]:
    return {prompt.name for prompt in (await client.list_prompts()).prompts}


@pytest.mark.parametrize("server", ["legacy", "modern", "portico"])
async def test_what_a_tool_asks_is_answered_by_the_client_that_called_it(
    way: Way, server: str
) -> None:
    person = Person()
    async with way.connect(**person.callbacks) as client:
        asked = await execute(client, f"{server}__test_input_required_result_elicitation")
        assert "Hello, Ada!" in str(asked.content)
        sampled = await execute(client, f"{server}__test_sampling", prompt="6 * 7")
        assert "42" in str(sampled.content)
    assert [type(question) for question in person.asked] == [
        types.ElicitRequestFormParams,
        types.CreateMessageRequestParams,
    ]


Steps = list[tuple[float, float | None]]


@pytest.fixture
def steps() -> tuple[Steps, Callable[..., Any]]:
    """What was told of progress, and what to be told with."""
    moved: Steps = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        moved.append((progress, total))

    return moved, on_progress


async def test_progress_reaches_who_called_through_execute_tool(
    way: Way, steps: tuple[Steps, Callable[..., Any]]
) -> None:
    moved, on_progress = steps
    async with way.connect() as client:
        for server in ("legacy", "modern", "portico"):
            call = {"name": f"{server}__test_tool_with_progress"}
            await client.call_tool("execute_tool", call, progress_callback=on_progress)
            assert moved == [(0, 100), (50, 100), (100, 100)]
            moved.clear()


async def test_a_call_that_its_client_gives_up_ends_at_its_server(
    way: Way, steps: tuple[Steps, Callable[..., Any]]
) -> None:
    moved, on_progress = steps
    long = {"duration": 100, "steps": 1000}
    call = {"name": "everything__trigger-long-running-operation", "arguments": long}
    async with way.connect() as client:
        running = asyncio.create_task(
            client.call_tool("execute_tool", call, progress_callback=on_progress)
        )
        await until(lambda: bool(moved))
        assert await under_way(client, "everything") == 1
        running.cancel()

        async def over() -> bool:
            return await under_way(client, "everything") == 0

        await until(over)
        assert (await execute(client, "everything__get-sum", a=1, b=1)).content


async def under_way(client: Client, server: str) -> int:
    status = structured(await client.call_tool("gateway_status", {"detail": "full"}))
    (one,) = [one for one in status["servers"] if one["server"] == server]
    return sum(connection["busy"] for connection in one["connections"])


async def test_log_messages_come_from_the_level_that_the_client_wants(way: Way) -> None:
    heard: list[str] = []

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params.level)

    async with way.connect(logging_callback=on_log, log_level="warning") as client:
        if not way.modern:
            await raw(client.session, "logging/setLevel", level="warning")
        await execute(client, "portico__test_logging_tool")
        assert heard == ["warning", "error"]


@pytest.mark.soak
@over_two_ways
async def test_the_gateway_says_how_each_server_is(way: Way, ten: Fleet) -> None:
    async with way.connect() as client:
        status = structured(await client.call_tool("gateway_status", {"detail": "full"}))
        said = await text_of(client, "gateway_status")
    assert [one["server"] for one in status["servers"]] == list(ten.members)
    assert all(one["tools"] and not one["error"] for one in status["servers"])
    assert all(f"{name}: " in said for name in ten.members)
