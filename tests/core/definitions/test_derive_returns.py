"""The output schema of a function's return type."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict

import pydantic
import pytest
from msgspec import Meta, Struct
from typing_extensions import TypeAliasType

from portico import Image, Text, ToolResult
from portico.core.definitions.binding import Derived
from portico.core.definitions.derive import derive_tool
from portico.core.definitions.schema import Schema


@dataclass
class Weather:
    temperature: float
    wind: "Wind | None" = None


@dataclass
class Wind:
    speed: float


class Node(Struct):
    children: list["Node"] = []


class Row(TypedDict):
    id: int


class Pair(Struct, array_like=True):
    a: int


class Cat(Struct, tag=True):
    name: str


class Dog(Struct, tag=True):
    name: str


class Color(Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    size: int = pydantic.Field(serialization_alias="Size")


class Blob:
    __mcp_content__ = True


def returning(kind: Any) -> Derived:
    def tool() -> Any: ...

    tool.__annotations__ = {"return": kind}
    return derive_tool(tool)


@pytest.mark.parametrize(
    ("kind", "fits"),
    [
        (Weather, {"temperature": 1, "wind": {"speed": 2}}),
        (Node, {"children": [{"children": []}]}),
        (Row, {"id": 1}),
        (dict, {"any": "thing"}),
        (dict[str, int], {"a": 1}),
        (Model, {"Size": 1}),
        (Annotated[Row, Meta(description="d")], {"id": 1}),
    ],
)
def test_an_object_is_promised_as_it_is(kind: Any, fits: Any) -> None:
    derived = returning(kind)
    schema = derived.definition["outputSchema"]

    assert schema["type"] == "object"  # where legacy clients look for it
    assert not derived.wraps_result
    assert Schema(schema).problems(fits) == []
    assert Schema(schema).problems([])


@pytest.mark.parametrize(
    ("kind", "fits"),
    [
        (int, 1),
        (float, 1.5),
        (bool, True),
        (list, [1]),
        (list[int], [1]),
        (list[str], ["a"]),
        (list[Weather], [{"temperature": 1}]),
        (tuple[int, int], [1, 2]),
        (Color, "red"),
        (Literal["a", "b"], "a"),
        (datetime, "2026-07-28T00:00:00Z"),
        (int | float, 1),
        (int | Weather, {"temperature": 1}),
        (Cat | Dog, {"type": "Cat", "name": "x"}),
        (Pair, [1]),
        (Annotated[int, Meta(ge=1)], 1),
    ],
)
def test_any_other_structure_is_wrapped(kind: Any, fits: Any) -> None:
    derived = returning(kind)
    schema = derived.definition["outputSchema"]

    assert (schema["type"], schema["required"]) == ("object", ["result"])
    assert list(schema["properties"]) == ["result"]
    assert derived.wraps_result
    assert Schema(schema).problems({"result": fits}) == []
    assert Schema(schema).problems({})


@pytest.mark.parametrize(
    "kind",
    [
        str,
        None,
        bytes,
        Any,
        object,
        Text,
        ToolResult,
        Blob,
        list[Text],
        list[Text | Image],
        list[Text | str],
        tuple[str, Image],
        Text | None,
        str | None,
        int | str,
        Optional[Weather],  # noqa: UP045
        Annotated[str, "words"],
        NewType("Words", str),
        TypeAliasType("Words", str),
        AsyncIterator[int],
        Callable[[], int],
    ],
)
def test_text_content_and_nothing_promise_nothing(kind: Any) -> None:
    derived = returning(kind)

    assert "outputSchema" not in derived.definition
    assert not derived.wraps_result


def test_no_annotation_promises_nothing() -> None:
    def tool(): ...  # type: ignore[no-untyped-def]  # noqa: ANN202

    assert "outputSchema" not in derive_tool(tool).definition


def test_a_class_that_refers_to_itself_stays_defined() -> None:
    schema = returning(Node).definition["outputSchema"]

    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert "Node" in schema["$defs"]


def test_a_class_that_does_not_is_written_out() -> None:
    schema = returning(Weather).definition["outputSchema"]

    assert list(schema["$defs"]) == ["Wind"]


def test_the_promise_can_be_waived_or_replaced() -> None:
    def tool() -> int:
        return 1

    assert "outputSchema" not in derive_tool(tool, output_schema=None).definition
    replaced = derive_tool(tool, output_schema={"type": "object", "minProperties": 1})
    assert replaced.definition["outputSchema"] == {"type": "object", "minProperties": 1}
    assert not replaced.wraps_result
