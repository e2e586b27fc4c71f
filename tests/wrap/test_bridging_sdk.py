"""Clients of the official SDK use a server of the other era through `wrap`, and notice nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import mcp_types as types
import pytest
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged

from tests.interop.person import Person, text_of
from tests.interop.sdk import Heard, code_of, raw
from tests.rigs.running import everything
from tests.support.soak import IS_SOAK
from tests.wrap.bridge import ALL_WAYS, FEW_WAYS, OTHER, Bridge, Doorways, over_stdio

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("wrap-bridging")]

WATCHED = "test://watched-resource"
everywhere = pytest.mark.parametrize("bridge", ALL_WAYS, indirect=True, ids="-".join)


def over_stdio_from(era: str) -> pytest.MarkDecorator:
    """A few ways, of which a client of this era goes over stdio; all ways in `make soak`."""
    ways = ALL_WAYS if IS_SOAK else [*FEW_WAYS, (era, "stdio", "stdio")]
    return pytest.mark.parametrize("bridge", ways, indirect=True, ids="-".join)


class Whole(types.Result, extra="allow"):
    """A result with all that came."""


@pytest.fixture(scope="module")
def doorways() -> Iterator[Doorways]:
    with Doorways.open() as doorways:
        yield doorways


@pytest.fixture(params=FEW_WAYS, ids="-".join)
def bridge(request: pytest.FixtureRequest, doorways: Doorways, tmp_path: Path) -> Bridge:
    """A client of each era, over pipes and HTTP, before a server of the other."""
    era, door, kind = request.param
    if door == "http":
        return Bridge(era, doorways.url(kind, OTHER[era]))
    return over_stdio(era, tmp_path, ["--", *everything("--stdio", "--era", OTHER[era])])


@everywhere
async def test_every_kind_of_question_reaches_the_person(bridge: Bridge) -> None:
    person = Person()
    async with bridge.connect(**person.callbacks) as client:
        form = await text_of(client, "test_elicitation", {"message": "Who?"})
        assert form == 'User response: action=accept, content={"name": "Ada"}'
        assert person.asked[-1].message == "Who?"
        assert await text_of(client, "test_sampling", {"prompt": "6 * 7"}) == "LLM response: 42"
        roots = await text_of(client, "test_input_required_result_list_roots")
        assert roots == "Client exposed 1 root(s)."
        assert person.asked[-1] == "roots"


async def test_several_questions_and_several_rounds_make_one_call(bridge: Bridge) -> None:
    person = Person()
    async with bridge.connect(**person.callbacks) as client:
        three = await text_of(client, "test_input_required_result_multiple_inputs")
        assert three == "All inputs received."
        assert len(person.asked) == 3
        twice = await text_of(client, "test_input_required_result_multi_round")
        assert twice == "Ada likes stranger."
        prompt = await client.get_prompt("test_input_required_result_prompt")
        assert "Use the following context: stranger" in str(prompt.messages)


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_may_say_no(bridge: Bridge, action: str) -> None:
    person = Person(action)
    async with bridge.connect(elicitation_callback=person.elicited) as client:
        answer = await text_of(client, "test_elicitation", {"message": "Who?"})
    assert answer == f"User response: action={action}, content=null"


@over_stdio_from("modern")
async def test_progress_arrives_under_the_clients_own_token(bridge: Bridge) -> None:
    steps: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    async with bridge.connect() as client:
        await client.call_tool("test_tool_with_progress", {}, progress_callback=on_progress)
    assert steps == [(n, 100, f"Completed step {n} of 100") for n in (0, 50, 100)]


@over_stdio_from("legacy")
async def test_log_messages_come_from_the_level_the_client_wants(bridge: Bridge) -> None:
    heard: list[str] = []

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        heard.append(params.level)

    async with bridge.connect(logging_callback=on_log, log_level="warning") as client:
        if not bridge.modern:
            await raw(client.session, "logging/setLevel", level="warning")
        await client.call_tool("test_logging_tool", {})
    assert heard == ["warning", "error"]


@over_stdio_from("modern")
async def test_a_subscribed_resource_tells_of_its_updates(bridge: Bridge) -> None:
    heard = Heard()
    async with bridge.connect(message_handler=heard) as client:
        if bridge.modern:
            async with client.listen(resource_subscriptions=[WATCHED]) as events:
                await client.call_tool("test_trigger_resource_update", {})
                assert await anext(events) == ResourceUpdated(uri=WATCHED)
        else:
            await raw(client.session, "resources/subscribe", uri=WATCHED)
            await client.call_tool("test_trigger_resource_update", {})
            updated = await heard.next(types.ResourceUpdatedNotification)
            assert updated.params.uri == WATCHED
            await raw(client.session, "resources/unsubscribe", uri=WATCHED)


async def test_a_changed_list_is_announced_and_then_read_anew(bridge: Bridge) -> None:
    heard = Heard()

    async def has_it() -> bool:
        return "passing" in [tool.name for tool in (await client.list_tools()).tools]

    async with bridge.connect(message_handler=heard) as client:
        before = await has_it()
        if bridge.modern:
            async with client.listen(tools_list_changed=True) as events:
                await client.call_tool("toggle_tool", {})
                assert await anext(events) == ToolsListChanged()
        else:
            await client.call_tool("toggle_tool", {})
            await heard.next(types.ToolListChangedNotification)
        assert await has_it() != before


async def test_completions_come_from_the_server(bridge: Bridge) -> None:
    prompt = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
    async with bridge.connect() as client:
        found = await client.complete(prompt, {"name": "arg1", "value": "par"})
    assert found.completion.values == ["paris", "park", "party"]


async def test_only_modern_clients_are_told_how_long_to_keep_something(bridge: Bridge) -> None:
    asked: dict[str, dict[str, str]] = {
        "tools/list": {},
        "resources/read": {"uri": "test://static-text"},
        "tools/call": {"name": "test_simple_text"},
    }
    async with bridge.connect() as client:
        for method, params in asked.items():
            request = types.Request[dict[str, str], str](method=method, params=params)
            whole = (await client.session.send_request(request, Whole)).model_dump(by_alias=True)
            modern = bridge.modern
            assert ("resultType" in whole) == modern
            assert ("io.modelcontextprotocol/serverInfo" in json.dumps(whole)) == modern
            kept = modern and method != "tools/call"
            assert ("ttlMs" in whole, "cacheScope" in whole) == (kept, kept)


async def test_errors_have_the_codes_of_the_clients_era(bridge: Bridge) -> None:
    async with bridge.connect() as client:
        missing = await code_of(client.read_resource("test://nobody"))
        assert missing == (types.INVALID_PARAMS if bridge.modern else -32002)
        assert await code_of(raw(client.session, "no/such/method")) == types.METHOD_NOT_FOUND
        if bridge.modern:
            gone = raw(client.session, "resources/subscribe", uri=WATCHED)
            assert await code_of(gone) == types.METHOD_NOT_FOUND


async def test_a_client_that_cannot_answer_is_not_asked(bridge: Bridge) -> None:
    async with bridge.connect() as client:
        if bridge.modern:
            assert await code_of(client.call_tool("test_missing_capability", {})) == -32021
            assert await code_of(client.call_tool("test_sampling", {"prompt": "?"})) == -32021
        else:
            assert await code_of(client.call_tool("test_sampling", {"prompt": "?"}))
        assert await text_of(client, "test_simple_text", {}) != ""
