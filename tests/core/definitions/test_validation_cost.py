"""Checking and explaining are bounded before they begin, whatever the schema and the value are.

Each of these cases ran for longer than the bound allows, up to minutes, when nothing was estimated.
"""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import msgspec
import pytest

from portico.core.definitions.schema import Schema, SchemaError, describe
from portico.core.definitions.schema_limits import FOREIGN_WORK, SchemaLimits
from tests.core.definitions.test_schema_suite import cases
from tests.support.shared import shared

pytestmark = pytest.mark.timeout(60)


def nested(depth: int, wrap: Callable[[Any], Any], leaf: Any) -> Any:
    for _ in range(depth):
        leaf = wrap(leaf)
    return leaf


def never_containing(many: int) -> dict[str, Any]:
    return {"allOf": [{"contains": {"const": -1 - n}} for n in range(many)]}


def unevaluated(alternatives: int) -> dict[str, Any]:
    branches: list[Any] = [{"properties": {f"p{n}": {}}} for n in range(alternatives)]
    return {"anyOf": branches, "unevaluatedProperties": False}


def unevaluated_within(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = nested(
        levels,
        lambda inner: {"allOf": [inner], "unevaluatedProperties": {"type": "integer"}},
        {"properties": {"b": {}}},
    )
    return found


LINES: dict[str, Any] = {
    "$defs": {
        f"d{level}": {"anyOf": [{"items": {"$ref": f"#/$defs/d{level + 1}"}, "type": "array"}] * 2}
        for level in range(12)
    },
    "$ref": "#/$defs/d0",
}
LINES["$defs"]["d12"] = {"type": "string"}

COSTLY = {
    "contains": (never_containing(900), list(range(2_000))),
    "unevaluatedProperties": (unevaluated(900), {f"p{n}": 1 for n in range(1_000)}),
    "unevaluatedProperties in each other": (unevaluated_within(20), {"a": 1}),
    "objects as options": (
        {"items": {"enum": [{"a": n} for n in range(900)]}},
        [{"a": n + 5_000} for n in range(10_000)],
    ),
    "alternatives of alternatives": (LINES, nested(11, lambda inner: [inner], [1] * 5_000)),
    "large numbers that must differ": ({"uniqueItems": True}, [10**30 + n for n in range(3_000)]),
    "large numbers": ({"items": {"minimum": 5}}, [10**4_000] * 1_000),
}


@pytest.mark.parametrize("case", COSTLY)
def test_a_check_that_would_take_long_is_left_to_the_server(case: str) -> None:
    source, value = COSTLY[case]

    assert SchemaLimits(source, FOREIGN_WORK).excess(value)
    assert Schema(source, foreign=True).problems(value, 4_000_000) == []


def test_a_function_of_our_own_refuses_what_nobody_else_would_check() -> None:
    message = describe(Schema(never_containing(16_000)).problems(list(range(2_000)), 10_000))

    assert message.startswith("too much to check against this schema: at most 390 values")


EXPLAINED = {
    "alternatives of itself": (
        {
            "anyOf": [
                {"type": "array", "items": {"$ref": "#"}},
                {"type": "array", "maxItems": 5, "items": {"$ref": "#"}},
            ]
        },
        nested(40, lambda inner: [inner], 1),
    ),
    "many alternatives": (unevaluated(30), {f"p{n}": 1 for n in range(300)}),
    "a long list": ({"contains": {"type": "string"}}, [1] * 100_000),
    "many fields": ({"propertyNames": {"maxLength": 2}}, {f"long{n}": 1 for n in range(50_000)}),
    "many unknown fields": (
        {"properties": {f"p{n}": {} for n in range(1_400)}, "additionalProperties": False},
        {f"q{n}": 1 for n in range(2_000)},
    ),
}


@pytest.mark.parametrize("case", EXPLAINED)
def test_explaining_ends_when_its_time_is_up_and_still_says_something(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, value = EXPLAINED[case]
    looked = count()  # each reading of the clock is a millisecond later
    for module in ("schema", "schema_queries"):
        path = f"portico.core.definitions.{module}.thread_time"
        monkeypatch.setattr(path, lambda: next(looked) / 1000)

    assert Schema(source, foreign=True).problems(value, 1_000_000)

    assert next(looked) < 50


@pytest.mark.parametrize(
    "source",
    [
        {"properties": {f"p{n}": {"type": "string"} for n in range(2_000)}},
        {"properties": {f"p{n}": {"pattern": f"^(a|b{n})+$"} for n in range(400)}},
        {"properties": {f"p{n}": {"pattern": f"(?=b{n}).*"} for n in range(40)}},
        {"enum": [10**4_000 + n for n in range(10)]},
    ],
)
def test_a_schema_that_takes_long_to_compile_is_left_to_its_server(source: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match=r"more than 3000 values|too long to compile"):
        Schema(source, foreign=True).check()
    Schema(source).check()


def test_a_small_value_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema({"type": "array", "items": {"$ref": "#"}}, foreign=True)
    schema.check()
    monkeypatch.setattr(SchemaLimits, "excess", lambda *_: pytest.fail("measured"))

    assert schema.problems([[], [[]]], 10) == []


def test_the_whole_suite_is_checked_within_the_bound_for_servers() -> None:
    unchecked = []
    for case in cases():
        try:
            limits = SchemaLimits(case.schema, FOREIGN_WORK)
        except SchemaError:
            continue
        if excess := limits.excess(case.data):
            unchecked.append(f"{case.file}: {case.group}: {excess}")

    assert unchecked == []


def tools() -> Iterator[dict[str, Any]]:
    for line in (shared("search/catalog") / "corpus.jsonl").read_bytes().splitlines():
        tool = msgspec.json.decode(line)
        source = tool.get("inputSchema") or tool.get("input_schema") or tool.get("parameters")
        if isinstance(source, dict):
            yield source


def test_real_tools_are_checked_with_thousands_of_values() -> None:
    seen = 0
    for source in tools():
        try:
            Schema(source).check()
        except SchemaError:
            continue
        seen += 1
        Schema(source, foreign=True).check()
        excess = SchemaLimits(source, FOREIGN_WORK).excess({"a": [{"b": n} for n in range(1_000)]})
        assert not excess, (source, excess)

    assert seen > 1_000
