"""Limits of pydantic and annotated-types in annotations."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, TypedDict

import annotated_types
import pydantic
import pytest
from msgspec import Struct

from portico import Server
from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.derive import derive_prompt, derive_tool
from portico.core.definitions.schema import Schema
from portico.core.model.errors import InvalidParams
from tests.support.messages import call

Field = pydantic.Field


def schema_of(kind: Any) -> Any:
    def tool(a: Any) -> None: ...

    tool.__annotations__ = {"a": kind}
    return derive_tool(tool).definition["inputSchema"]["properties"]["a"]


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (
            Annotated[int, Field(ge=0, lt=10, multiple_of=2, description="d", title="t")],
            {
                "type": "integer",
                "minimum": 0,
                "exclusiveMaximum": 10,
                "multipleOf": 2,
                "description": "d",
                "title": "t",
            },
        ),
        (
            Annotated[str, Field(min_length=1, max_length=3, pattern="^a")],
            {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^a"},
        ),
        (
            Annotated[list[int], Field(min_length=1)],
            {"type": "array", "items": {"type": "integer"}, "minItems": 1},
        ),
        (
            list[Annotated[int, Field(ge=1)]],
            {"type": "array", "items": {"type": "integer", "minimum": 1}},
        ),
        (
            Annotated[int, Field(ge=1)] | None,
            {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        ),
        (Annotated[int, annotated_types.Ge(1)], {"type": "integer", "minimum": 1}),
        (Annotated[str, annotated_types.Len(1, 2)], {"minLength": 1, "maxLength": 2}),
        (pydantic.PositiveInt, {"type": "integer", "exclusiveMinimum": 0}),
        (pydantic.conint(ge=1, le=3), {"type": "integer", "minimum": 1, "maximum": 3}),
        (Annotated[Decimal, Field(ge=1)], {"minimum": 1}),
        (Annotated[int, Field(json_schema_extra={"x-unit": "s"})], {"x-unit": "s"}),
        (Annotated[int, Field(examples=[1, 2])], {"examples": [1, 2]}),
    ],
)
def test_limits_become_part_of_the_schema(kind: Any, schema: Any) -> None:
    assert schema.items() <= schema_of(kind).items()


async def test_limits_are_applied_and_defaults_given() -> None:
    server = Server("t")

    @server.tool
    def pick(
        few: Annotated[int, Field(ge=1, le=10, description="how many")],
        unit: str = Field("C", pattern="^[CF]$", description="of heat"),
        tags: list[str] = Field(default_factory=list),  # noqa: B008  (so it is written)
    ) -> str:
        """Pick."""
        tags.append("x")
        return f"{few} {unit} {tags}"

    schema = derive_tool(pick).definition["inputSchema"]
    assert schema["required"] == ["few"]
    assert schema["properties"]["few"]["description"] == "how many"
    assert schema["properties"]["unit"] == {
        "type": "string",
        "pattern": "^[CF]$",
        "description": "of heat",
        "default": "C",
    }
    for _ in range(2):
        assert (await call(server, "pick", {"few": 2}))["content"][0]["text"] == "2 C ['x']"
    assert (await call(server, "pick", {"few": 11}))["isError"]
    assert (await call(server, "pick", {"few": 1, "unit": "K"}))["isError"]


def test_a_field_without_a_default_is_required() -> None:
    def tool(a: int = Field(ge=1), b: int = Field(...)) -> None: ...

    schema = derive_tool(tool).definition["inputSchema"]

    assert schema["required"] == ["a", "b"]
    assert Schema(schema).problems({"a": 0, "b": 1})


def test_the_arguments_of_a_prompt_are_limited_too() -> None:
    def ask(days: Annotated[int, Field(ge=1)], unit: str = Field("C")) -> str:
        return ""

    prompt = derive_prompt(ask)

    assert prompt.bind({"days": "2"}) == ([], {"days": 2, "unit": "C"})
    with pytest.raises(InvalidParams, match="days"):
        prompt.bind({"days": "0"})


def alias(a: int = Field(alias="b")) -> None: ...
def dated(a: Annotated[date, Field(ge=date(2020, 1, 1))]) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"), [(alias, "with an alias"), (dated, "written as JSON")]
)
def test_what_cannot_be_honoured_is_refused(function: Callable[..., Any], why: str) -> None:
    with pytest.raises(DefinitionError, match=f"parameter a: .*{why}"):
        derive_tool(function)


def test_pydantic_is_not_imported_for_a_server_that_does_not_use_it() -> None:
    code = (
        "import sys, portico\n"
        "server = portico.Server('t')\n"
        "@server.tool\n"
        "def f(a: int) -> int: return a\n"
        "assert not {'pydantic', 'annotated_types'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Size(Enum):
    SMALL = "s"
    LARGE = "l"
    HUGE = "h"


@dataclass
class Shirt:
    size: Size
    fit: Literal["slim", "loose", "baggy"] = "slim"


class Sock(Struct):
    length: Literal["short", "long", "knee"]


class Order(TypedDict):
    shirt: Shirt
    socks: list[Sock]


def test_options_keep_the_order_in_which_they_are_written() -> None:
    def tool(order: Order, how: Literal["slow", "fast"], many: Literal[3, 1, 2]) -> Shirt:
        return order["shirt"]

    definition = derive_tool(tool).definition
    schema = definition["inputSchema"]

    assert schema["properties"]["how"]["enum"] == ["slow", "fast"]
    assert schema["properties"]["many"]["enum"] == [3, 1, 2]
    assert schema["$defs"]["Size"]["enum"] == ["s", "l", "h"]
    assert schema["$defs"]["Shirt"]["properties"]["fit"]["enum"] == ["slim", "loose", "baggy"]
    assert schema["$defs"]["Sock"]["properties"]["length"]["enum"] == ["short", "long", "knee"]
    assert definition["outputSchema"]["properties"]["fit"]["enum"] == ["slim", "loose", "baggy"]
