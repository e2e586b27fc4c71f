"""Tools: every kind of handler, every kind of result, the proper failure in each version."""

import asyncio
import json
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar, Literal

import msgspec
import pydantic
import pytest

from portico import (
    Audio,
    Context,
    Embedded,
    Image,
    InvalidParams,
    RegistrationError,
    ResourceLink,
    Server,
    Text,
    ToolError,
    ToolResult,
)
from tests.support.messages import (
    LEGACY,
    MODERN,
    at,
    call,
    error,
    modern,
    request,
    result,
    text_of,
)

DEFINED = [
    {
        "name": "echo",
        "description": "Say it again.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        },
        "x-unknown": {"kept": True},
    }
]


async def test_a_defined_tool_is_answered_by_any_kind_of_handler() -> None:
    async def on_the_loop(arguments: dict[str, Any], context: Context) -> str:
        return f"async {arguments['text']}"

    def in_a_thread(arguments: dict[str, Any], context: Context) -> str:
        return f"plain {arguments['text']}"

    def without_context(arguments: dict[str, Any]) -> str:
        return f"short {arguments['text']}"

    class Object:
        async def call(self, arguments: dict[str, Any], context: Context) -> str:
            return f"object {arguments['text']}"

    class Callable:
        def __call__(self, arguments: dict[str, Any], context: Context) -> str:
            return f"callable {arguments['text']}"

    handlers = (on_the_loop, in_a_thread, without_context, Object(), Callable())
    expected = ("async", "plain", "short", "object", "callable")
    for handler, word in zip(handlers, expected, strict=True):
        server = Server("t")
        server.load_tools(DEFINED)
        server.handler("echo", handler)
        assert text_of(await call(server, "echo", {"text": "hi"})) == f"{word} hi"


async def test_every_field_of_a_definition_is_kept() -> None:
    server = Server("t")
    server.load_tools(DEFINED)
    for version in LEGACY:
        listed = await result(server, request("tools/list"), at(version))
        assert listed["tools"] == DEFINED
    assert (await result(server, modern("tools/list")))["tools"] == DEFINED


async def test_a_derived_tool_takes_its_parameters_and_the_context() -> None:
    server = Server("t")

    @server.tool
    async def add(a: int, b: int = 1, *, context: Context) -> int:
        """Add two numbers."""
        assert context.principal == "ana"
        return a + b

    (tool,) = (await result(server, modern("tools/list")))["tools"]
    assert tool["name"] == "add"
    assert tool["description"] == "Add two numbers."
    assert tool["inputSchema"]["required"] == ["a"]
    assert set(tool["inputSchema"]["properties"]) == {"a", "b"}
    params = {"name": "add", "arguments": {"a": 2, "b": 3}}
    answer = await result(server, modern("tools/call", params), Context(principal="ana"))
    assert answer["structuredContent"] == {"result": 5}
    assert text_of(answer) == "5"


async def test_the_context_carries_request_scoped_data_untouched() -> None:
    server = Server("t")
    data = object()
    seen: list[Any] = []

    @server.tool
    def look(context: Context) -> None:
        seen.append(context.data)

    await server.handle(modern("tools/call", {"name": "look"}), Context(data=data))
    assert seen == [data]


@dataclass
class Point:
    x: int
    y: int


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        (None, []),
        ("text", ["text"]),
        (Text("text"), ["text"]),
        (Image(b"\x89PNG"), ["image"]),
        (Audio(b"RIFF"), ["audio"]),
        (Embedded("a://b", "text"), ["resource"]),
        (Embedded("a://b", b"bytes"), ["resource"]),
        (ResourceLink("a://b", "b"), ["resource_link"]),
        (["one", Image(b""), ResourceLink("a://b", "b")], ["text", "image", "resource_link"]),
        (ToolResult(content=["one", "two"]), ["text", "text"]),
    ],
)
async def test_content_of_every_kind_is_shown(value: Any, kinds: list[str]) -> None:
    server = Server("t")
    server.add_tool({"name": "x", "inputSchema": {"type": "object"}}, lambda arguments: value)
    answer = await call(server, "x", version="2025-11-25")
    assert [block["type"] for block in answer["content"]] == kinds
    assert "structuredContent" not in answer


async def test_kinds_that_an_old_version_does_not_know_become_text() -> None:
    server = Server("t")
    blocks = [Audio(b"RIFF"), ResourceLink("a://b", "b")]
    server.add_tool({"name": "x", "inputSchema": {"type": "object"}}, lambda arguments: blocks)
    shown = {
        version: [b["type"] for b in (await call(server, "x", version=version))["content"]]
        for version in LEGACY
    }
    assert shown["2024-11-05"] == ["text", "text"]
    assert shown["2025-03-26"] == ["audio", "text"]
    assert shown["2025-06-18"] == shown["2025-11-25"] == ["audio", "resource_link"]


async def test_data_is_structured_and_also_shown_as_text() -> None:
    server = Server("t")

    @server.tool
    def point() -> Point:
        return Point(1, 2)

    for version in ("2025-06-18", "2025-11-25", MODERN):
        answer = await call(server, "point", version=version)
        assert answer["structuredContent"] == {"x": 1, "y": 2}
        assert json.loads(text_of(answer)) == {"x": 1, "y": 2}
    for version in ("2024-11-05", "2025-03-26"):
        answer = await call(server, "point", version=version)
        assert "structuredContent" not in answer
        assert json.loads(text_of(answer)) == {"x": 1, "y": 2}


@dataclass
class Trip:
    city: str
    days: int = 1
    stops: list["Trip"] = field(default_factory=list)


async def test_a_dataclass_comes_back_with_its_defaults() -> None:
    server = Server("t")

    @server.tool
    def same(trip: Trip) -> list[Trip]:
        return [trip]

    answer = await call(server, "same", {"trip": {"city": "Oslo", "stops": [{"city": "Rome"}]}})
    stop = {"city": "Rome", "days": 1, "stops": []}
    assert answer["structuredContent"] == {"result": [{"city": "Oslo", "days": 1, "stops": [stop]}]}


class Tour(msgspec.Struct, rename="camel", omit_defaults=True):
    first_trip: Trip
    tags: tuple[str, ...] = ()


async def test_a_dataclass_inside_a_struct_comes_back_with_its_defaults() -> None:
    server = Server("t")

    @server.tool
    def same(tour: Tour) -> Tour:
        return tour

    answer = await call(server, "same", {"tour": {"firstTrip": {"city": "Oslo"}}})
    trip = {"city": "Oslo", "days": 1, "stops": []}
    assert answer["structuredContent"] == {"firstTrip": trip}


@dataclass
class Sown:
    seed: InitVar[int]
    kind: ClassVar[str] = "plant"
    height: int = 0

    def __post_init__(self, seed: int) -> None:
        self.height = seed * 2


async def test_only_the_fields_of_a_dataclass_come_back() -> None:
    server = Server("t")
    server.tool(lambda: Sown(2), name="sow")
    assert (await call(server, "sow"))["structuredContent"] == {"height": 4}


async def test_a_whole_result_may_hold_whatever_a_tool_may_return() -> None:
    server = Server("t")
    trip = Trip("Oslo")
    server.tool(lambda: ToolResult(structured=trip), name="data")
    server.tool(lambda: ToolResult(content=trip), name="text")

    shown = {"city": "Oslo", "days": 1, "stops": []}
    data = await call(server, "data", version="2025-06-18")
    assert data["structuredContent"] == shown
    assert json.loads(text_of(await call(server, "text"))) == shown


class City(pydantic.BaseModel):
    name: str = pydantic.Field(alias="Name")


async def test_pydantic_models_come_back_wherever_they_stand() -> None:
    server = Server("t")
    oslo = City(Name="Oslo")

    @server.tool
    def one() -> City:
        return oslo

    @server.tool
    def several() -> list[City]:
        return [oslo]

    @server.tool
    def by_name() -> dict[str, dict[str, City]]:
        return {"no": {"oslo": oslo}}

    shown = {"Name": "Oslo"}
    assert (await call(server, "one"))["structuredContent"] == shown
    assert (await call(server, "several"))["structuredContent"] == {"result": [shown]}
    assert (await call(server, "by_name"))["structuredContent"] == {"no": {"oslo": shown}}


async def test_words_out_of_an_enumeration_are_data() -> None:
    server = Server("t")

    @server.tool
    def season() -> Literal["summer", "winter"]:
        return "winter"

    answer = await call(server, "season")
    assert answer["structuredContent"] == {"result": "winter"}
    assert "isError" not in answer


async def test_output_schemas_are_shown_to_the_versions_that_have_them() -> None:
    server = Server("t")

    @server.tool
    def point() -> Point:
        return Point(1, 2)

    for version in LEGACY:
        (tool,) = (await result(server, request("tools/list"), at(version)))["tools"]
        assert ("outputSchema" in tool) is (version >= "2025-06-18")


async def test_a_value_that_is_no_object_is_structured_in_the_modern_era_only() -> None:
    server = Server("t")
    schema = {"type": "array", "items": {"type": "integer"}}
    tool = {"name": "x", "inputSchema": {"type": "object"}, "outputSchema": schema}
    server.add_tool(tool, lambda arguments: [1, 2])
    assert (await call(server, "x"))["structuredContent"] == [1, 2]
    assert "structuredContent" not in await call(server, "x", version="2025-11-25")
    listed = await result(server, request("tools/list"), at("2025-11-25"))
    assert "outputSchema" not in listed["tools"][0]
    assert (await result(server, modern("tools/list")))["tools"][0]["outputSchema"] == schema


async def test_an_answer_that_breaks_the_output_schema_is_the_tools_failure() -> None:
    server = Server("t")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = {"name": "x", "inputSchema": {"type": "object"}, "outputSchema": schema}
    values: list[Any] = [{"n": "one"}, {}, "text", None]
    server.add_tool(tool, lambda arguments: values.pop(0))
    while values:
        answer = await call(server, "x")
        assert answer["isError"]
        assert "output schema" in text_of(answer)


@pytest.mark.parametrize("version", [*LEGACY, MODERN])
async def test_bad_arguments_never_reach_the_handler(version: str) -> None:
    server = Server("t")
    called: list[Any] = []
    server.load_tools(DEFINED)
    server.handler("echo", called.append)
    params = {"name": "echo", "arguments": {"text": 5}}
    if version < "2025-11-25":
        refused = await error(server, request("tools/call", params), at(version))
        assert refused["code"] == -32602
        words = refused["message"]
    else:
        answer = await call(server, "echo", {"text": 5}, version)
        assert answer["isError"]
        words = text_of(answer)
    assert "text" in words
    assert "string" in words
    assert called == []


@pytest.mark.parametrize("version", [*LEGACY, MODERN])
async def test_a_failing_handler_is_a_result_the_model_can_read(version: str) -> None:
    server = Server("t")

    @server.tool
    async def said() -> str:
        raise ToolError("the printer is out of paper")

    @server.tool
    def unsaid() -> str:
        raise KeyError("paper")

    answer = await call(server, "said", version=version)
    assert answer["isError"]
    assert text_of(answer) == "the printer is out of paper"
    answer = await call(server, "unsaid", version=version)
    assert answer["isError"]
    assert "unsaid failed" in text_of(answer)


async def test_a_handler_may_answer_with_an_error_of_the_protocol() -> None:
    server = Server("t")

    @server.tool
    def strict() -> str:
        raise InvalidParams("not today", {"when": "tomorrow"})

    refused = await error(server, modern("tools/call", {"name": "strict"}))
    assert refused == {"code": -32602, "message": "not today", "data": {"when": "tomorrow"}}


async def test_a_handler_that_returns_what_has_no_json_form_hurts_only_its_call() -> None:
    server = Server("t")
    server.add_tool({"name": "x", "inputSchema": {"type": "object"}}, lambda arguments: object())
    server.add_tool({"name": "y", "inputSchema": {"type": "object"}}, lambda arguments: b"bytes")
    for name in ("x", "y"):
        answer = await call(server, name)
        assert answer["isError"]
        assert "returned a" in text_of(answer)


@pytest.mark.parametrize("version", [*LEGACY, MODERN])
async def test_an_unknown_tool_is_invalid_params_and_a_missing_handler_internal(
    version: str,
) -> None:
    server = Server("t")
    server.load_tools(DEFINED)
    make = modern if version == MODERN else request
    context = None if version == MODERN else at(version)
    assert (await error(server, make("tools/call", {"name": "nope"}), context))["code"] == -32602
    named = await error(server, make("tools/call", {"name": "echo"}), context)
    assert named["code"] == -32603
    assert "no handler" in named["message"]


async def test_null_arguments_are_no_arguments() -> None:
    server = Server("t")
    server.add_tool({"name": "x", "inputSchema": {"type": "object"}}, json.dumps)
    answer = await result(server, modern("tools/call", {"name": "x", "arguments": None}))
    assert text_of(answer) == "{}"


async def test_a_call_over_its_time_is_stopped_and_says_so() -> None:
    server = Server("t", call_timeout_s=0.01)
    stopped = asyncio.Event()

    @server.tool
    async def forever() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    answer = await call(server, "forever")
    assert answer["isError"]
    assert "timed out" in text_of(answer)
    assert stopped.is_set()


async def test_a_request_may_have_a_deadline_of_its_own() -> None:
    server = Server("t")

    @server.tool
    async def forever() -> str:
        await asyncio.Event().wait()
        return ""

    @server.tool
    async def own_timeout() -> str:
        raise TimeoutError("the printer did not answer")

    deadline = asyncio.get_running_loop().time()
    for name, words in (("forever", "timed out"), ("own_timeout", "printer")):
        message = modern("tools/call", {"name": name})
        answer = await result(server, message, Context(deadline=deadline + 0.05))
        assert words in text_of(answer)


def test_registering_what_cannot_be_is_an_error_at_once() -> None:
    server = Server("t")
    server.load_tools(DEFINED)
    with pytest.raises(RegistrationError, match="already registered"):
        server.load_tools(DEFINED)
    with pytest.raises(RegistrationError, match="no tool 'ecco' is defined"):
        server.handler("ecco", print)
    with pytest.raises(RegistrationError, match="is not a handler"):
        server.handler("echo", 5)
    with pytest.raises(RegistrationError, match="must take the arguments"):
        server.handler("echo", lambda: None)
    with pytest.raises(RegistrationError, match="Trip is a class"):
        server.handler("echo", Trip)


def test_a_name_where_a_function_belongs_is_pointed_out() -> None:
    server = Server("t")
    with pytest.raises(RegistrationError, match=r"write @server.tool\(name='add'\)"):
        server.tool("add")  # type: ignore[call-overload]
    with pytest.raises(RegistrationError, match=r"write @server.prompt\(name='add'\)"):
        server.prompt("add")  # type: ignore[call-overload]
    with pytest.raises(RegistrationError, match="a URI is required"):
        server.resource(print)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"cache_scope": "shared"}, "cache_scope must be public or private, not 'shared'"),
        ({"ttl_ms": -1}, "ttl_ms must be at least 0, not -1"),
        ({"page_size": -3}, "page_size must be at least 0, not -3"),
        ({"capabilities": ["tool"]}, "not 'tool'"),
        ({"capabilities": "promts"}, "not 'promts'"),
        ({"state_key": b"too short"}, "at least 32 bytes"),
        ({"state_key": b""}, "at least 32 bytes"),
        ({"call_timeout_s": 0}, "call_timeout_s must be more than 0, not 0"),
        ({"call_timeout_s": float("nan")}, "call_timeout_s must be more than 0"),
    ],
)
def test_a_server_refuses_what_clients_could_make_no_sense_of(
    wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(RegistrationError, match=words):
        Server("t", **wrong)
