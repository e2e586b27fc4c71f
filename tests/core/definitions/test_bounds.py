"""No schema and no value can block or crash the process.

Most of these cases would run for minutes or forever without a limit.
"""

from collections.abc import Callable
from typing import Any

import pytest

from portico.core.definitions.patterns import pattern_cost
from portico.core.definitions.schema import Schema, SchemaError, describe, structural_check
from portico.core.definitions.schema_limits import SchemaLimits

pytestmark = pytest.mark.timeout(60)


def nested(depth: int, wrap: Callable[[Any], Any], leaf: Any) -> Any:
    for _ in range(depth):
        leaf = wrap(leaf)
    return leaf


# Schemas that are too large.


@pytest.mark.parametrize("depth", [200, 5_000, 100_000])
def test_a_schema_nested_beyond_reason_is_refused(depth: int) -> None:
    schema = nested(depth, lambda inner: {"items": inner}, {})

    with pytest.raises(SchemaError, match="deeper than"):
        structural_check(schema)
    with pytest.raises(SchemaError, match="deeper than"):
        Schema(schema).check()


def test_a_schema_of_reasonable_depth_is_fine() -> None:
    schema = Schema(nested(40, lambda inner: {"properties": {"a": inner}}, {"type": "string"}))
    assert schema.problems(nested(40, lambda inner: {"a": inner}, "x")) == []
    assert schema.problems(nested(40, lambda inner: {"a": inner}, 1))


def test_data_in_a_schema_counts_as_well() -> None:
    with pytest.raises(SchemaError, match="deeper than"):
        structural_check({"default": nested(1_000, lambda inner: [inner], 1)})


def test_a_schema_of_too_many_values_is_refused() -> None:
    with pytest.raises(SchemaError, match="more than 50000"):
        structural_check({"properties": {f"p{n}": {"type": "string"} for n in range(30_000)}})


def test_a_schema_that_holds_itself_is_refused() -> None:
    schema: dict[str, Any] = {}
    schema["not"] = schema

    with pytest.raises(SchemaError, match="deeper than"):
        structural_check(schema)


# Schemas whose references multiply.


def doubling(keyword: str, levels: int) -> dict[str, Any]:
    """Each level applies the next one twice."""
    parts: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, levels + 1):
        parts[f"d{level}"] = {keyword: [{"$ref": f"#/$defs/d{level - 1}"}] * 2}
    return {"$defs": parts, "$ref": f"#/$defs/d{levels}"}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_references_that_unfold_without_end_are_refused(keyword: str) -> None:
    with pytest.raises(SchemaError, match="expands"):
        Schema(doubling(keyword, 60)).check()


def test_other_ways_to_refer_count_as_well() -> None:
    parts: dict[str, Any] = {"d0": {"$anchor": "a0", "type": "string"}}
    for level in range(1, 60):
        twice = [{"$dynamicRef": f"#a{level - 1}"}, {"$ref": f"#/%24defs/d{level - 1}"}]
        parts[f"d{level}"] = {"$dynamicAnchor": f"a{level}", "anyOf": twice}

    with pytest.raises(SchemaError, match="expands"):
        Schema({"$defs": parts, "$ref": "#a59"}).check()


def test_a_long_chain_of_references_is_refused() -> None:
    parts: dict[str, Any] = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(5_000)}

    with pytest.raises(SchemaError, match="nested more than"):
        Schema({"$defs": {**parts, "d5000": {}}, "$ref": "#/$defs/d0"}).check()


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_explaining_doubled_alternatives_takes_a_moment(keyword: str) -> None:
    schema = Schema(doubling(keyword, 15))

    assert schema.problems(7)


def test_a_schema_that_refers_to_itself_is_fine() -> None:
    tree = {"type": "object", "additionalProperties": {"$ref": "#"}}

    assert Schema(tree).problems({"a": {"b": {}}}) == []
    assert Schema(tree).problems({"a": {"b": 1}})
    # A cycle of references that never checks the value must not hang.
    circle = {"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#"}}}
    assert isinstance(Schema(circle).problems(1), list)


# Values that are too large.

TREE = {
    "anyOf": [
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "array", "maxItems": 5, "items": {"$ref": "#"}},
        {"type": "string"},
    ]
}


@pytest.mark.parametrize("depth", [10, 50, 400])
def test_explaining_a_deep_value_takes_a_moment(depth: int) -> None:
    assert Schema(TREE).problems(nested(depth, lambda inner: [inner], 1))


@pytest.mark.parametrize("depth", [501, 100_000])
def test_a_value_too_deep_for_a_recursive_schema_is_a_problem(depth: int) -> None:
    (problem,) = Schema(TREE).problems(nested(depth, lambda inner: [inner], "x"))

    assert problem.message == "nested deeper than 500 levels"


@pytest.mark.parametrize("schema", [{"type": "array"}, {"uniqueItems": True}, {"enum": [[[1]]]}])
def test_a_deep_value_does_no_harm_to_other_schemas(schema: Any) -> None:
    deep = nested(50_000, lambda inner: [inner], 1)

    assert isinstance(Schema(schema).problems([deep, deep]), list)


def test_a_list_with_many_problems_takes_a_moment() -> None:
    schema = Schema({"items": {"properties": {"a": {"type": "integer"}}}})

    assert len(schema.problems([{"a": "x"}] * 200_000)) == 10


def test_an_object_with_many_unknown_fields_takes_a_moment() -> None:
    known: dict[str, Any] = {f"field{n}": {} for n in range(2_000)}
    schema = Schema({"properties": known, "additionalProperties": False})

    assert len(schema.problems({f"feild{n}": 1 for n in range(50_000)})) == 10


# Patterns.


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^(a+)+$", "a" * 100_000 + "!"),
        ("(a|a)*b", "a" * 100_000),
        ("^(a|a)*(?=x)$", "a" * 10_000),
        ("(?=.*z)x", "y" * 10_000),
        (r"(.*)\1z", "a" * 10_000),
        ("(a+(?=a*z)|a)+$", "a" * 2_000),
        ("(a|b)*a(a|b){300}c", "ab" * 20_000),
        ("^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 50_000),
    ],
)
def test_a_hostile_pattern_takes_a_moment(pattern: str, text: str) -> None:
    assert Schema({"pattern": pattern}).problems(text)
    assert Schema({"patternProperties": {pattern: False}}).problems({text: 1}) is not None


@pytest.mark.parametrize("pattern", ["(a?){20000}b", "(((a{100}){100}){100})", "[^a]{1,100000}"])
def test_an_enormous_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(SchemaError, match=r"too large.*maxLength"):
        Schema({"pattern": pattern}).check()


def test_more_text_than_a_pattern_can_be_given_is_a_problem() -> None:
    text_of_problems = describe(Schema({"pattern": "(a|b)*a(a|b){900}c"}).problems("ab" * 500_000))

    assert text_of_problems.startswith("too long to match against patterns: over ")


@pytest.mark.parametrize(
    "pattern", [r"^\w{1,255}$", r"^.{1,500}$", "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$"]
)
def test_ordinary_patterns_are_fine(pattern: str) -> None:
    Schema({"pattern": pattern}).check()
    assert not SchemaLimits({"pattern": pattern}).excess("x" * 100_000)


def test_text_that_meets_no_pattern_is_not_limited() -> None:
    path = {"type": "string", "pattern": r"^(?!.*\.\.).*$"}
    schema = Schema({"properties": {"path": path, "content": {"type": "string"}}})

    assert schema.problems({"path": "a/b.txt", "content": "x" * 3_000_000}) == []
    assert schema.problems({"path": "a/../b.txt", "content": ""})


def test_text_is_not_limited_where_there_are_no_patterns() -> None:
    schema = Schema({"$defs": {"text": {"type": "string"}}, "$ref": "#/$defs/text"})

    assert schema.problems("x" * 5_000_000) == []


def test_a_pattern_reached_by_reference_limits_all_text() -> None:
    schema = {
        "properties": {"a": {"pattern": "(?=.*z)x"}, "b": {"$ref": "#/properties/a"}},
    }

    assert SchemaLimits(schema).excess({"b": "x" * 200_000})


@pytest.mark.parametrize(
    ("pattern", "cost"),
    [
        ("abc", 3),
        ("a{5}", 5),
        ("a{2,5}b", 6),
        ("[a-z]]{3}", 4),
        (r"\d{4}-\d{2}", 7),
        ("(ab){10}", 30),
        ("((a{10}){10}){2}", 222),
        ("{", 1),
        ("a{x}", 4),
        (")", 1),
        ("", 0),
    ],
)
def test_counted_repetitions_count(pattern: str, cost: int) -> None:
    assert pattern_cost(pattern) == cost
