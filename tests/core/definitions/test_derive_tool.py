"""Tools from functions: schemas and arguments."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from enum import Enum
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict, Union
from uuid import UUID

import msgspec
import pydantic
import pytest
from msgspec import Meta, Struct

from portico import Context, ToolError
from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.derive import derive_tool
from portico.core.definitions.schema import Schema

# Annotations are evaluated in place here; quoted ones are in test_derive_quoted.


@dataclass
class Place:
    """A point on the map."""

    lat: float
    lon: Annotated[float, Meta(ge=-180, le=180)] = 0.0
    tags: list[str] = field(default_factory=list)


class Trip(Struct):
    start: Place
    via: "Trip | None" = None


class Options(TypedDict):
    fast: bool
    level: NotRequired[int]


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Model(pydantic.BaseModel):
    size: int
    inner: Optional["Model"] = None


UserId = NewType("UserId", int)


def schema_of(kind: Any, default: Any = ...) -> Any:
    """The schema of a parameter of this type."""

    def function(value: Any) -> None: ...

    function.__annotations__ = {"value": kind}
    if default is not ...:
        function.__defaults__ = (default,)
    return derive_tool(function).definition["inputSchema"]["properties"]["value"]


def bound(kind: Any, value: Any) -> Any:
    """Return the value that a parameter of this type gets for a JSON value."""

    def function(value: Any) -> None: ...

    function.__annotations__ = {"value": kind}
    derived = derive_tool(function)
    assert Schema(derived.definition["inputSchema"]).problems({"value": value}) == []
    args, kwargs = derived.bind({"value": value})
    assert args == []
    return kwargs["value"]


def refused(function: Callable[..., Any], **more: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        derive_tool(function, **more)
    return str(caught.value)


# Definitions.


def test_a_function_says_all_a_tool_needs() -> None:
    def forecast(city: str, days: int = 3, *, exact: bool = False) -> str:
        """Tell the weather.

        Args:
            city: Where.
            days: How many
                days ahead.

        Returns:
            Words.
        """
        return city

    assert derive_tool(forecast).definition == {
        "name": "forecast",
        "description": "Tell the weather.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where."},
                "days": {"type": "integer", "description": "How many days ahead.", "default": 3},
                "exact": {"type": "boolean", "default": False},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    }


def test_a_function_without_parameters_takes_none() -> None:
    def ping() -> None: ...

    assert derive_tool(ping).definition == {
        "name": "ping",
        "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False},
    }


def test_what_is_given_overrides_what_is_derived() -> None:
    def tool(a: int) -> int:
        """Derived."""
        return a

    derived = derive_tool(
        tool,
        name="other",
        title="Other",
        description="Given.",
        annotations={"readOnlyHint": True},
        icons=[{"src": "https://example.com/i.png"}],
        meta={"k": 1},
        output_schema={"type": "object"},
    )

    assert {k: v for k, v in derived.definition.items() if k != "inputSchema"} == {
        "name": "other",
        "title": "Other",
        "description": "Given.",
        "outputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
        "icons": [{"src": "https://example.com/i.png"}],
        "_meta": {"k": 1},
    }
    assert not derived.wraps_result


def test_what_is_given_is_checked_like_a_file() -> None:
    def tool() -> None: ...

    label = "test_what_is_given_is_checked_like_a_file.<locals>.tool()"
    assert refused(tool, annotations={"readOnlyHint": "yes"}) == (
        f'{label}: annotations.readOnlyHint: must be true or false, not "yes"'
    )
    assert "name: must not be empty" in refused(tool, name="")
    assert "outputSchema.type" in refused(tool, output_schema={"type": "nonsense"})


def test_a_lambda_needs_a_name() -> None:
    assert "needs a name" in refused(lambda: None)
    assert derive_tool(lambda: None, name="quick").definition["name"] == "quick"


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (int, {"type": "integer"}),
        (Any, {}),
        (dict, {"type": "object"}),
        (list, {"type": "array"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007
        (Literal["b", "a", "c"], {"enum": ["b", "a", "c"]}),
        (list[Literal["b", "a"]], {"items": {"enum": ["b", "a"]}}),
        (date, {"type": "string", "format": "date"}),
        (UserId, {"type": "integer"}),
        (Annotated[int, Meta(ge=1, description="d")], {"type": "integer", "minimum": 1}),
        (Annotated[int, "words"], {"type": "integer", "description": "words"}),
        (Annotated[str, pydantic.Field(description="f")], {"description": "f"}),
    ],
)
def test_a_type_becomes_its_schema(kind: Any, schema: Any) -> None:
    assert schema.items() <= schema_of(kind).items()


def test_classes_are_defined_once_and_referred_to() -> None:
    def tool(a: Place, b: list[Place], c: Trip, d: Options, e: Color, f: Model) -> None: ...

    schema = derive_tool(tool).definition["inputSchema"]

    assert schema["properties"]["a"] == {"$ref": "#/$defs/Place"}
    assert schema["properties"]["b"] == {"type": "array", "items": {"$ref": "#/$defs/Place"}}
    assert sorted(schema["$defs"]) == ["Color", "Model", "Options", "Place", "Trip"]
    Schema(schema).check()


def test_classes_of_the_same_name_are_told_apart() -> None:
    def local(kind: Any) -> Any:
        class Place(Struct):
            x: kind

        return Place

    one, other = local(int), local(str)

    def tool(a: Any, b: Any) -> None: ...

    one.__module__ = "elsewhere"
    tool.__annotations__ = {"a": one, "b": other}
    schema = derive_tool(tool).definition["inputSchema"]

    assert Schema(schema).problems({"a": {"x": 1}, "b": {"x": "1"}}) == []
    assert Schema(schema).problems({"a": {"x": "1"}, "b": {"x": 1}})


def test_models_of_the_same_name_are_refused() -> None:
    def local(kind: Any) -> Any:
        inner = pydantic.create_model("Inner", x=(kind, ...))
        return pydantic.create_model("Outer", inner=(inner, ...))

    def tool(a: Any, b: Any) -> None: ...

    tool.__annotations__ = {"a": local(int), "b": local(str)}

    assert 'two different types have the name "Inner"' in refused(tool)


def test_defaults_that_have_a_json_form_are_told() -> None:
    assert schema_of(Color, Color.RED)["default"] == "red"
    assert schema_of(Place, Place(1.0))["default"] == {"lat": 1.0, "lon": 0.0, "tags": []}
    assert schema_of(date, date(2026, 7, 28))["default"] == "2026-07-28"
    assert schema_of(Model, Model(size=1))["default"] == {"size": 1, "inner": None}
    assert schema_of(int | None, None)["default"] is None


@pytest.mark.parametrize("default", [object(), float("inf"), float("nan"), {1, object()}])
def test_a_default_without_a_json_form_is_left_out_and_still_applies(default: Any) -> None:
    def tool(value: Any = default) -> None: ...

    derived = derive_tool(tool)

    assert derived.definition["inputSchema"]["properties"]["value"] == {}
    assert "required" not in derived.definition["inputSchema"]
    assert derived.bind({}) == ([], {})


def test_a_header_annotation_is_carried_and_checked() -> None:
    header = {"x-mcp-header": "Region"}

    def right(region: Annotated[str, Meta(extra_json_schema=header)]) -> None: ...
    def wrong(region: Annotated[float, Meta(extra_json_schema=header)]) -> None: ...

    region = derive_tool(right).definition["inputSchema"]["properties"]["region"]
    assert region["x-mcp-header"] == "Region"
    assert "x-mcp-header: only a string, integer or boolean" in refused(wrong)


# Functions that cannot be tools.


def test_variable_arguments_are_refused_by_name() -> None:
    def many(*args: int) -> None: ...
    def named(a: int, **options: int) -> None: ...

    assert "many(): parameter *args: is not supported" in refused(many)
    assert "named(): parameter **options: is not supported" in refused(named)


def test_a_type_without_a_json_form_is_refused_by_name() -> None:
    class Socket: ...

    def tool(ok: int, s: Socket) -> None: ...

    assert "tool(): parameter s: its type has no JSON Schema" in refused(tool)
    assert "Socket" in refused(tool)


def test_a_class_is_no_function() -> None:
    assert refused(Place) == "Place: is a class; pass a function"


def test_a_builtin_without_a_signature_is_refused() -> None:
    assert "has no signature" in refused(min)


# The context.


def test_the_context_is_found_by_type_or_name_and_is_no_argument() -> None:
    class Mine(Context): ...

    def typed(ctx: Context) -> None: ...
    def optional(ctx: Context | None = None) -> None: ...
    def inherited(ctx: Mine) -> None: ...
    def quoted(ctx: "Context") -> None: ...
    def partly_quoted(ctx: Optional["Context"] = None) -> None: ...
    def dotted(ctx: "portico.Context") -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def named(context) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001

    for function in (typed, optional, inherited, quoted, partly_quoted, dotted, named):
        derived = derive_tool(function)
        assert derived.context_parameter in ("ctx", "context"), function
        assert derived.definition["inputSchema"]["properties"] == {}
        marker = object()
        assert derived.bind({}, marker) == ([], {derived.context_parameter: marker})


def test_a_parameter_called_context_with_a_type_of_its_own_is_an_argument() -> None:
    def tool(context: str) -> None: ...

    assert derive_tool(tool).context_parameter is None
    assert derive_tool(tool).definition["inputSchema"]["required"] == ["context"]


def test_two_contexts_are_one_too_many() -> None:
    def tool(a: Context, b: Context) -> None: ...

    assert "has two parameters for the context" in refused(tool)


# Arguments.


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (int, 3, 3),
        (int, 3.0, 3),
        (float, 3, 3.0),
        (list[int], [1, 2.0], [1, 2]),
        (str | None, None, None),
        (Place, {"lat": 1, "lon": 2}, Place(1.0, 2.0)),
        (list[Place], [{"lat": 1}], [Place(1.0)]),
        (Trip, {"start": {"lat": 1}, "via": {"start": {"lat": 2}}}, Trip(Place(1), Trip(Place(2)))),
        (Options, {"fast": True}, {"fast": True}),
        (Color, "red", Color.RED),
        (Literal["a", 1], 1, 1),
        (datetime, "2026-07-28T00:00:00Z", datetime(2026, 7, 28, tzinfo=UTC)),
        (
            UUID,
            "12345678-1234-5678-1234-567812345678",
            UUID(int=0x12345678123456781234567812345678),
        ),
        (bytes, "aGk=", b"hi"),
        (tuple[int, str], [1, "a"], (1, "a")),
        (set[int], [1, 2], {1, 2}),
        (dict[str, Place], {"a": {"lat": 1}}, {"a": Place(1.0)}),
        (Annotated[int, Meta(ge=1)], 5, 5),
        (UserId, 5, 5),
        (Any, {"a": [1.0]}, {"a": [1.0]}),
        (dict, {"a": 1}, {"a": 1}),
        (Model, {"size": 1}, Model(size=1)),
        (list[Model], [{"size": 1, "inner": {"size": 2}}], [Model(size=1, inner=Model(size=2))]),
        (Model | None, None, None),
        (int, 10**30, 10**30),
    ],
)
def test_json_becomes_the_annotated_type(kind: Any, value: Any, expected: Any) -> None:
    converted = bound(kind, value)

    assert converted == expected
    assert type(converted) is type(expected)


def test_an_argument_that_is_left_out_is_left_to_the_function() -> None:
    def tool(a: int, b: list[int] = [], c: str = "x") -> None: ...  # noqa: B006  (that is the point)

    assert derive_tool(tool).bind({"a": 1, "c": "y"}) == ([], {"a": 1, "c": "y"})


def test_positional_only_parameters_are_given_by_position() -> None:
    def tool(a: int, context: Context, b: int = 7, /, c: int = 8) -> None: ...

    derived = derive_tool(tool)

    assert derived.bind({"a": 1, "c": 3}, "ctx") == ([1, "ctx", 7], {"c": 3})
    assert derived.definition["inputSchema"]["required"] == ["a"]


def test_a_parameter_without_a_type_takes_anything() -> None:
    def tool(a, b=1): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    derived = derive_tool(tool)

    assert derived.definition["inputSchema"]["properties"] == {"a": {}, "b": {"default": 1}}
    assert derived.bind({"a": {"x": [None]}}) == ([], {"a": {"x": [None]}})


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (datetime, "tomorrow", "tool: value: invalid RFC3339"),
        (list[int], [1, "2"], "tool: value[1]: expected int, got str"),
        (Place, {"lat": "x"}, "tool: value.lat: expected float, got str"),
        (Model, {"size": "x"}, "tool: value: 1 validation error for Model"),
    ],
)
def test_a_value_that_cannot_be_converted_is_told_to_the_model(
    kind: Any, value: Any, words: str
) -> None:
    def tool(value: Any) -> None: ...

    tool.__annotations__ = {"value": kind}
    with pytest.raises(ToolError) as caught:
        derive_tool(tool).bind({"value": value})

    assert str(caught.value).startswith(words)


def test_a_missing_argument_is_told_too() -> None:
    def tool(a: int) -> None: ...

    with pytest.raises(ToolError, match="missing required field a"):
        derive_tool(tool).bind({})


def test_what_cannot_be_sent_is_named_with_its_function() -> None:
    def tool() -> None: ...

    with pytest.raises(DefinitionError, match=r"tool\(\): _meta: cannot be written as JSON"):
        derive_tool(tool, meta={"x": object()})
    with pytest.raises(DefinitionError, match=r"tool\(\): outputSchema: cannot be written as JSON"):
        derive_tool(tool, output_schema={"type": "object", "default": object()})


def test_an_async_function_is_derived_like_any_other() -> None:
    async def tool(a: int) -> int:
        return a

    assert derive_tool(tool).definition["inputSchema"]["required"] == ["a"]
    assert derive_tool(tool).wraps_result


def test_a_definition_can_be_sent_as_it_is() -> None:
    def tool(a: Place, b: Color = Color.RED, c: Model | None = None) -> Trip:
        return Trip(a)

    definition = derive_tool(tool).definition

    assert msgspec.json.decode(msgspec.json.encode(definition)) == definition
