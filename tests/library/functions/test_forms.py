"""Forms described by classes: the client's schema, and the handler's instance."""

from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
from msgspec import Meta

from portico import Context, Server
from portico.core.model.version import Version
from portico.library.functions.forms import ClassForm
from tests.library.functions.test_rounds import ABLE, Client, legacy
from tests.support.messages import modern, request, result


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Order:
    """What to send."""

    item: str
    size: Size
    many: Annotated[int, Meta(ge=1, description="how many")] = 1
    colour: Literal["red", "blue"] = "red"
    by: date | None = None
    gift: bool = False


class Contact(TypedDict):
    name: str
    mail: NotRequired[str]


class Point(msgspec.Struct):
    x: float
    y: float


class Guest(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=18)


ORDER = {
    "type": "object",
    "properties": {
        "item": {"type": "string"},
        "size": {"type": "string", "title": "Size", "enum": ["s", "l"]},
        "many": {"type": "integer", "minimum": 1, "description": "how many", "default": 1},
        "colour": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "by": {"type": "string", "format": "date"},
        "gift": {"type": "boolean", "default": False},
    },
    "required": ["item", "size"],
}


def server() -> Server:
    server = Server("t", state_key=b"k" * 32)

    @server.tool
    async def order(context: Context) -> str:
        """Ask for an order."""
        answer = await context.elicit("What?", Order)
        if answer.content is None:
            return f"none: {answer.action}"
        wanted = answer.content  # which mypy knows to be an Order
        return f"{wanted.many * 2} {wanted.item} {wanted.size} {wanted.by}"

    @server.tool
    def plainly(context: Context) -> str:
        """The same from a plain function."""
        answer: Any = context.elicit("What?", Order)
        return f"{type(answer.content).__name__}"

    return server


FILLED = {"item": "tea", "size": "l", "many": 2.0, "by": "2030-01-02"}


async def test_a_legacy_client_gets_a_flat_schema_and_the_handler_an_instance() -> None:
    client = Client({"elicitation/create": {"action": "accept", "content": FILLED}})
    context = legacy(client, ABLE, Version.V2025_11_25)

    answer = await result(server(), request("tools/call", {"name": "order"}), context)
    plain = await result(server(), request("tools/call", {"name": "plainly"}), context)

    assert answer["content"][0]["text"] == "4 tea Size.LARGE 2030-01-02"
    assert plain["content"][0]["text"] == "Order"
    assert client.asked[0][1]["requestedSchema"] == ORDER


async def test_a_modern_client_answers_the_same_form_in_a_round() -> None:
    one = server()
    asked = await result(one, modern("tools/call", {"name": "order"}, ABLE))
    (key,) = asked["inputRequests"]
    assert asked["inputRequests"][key]["params"]["requestedSchema"] == ORDER
    retry = {
        "name": "order",
        "inputResponses": {key: {"action": "accept", "content": FILLED}},
        "requestState": asked["requestState"],
    }

    answer = await result(one, modern("tools/call", retry, ABLE))

    assert answer["content"][0]["text"] == "4 tea Size.LARGE 2030-01-02"


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_form_that_was_not_filled_in_has_no_content(action: str) -> None:
    client = Client({"elicitation/create": {"action": action}})
    context = legacy(client, ABLE, Version.V2025_11_25)

    answer = await result(server(), request("tools/call", {"name": "order"}), context)

    assert answer["content"][0]["text"] == f"none: {action}"


def test_other_kinds_of_classes_are_forms_too() -> None:
    assert ClassForm(Contact).read({"name": "a"}) == {"name": "a"}
    assert ClassForm(Contact).schema["required"] == ["name"]
    assert ClassForm(Point).read({"x": 1, "y": 2}) == Point(1.0, 2.0)
    assert ClassForm(Guest).schema["properties"]["age"]["minimum"] == 18
    assert ClassForm(Guest).read({"name": "a", "age": 20}) == Guest(name="a", age=20)


@dataclass
class Nested:
    point: Point


@dataclass
class Several:
    names: list[str]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Nested, "the form Nested: point: is not a string, a number"),
        (Several, "the form Several: names: is not a string, a number"),
        (int, "the form int: is not a class with fields"),
        (object, "the form object: "),
    ],
)
async def test_a_class_that_is_not_a_form_is_refused_by_name(kind: Any, why: str) -> None:
    one = Server("t")

    @one.tool
    async def ask(context: Context) -> str:
        """Ask."""
        await context.elicit("What?", kind)
        return ""

    context = legacy(Client({}), ABLE, Version.V2025_11_25)
    answer = await result(one, request("tools/call", {"name": "ask"}), context)

    assert answer["isError"]
    assert why in answer["content"][0]["text"]


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
@pytest.mark.parametrize("plain", [False, True])
async def test_log_levels_have_calls_of_their_own(level: str, plain: bool) -> None:
    one = Server("t")

    @one.tool
    async def awaited(context: Context) -> str:
        """Log."""
        await getattr(context, level)({"a": 1}, logger="l")
        return ""

    @one.tool
    def blocking(context: Context) -> str:
        """Log."""
        getattr(context, level)({"a": 1}, logger="l")
        return ""

    client = Client({})
    context = legacy(client, ABLE, Version.V2025_11_25)
    assert context.session is not None
    context.session.log_level = "debug"
    name = "blocking" if plain else "awaited"

    await result(one, request("tools/call", {"name": name}), context)

    assert client.notified[0]["params"] == {"level": level, "data": {"a": 1}, "logger": "l"}
