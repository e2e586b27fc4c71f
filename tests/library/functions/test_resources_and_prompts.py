"""Resources, templates, prompts and completions."""

from base64 import b64decode
from typing import Any

import msgspec
import pytest

from portico import Contents, Context, Image, Message, RegistrationError, Server
from tests.support.messages import LEGACY, MODERN, at, error, modern, request, result


@pytest.fixture
def server() -> Server:
    server = Server("t", ttl_ms=5000, cache_scope="public")

    @server.resource("config://app", name="settings", mime_type="application/json")
    def settings() -> dict[str, int]:
        """The settings."""
        return {"size": 3}

    @server.resource("file://logo", mime_type="image/png")
    async def logo(context: Context) -> bytes:
        """A picture."""
        return b"\x89PNG"

    @server.resource("users://{id}/posts/{number}")
    def posts(id: str, number: int, uri: str) -> str:
        """A post."""
        return f"{id} {number + 1} {uri}"

    @server.resource("many://parts")
    def parts() -> list[Contents]:
        """Several at once."""
        return [Contents("one", "many://one"), Contents(b"two", "many://two", "x/y")]

    @server.resource("broken://x")
    def broken() -> str:
        raise OSError("disk on fire")

    @server.prompt
    def review(code: str, style: str = "kind") -> str:
        """Review some code."""
        return f"{style}: {code}"

    @server.prompt
    def talk() -> list[Any]:
        """Several messages."""
        return ["hi", Message("hello", "assistant"), Message(Image(b"x"))]

    @server.completion("review", "style")
    def styles(value: str) -> list[str]:
        return [style for style in ("kind", "keen", "strict") if style.startswith(value)]

    @server.completion("users://{id}/posts/{number}", "number")
    async def numbers(value: str, known: dict[str, str], context: Context) -> list[str]:
        return [f"{known.get('id')}{n}" for n in range(150)]

    return server


async def read(server: Server, **params: str) -> list[dict[str, Any]]:
    answer = await result(server, modern("resources/read", params))
    contents: list[dict[str, Any]] = answer["contents"]
    return contents


async def test_a_resource_is_read_by_its_uri_or_by_its_name(server: Server) -> None:
    expected = [{"uri": "config://app", "mimeType": "application/json", "text": '{"size":3}'}]
    assert await read(server, uri="config://app") == expected
    assert await read(server, name="settings") == expected


async def test_bytes_travel_as_a_blob(server: Server) -> None:
    (entry,) = await read(server, uri="file://logo")
    assert b64decode(entry["blob"]) == b"\x89PNG"
    assert entry["mimeType"] == "image/png"


async def test_a_template_takes_its_variables_out_of_the_uri(server: Server) -> None:
    (entry,) = await read(server, uri="users://ana%20b/posts/41")
    assert entry["text"] == "ana b 42 users://ana%20b/posts/41"
    assert entry["uri"] == "users://ana%20b/posts/41"


async def test_a_resource_may_have_several_parts(server: Server) -> None:
    one, two = await read(server, uri="many://parts")
    assert (one["uri"], one["text"]) == ("many://one", "one")
    assert (two["uri"], two["mimeType"]) == ("many://two", "x/y")


async def test_reads_carry_the_caching_hints_in_the_modern_era_only(server: Server) -> None:
    answer = await result(server, modern("resources/read", {"uri": "config://app"}))
    assert (answer["ttlMs"], answer["cacheScope"]) == (5000, "public")
    legacy = await result(server, request("resources/read", {"uri": "config://app"}))
    assert set(legacy) == {"contents"}


async def test_an_unknown_resource_has_the_code_of_its_version(server: Server) -> None:
    missing = {"uri": "nope://x"}
    for version in LEGACY:
        refused = await error(server, request("resources/read", missing), at(version))
        assert refused["code"] == -32002
        assert refused["data"] == missing
    assert (await error(server, modern("resources/read", missing)))["code"] == -32602
    assert (await error(server, modern("resources/read", {})))["code"] == -32602
    assert (await error(server, modern("resources/read", {"uri": 5})))["code"] == -32602


async def test_a_read_that_fails_says_what_failed(server: Server) -> None:
    refused = await error(server, modern("resources/read", {"uri": "broken://x"}))
    assert refused["code"] == -32603
    assert "broken://x" in refused["message"]
    assert "disk on fire" in refused["message"]


async def test_lists_tell_resources_from_templates(server: Server) -> None:
    listed = await result(server, modern("resources/list"))
    assert "config://app" in [resource["uri"] for resource in listed["resources"]]
    templates = await result(server, modern("resources/templates/list"))
    (template,) = templates["resourceTemplates"]
    assert template["uriTemplate"] == "users://{id}/posts/{number}"
    assert template["description"] == "A post."


async def test_a_prompt_is_filled_in_with_its_arguments(server: Server) -> None:
    params = {"name": "review", "arguments": {"code": "x = 1"}}
    answer = await result(server, modern("prompts/get", params))
    assert answer["description"] == "Review some code."
    expected = {"role": "user", "content": {"type": "text", "text": "kind: x = 1"}}
    assert answer["messages"] == [expected]


async def test_a_prompt_may_have_several_messages(server: Server) -> None:
    answer = await result(server, modern("prompts/get", {"name": "talk"}))
    roles = [(m["role"], m["content"]["type"]) for m in answer["messages"]]
    assert roles == [("user", "text"), ("assistant", "text"), ("user", "image")]


@pytest.mark.parametrize(
    "params",
    [
        {"name": "review"},
        {"name": "review", "arguments": {"style": "kind"}},
        {"name": "review", "arguments": {"code": 5}},
        {"name": "nope"},
        {},
    ],
)
async def test_a_prompt_that_cannot_be_filled_in_is_invalid_params(
    server: Server, params: dict[str, Any]
) -> None:
    for version in (*LEGACY, MODERN):
        if version == MODERN:
            refused = await error(server, modern("prompts/get", params))
        else:
            refused = await error(server, request("prompts/get", params), at(version))
        assert refused["code"] == -32602


async def complete(server: Server, ref: dict[str, str], name: str, value: str) -> dict[str, Any]:
    params = {
        "ref": ref,
        "argument": {"name": name, "value": value},
        "context": {"arguments": {"id": "u"}},
    }
    answer = await result(server, modern("completion/complete", params))
    completion: dict[str, Any] = answer["completion"]
    return completion


async def test_arguments_are_completed(server: Server) -> None:
    found = await complete(server, {"type": "ref/prompt", "name": "review"}, "style", "k")
    assert found == {"values": ["kind", "keen"], "total": 2, "hasMore": False}
    assert (await complete(server, {"type": "ref/prompt", "name": "talk"}, "x", ""))["values"] == []


async def test_at_most_a_hundred_completions_are_sent(server: Server) -> None:
    ref = {"type": "ref/resource", "uri": "users://{id}/posts/{number}"}
    found = await complete(server, ref, "number", "")
    assert len(found["values"]) == 100
    assert found["values"][1] == "u1"
    assert (found["total"], found["hasMore"]) == (150, True)


async def test_completing_what_does_not_exist_is_invalid_params(server: Server) -> None:
    params = {"ref": {"type": "ref/prompt", "name": "nope"}, "argument": {"name": "x", "value": ""}}
    assert (await error(server, modern("completion/complete", params)))["code"] == -32602
    assert (await error(server, modern("completion/complete", {})))["code"] == -32602


async def test_a_prompt_has_no_roles_but_those_of_the_protocol() -> None:
    server = Server("t")
    system: Any = "system"
    server.prompt(lambda: Message("Be brief.", role=system), name="brief")
    answer = await error(server, request("prompts/get", {"name": "brief"}))
    assert "a message with the role 'system'; use user or assistant" in answer["message"]


async def test_what_only_a_tool_may_return_is_not_taken_for_the_data_of_a_resource() -> None:
    server = Server("t")
    server.resource("note://picture")(lambda: Image(data=b"1234"))
    answer = await error(server, request("resources/read", {"uri": "note://picture"}))
    assert (
        "the handler returned a value of type Image; return text, bytes, Contents"
        in answer["message"]
    )


async def test_a_list_with_contents_in_it_is_several_and_any_other_is_data() -> None:
    server = Server("t")

    @server.resource("mixed://x")
    def mixed() -> list[Any]:
        """Of all kinds."""
        return ["a", b"b", Contents("c", "mixed://c", "x/y")]

    @server.resource("data://list")
    def listed() -> list[str]:
        """Data."""
        return ["a", "b"]

    @server.resource("data://book")
    def book() -> dict[str, list[str]]:
        """Data that has contents, and is not a result."""
        return {"contents": ["preface", "index"]}

    async def read(uri: str) -> list[dict[str, Any]]:
        answer = await result(server, request("resources/read", {"uri": uri}))
        contents: list[dict[str, Any]] = answer["contents"]
        return contents

    assert await read("mixed://x") == [
        {"uri": "mixed://x", "mimeType": "text/plain", "text": "a"},
        {"uri": "mixed://x", "mimeType": "application/octet-stream", "blob": "Yg=="},
        {"uri": "mixed://c", "mimeType": "x/y", "text": "c"},
    ]
    assert [entry["text"] for entry in await read("data://list")] == ['["a","b"]']
    assert [entry["text"] for entry in await read("data://book")] == [
        '{"contents":["preface","index"]}'
    ]


async def test_a_resource_read_by_its_name_has_its_name_mirrored(server: Server) -> None:
    headers = {
        "mcp-protocol-version": MODERN,
        "mcp-method": "resources/read",
        "mcp-name": "settings",
    }
    named = modern("resources/read", {"name": "settings"})
    read = await result(server, named, Context(headers=headers))
    assert read["contents"][0]["uri"] == "config://app"
    headers["mcp-name"] = "logo"
    assert (await error(server, named, Context(headers=headers)))["code"] == -32020


@pytest.mark.parametrize("uri", ["note://x", "note://{x}"])
async def test_a_resource_takes_what_a_tool_takes(uri: str) -> None:
    server = Server("t")

    @server.resource(uri, title="A note", meta={"a": 1}, annotations={"priority": 1})
    def note(x: str = "") -> str:
        """A note."""
        return x

    offer = server.catalog().offer
    (item,) = (*offer.listed("resources").items, *offer.listed("templates").items)
    shown = msgspec.json.decode(item)
    assert (shown["title"], shown["_meta"]) == ("A note", {"a": 1})
    assert shown["annotations"] == {"priority": 1}


async def test_a_completion_comes_once_and_goes_again(server: Server) -> None:
    params = {
        "ref": {"type": "ref/prompt", "name": "review"},
        "argument": {"name": "style", "value": "k"},
    }

    async def values() -> list[str]:
        answer = await result(server, request("completion/complete", params))
        found: list[str] = answer["completion"]["values"]
        return found

    assert await values() == ["kind", "keen"]
    with pytest.raises(RegistrationError, match="already registered"):
        server.completion("review", "style")(lambda value: [])
    server.remove_completion("review", "style")
    assert await values() == []
    with pytest.raises(RegistrationError, match="no completion of 'style' of 'review'"):
        server.remove_completion("review", "style")
    server.completion("review", "style")(lambda value: ["new"])
    assert await values() == ["new"]
