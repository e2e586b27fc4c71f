"""The official SDK's client uses everything a server offers, the same over every transport."""

from typing import Any

import mcp_types as types
import pytest

from tests.interop.sdk import WAYS, Way, all_pages, code_of, raw

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("python-sdk")]


@pytest.mark.parametrize("way", WAYS, indirect=True, ids="-".join)
async def test_the_two_agree_on_a_version_and_know_each_other(way: Way) -> None:
    async with way.connect() as client:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("features", "1.2.3")
        assert client.instructions == "Use everything once."
        capabilities = client.server_capabilities
        assert capabilities.tools is not None
        assert capabilities.prompts is not None
        assert capabilities.resources is not None
        assert capabilities.resources.subscribe is True
        # The capability came with 2025-03-26, the method was there before.
        assert (capabilities.completions is None) == (way.version == "2024-11-05")
        known = await client.call_tool("whoami")
        if way.version >= "2025-06-18":
            assert known.structured_content["client"]["name"] == "mcp"


async def test_every_page_of_every_list_comes_once_and_in_order(way: Way) -> None:
    async with way.connect() as client:
        tools = await all_pages(client.list_tools, "tools")
        resources = await all_pages(client.list_resources, "resources")
        templates = await all_pages(client.list_resource_templates, "resource_templates")
        prompts = await all_pages(client.list_prompts, "prompts")
    assert all(len(page) == 2 for page in tools[:-1])
    assert [tool.name for page in tools for tool in page][:6] == [
        *("text", "picture", "sound", "embedded", "pointer", "several")
    ]
    assert [[r.uri for r in page] for page in resources] == [
        ["note://one", "note://two"],
        ["note://three"],
    ]
    assert [t.uri_template for page in templates for t in page] == [
        *("day://{month}/{day}", "year://{year}", "age://{age}")
    ]
    assert [[p.name for p in page] for page in prompts] == [["greet", "show"], ["interview"]]
    greet = prompts[0][0]
    assert [(a.name, a.required) for a in greet.arguments] == [("name", True), ("tone", False)]


async def test_a_list_says_how_long_it_may_be_kept_in_the_modern_era(way: Way) -> None:
    async with way.connect() as client:
        page = await client.list_tools()
        assert page.tools[0].title == "Plain text"
        assert page.tools[0].annotations is not None
        kept = (page.ttl_ms, page.cache_scope)
        assert kept == ((5000, "public") if way.modern else (0, "private"))


async def test_an_unknown_cursor_is_refused(way: Way) -> None:
    async with way.connect() as client:
        for fetch in (client.list_tools, client.list_resources, client.list_prompts):
            assert await code_of(fetch(cursor="nobody gave this out")) == types.INVALID_PARAMS


async def test_every_kind_of_content_arrives(way: Way) -> None:
    async with way.connect() as client:

        async def content_of(tool: str) -> list[Any]:
            return (await client.call_tool(tool)).content

        (text,) = await content_of("text")
        assert text.text == "plain"
        (picture,) = await content_of("picture")
        assert (picture.type, picture.data, picture.mime_type) == (
            *("image", "iVBORw0KGgo=", "image/png"),
        )
        (sound,) = await content_of("sound")
        # Audio came with 2025-03-26, links with 2025-06-18; before, they are put into words.
        assert sound.type == ("audio" if way.version >= "2025-03-26" else "text")
        (pointer,) = await content_of("pointer")
        assert pointer.type == ("resource_link" if way.version >= "2025-06-18" else "text")
        assert "note://one" in str(pointer)
        (embedded,) = await content_of("embedded")
        assert embedded.resource.text == "inside"
        assert [block.type for block in await content_of("several")] == [
            *("text", "image", "resource")
        ]


async def test_structured_output_comes_beside_its_text(way: Way) -> None:
    async with way.connect() as client:
        result = await client.call_tool("weather", {"city": "Oslo"})
        primes = await client.call_tool("primes", {"count": 3})
    (text,) = result.content
    assert isinstance(text, types.TextContent)
    assert '"Oslo"' in text.text
    structured = way.version >= "2025-06-18"
    expected = {"city": "Oslo", "degrees": 21.5} if structured else None
    assert result.structured_content == expected
    assert not primes.is_error
    assert "5" in str(primes.content)


async def test_what_breaks_its_own_output_schema_is_a_tool_error(way: Way) -> None:
    async with way.connect() as client:
        result = await client.call_tool("broken_promise")
    assert result.is_error
    assert "number" in str(result.content)


async def test_a_failing_handler_is_a_tool_error_in_its_own_words(way: Way) -> None:
    async with way.connect() as client:
        failed = await client.call_tool("fail")
        refused = await client.call_tool("refuse")
        assert failed.is_error
        assert "it broke" in str(failed.content)
        assert refused.is_error
        assert [block.text for block in refused.content if block.type == "text"] == ["not today"]
        assert not (await client.call_tool("text")).is_error


async def test_bad_arguments_are_told_to_the_model_or_to_the_client(way: Way) -> None:
    async with way.connect() as client:
        call = client.call_tool("primes", {"count": "three"})
        if way.version < "2025-11-25":
            assert await code_of(call) == types.INVALID_PARAMS
        else:
            result = await call
            assert result.is_error
            assert "count" in str(result.content)


async def test_what_is_not_there_is_refused_with_its_code(way: Way) -> None:
    async with way.connect() as client:
        assert await code_of(client.call_tool("nobody")) == types.INVALID_PARAMS
        assert await code_of(client.get_prompt("nobody")) == types.INVALID_PARAMS
        missing = await code_of(client.read_resource("note://nobody"))
        assert missing == (types.INVALID_PARAMS if way.modern else -32002)
        assert await code_of(raw(client.session, "no/such/method")) == types.METHOD_NOT_FOUND
        assert await code_of(client.get_prompt("greet")) == types.INVALID_PARAMS


async def test_resources_are_read_as_text_as_bytes_and_by_template(way: Way) -> None:
    async with way.connect() as client:
        (one,) = (await client.read_resource("note://one")).contents
        assert isinstance(one, types.TextResourceContents)
        assert (one.text, one.mime_type) == ("the first note", "text/plain")
        (two,) = (await client.read_resource("note://two")).contents
        assert isinstance(two, types.BlobResourceContents)
        assert two.blob == "AAH/"
        (day,) = (await client.read_resource("day://may/1")).contents
        assert isinstance(day, types.TextResourceContents)
        assert (day.uri, day.text) == ("day://may/1", "1 may")


async def test_prompts_are_filled_in(way: Way) -> None:
    async with way.connect() as client:
        greeting = await client.get_prompt("greet", {"name": "Ada", "tone": "warm"})
        shown = await client.get_prompt("show")
    (message,) = greeting.messages
    assert isinstance(message.content, types.TextContent)
    assert message.content.text == "Write a warm greeting for Ada."
    assert [(m.role, m.content.type) for m in shown.messages] == [
        ("user", "image"),
        ("assistant", "resource"),
    ]


async def test_arguments_of_prompts_and_templates_are_completed(way: Way) -> None:
    greet = types.PromptReference(type="ref/prompt", name="greet")
    day = types.ResourceTemplateReference(type="ref/resource", uri="day://{month}/{day}")
    nobody = types.PromptReference(type="ref/prompt", name="nobody")
    async with way.connect() as client:
        tone = await client.complete(greet, {"name": "tone", "value": "k"}, {"name": "Ada"})
        month = await client.complete(day, {"name": "month", "value": "ma"})
        unknown = client.complete(nobody, {"name": "x", "value": ""})
        assert await code_of(unknown) == types.INVALID_PARAMS
    assert tone.completion.values == ["kind", "keen", "k for Ada"]
    assert month.completion.values == ["march", "may"]


async def test_ping_is_answered_where_it_exists(way: Way) -> None:
    async with way.connect() as client:
        if way.modern:
            assert await code_of(client.session.send_ping()) == types.METHOD_NOT_FOUND
        else:
            await client.session.send_ping()
