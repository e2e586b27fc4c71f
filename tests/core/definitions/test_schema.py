"""The violations of a schema, in words."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.definitions.schema import Schema, SchemaError, describe

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "units": {"enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "maxItems": 3},
        "code": {"type": "string", "pattern": "^[A-Z]{2}$"},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {
        "item": {
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
            "additionalProperties": False,
        }
    },
}


def described(schema: Any, instance: Any) -> str:
    return describe(Schema(schema).problems(instance))


def weather(**arguments: Any) -> str:
    return described(WEATHER, {"city": "Oslo", **arguments})


def test_a_valid_value_has_no_problems() -> None:
    assert Schema(WEATHER).problems({"city": "Oslo", "days": 3}) == []


def test_a_missing_field_is_named() -> None:
    assert described(WEATHER, {}) == "city: missing (required)"


def test_a_value_that_is_no_option_is_shown_with_the_options() -> None:
    assert weather(units="kelvin") == 'units: "kelvin" is not one of "celsius", "fahrenheit"'


def test_a_value_of_the_wrong_type_is_shown_with_both_types() -> None:
    assert weather(days="3") == 'days: expected integer, got string "3"'
    assert weather(days=None) == "days: expected integer, got null"
    assert weather(days=[3]) == "days: expected integer, got array"
    assert weather(days=True) == "days: expected integer, got boolean true"


def test_an_unknown_field_is_shown_with_the_nearest_known_one() -> None:
    assert described(WEATHER, {"ctiy": "Oslo"}) == (
        'city: missing (required); unknown field "ctiy" (did you mean "city"?)'
    )
    assert weather(zzzzzz=1) == 'unknown field "zzzzzz"'


def test_a_field_that_is_given_already_is_not_suggested() -> None:
    assert weather(ciity="Rome") == 'unknown field "ciity"'


def test_a_problem_deep_inside_has_its_path() -> None:
    problems = Schema(WEATHER).problems({"city": "Oslo", "items": [{"name": "a"}, {"nam": 1}]})

    assert [problem.path for problem in problems] == ["items[1].name", "items[1]"]
    assert str(problems[1]) == 'items[1]: unknown field "nam" (did you mean "name"?)'


def test_limits_are_told_with_what_was_given() -> None:
    assert weather(days=0) == "days: 0 is less than the minimum 1"
    assert weather(days=99) == "days: 99 is more than the maximum 14"
    assert weather(city="O") == "city: has 1 character, must have at least 2"
    assert weather(items=[{"name": "a"}] * 4) == "items: has 4 items, must have at most 3"
    assert weather(code="no1") == 'code: "no1" does not match the pattern ^[A-Z]{2}$'
    assert described({"multipleOf": 5}, 7) == "7 is not a multiple of 5"
    assert described({"uniqueItems": True}, [1, 1.0]) == "has the same item more than once"
    assert described({"const": {"a": 1}}, {"a": 2}) == 'must be {"a": 1}, not {"a": 2}'
    assert described({"exclusiveMinimum": 1}, 1) == "must be more than 1, not 1"
    assert described({"enum": ["only"]}, 1) == 'must be "only", not 1'


def test_a_problem_tells_a_program_what_was_expected() -> None:
    (problem,) = Schema(WEATHER).problems({"city": "Oslo", "units": "kelvin"})

    assert (problem.path, problem.keyword) == ("units", "enum")
    assert problem.expected == ["celsius", "fahrenheit"]


def test_a_field_required_by_another_says_so() -> None:
    schema = {"dependentRequired": {"card": ["expiry"]}}

    assert described(schema, {"card": 1}) == 'expiry: missing (required when "card" is given)'


def test_names_that_are_no_plain_words_are_quoted() -> None:
    schema = {"additionalProperties": {"type": "integer"}}

    assert described(schema, {"a.b": "x"}) == '["a.b"]: expected integer, got string "x"'
    assert described(schema, {"a_b-c$": "x"}) == 'a_b-c$: expected integer, got string "x"'


# Alternatives.


def test_alternatives_of_other_types_are_told_as_types() -> None:
    schema = {"anyOf": [{"type": "string"}, {"type": ["integer", "null"]}]}

    assert described(schema, [1]) == "expected string or integer or null, got array"


SHAPES = {
    "oneOf": [
        {
            "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
            "required": ["kind", "radius"],
        },
        {
            "properties": {"kind": {"const": "square"}, "side": {"type": "number"}},
            "required": ["kind", "side"],
        },
    ]
}


def test_the_alternative_with_the_right_tag_is_the_one_explained() -> None:
    assert described(SHAPES, {"kind": "square", "side": "x"}) == (
        'side: expected number, got string "x"'
    )


def test_a_tag_that_no_alternative_has_is_shown_with_all_tags() -> None:
    assert described(SHAPES, {"kind": "cube", "side": 1}) == (
        'kind: "cube" is not one of "circle", "square"'
    )


def test_a_nullable_value_is_explained_by_what_is_not_null() -> None:
    schema = {"anyOf": [{"type": "null"}, WEATHER["$defs"]["item"]]}  # type: ignore[index]

    assert described(schema, {}) == "name: missing (required)"


def test_alternatives_that_are_equally_near_are_all_told() -> None:
    schema = {"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}

    assert described(schema, {}) == (
        "matches none of 2 alternatives: "
        "(1) phone: missing (required) or (2) email: missing (required)"
    )


def test_fitting_too_many_alternatives_is_told() -> None:
    schema = {"oneOf": [{"required": ["a"]}, {"required": ["b"]}, {"required": ["c"]}]}

    assert (
        described(schema, {"a": 1, "c": 1})
        == "matches alternatives 1 and 3 of 3, must match exactly one"
    )


def test_of_many_alternatives_the_last_counts_too() -> None:
    schema = {"anyOf": [{"const": n} for n in range(50)], "maximum": 40}

    assert described(schema, 45) == "45 is more than the maximum 40"


def test_conditions_are_followed_to_what_they_ask() -> None:
    schema = {
        "if": {"properties": {"by": {"const": "phone"}}},
        "then": {"required": ["number"]},
        "else": {"required": ["address"]},
    }

    assert described(schema, {"by": "phone"}) == "number: missing (required)"
    assert described(schema, {"by": "mail"}) == "address: missing (required)"


def test_what_must_not_match_is_shown() -> None:
    assert described({"not": {"type": "string"}}, "x") == 'must not match {"type": "string"}'


def test_unevaluated_fields_are_named() -> None:
    schema = {"allOf": [{"properties": {"name": {}}}], "unevaluatedProperties": False}

    assert described(schema, {"nmae": 1}) == 'unknown field "nmae" (did you mean "name"?)'


# Values of every kind and size.


def test_long_values_are_shortened() -> None:
    (problem,) = Schema({"type": "integer"}).problems("x" * 1_000_000)

    assert len(problem.message) < 120
    assert problem.message.endswith('…"')


@pytest.mark.parametrize(
    "instance",
    ["x" * 10_000, [["y" * 500] * 500] * 50, {"k" * 300: "v" * 300}, 10**5000],
    ids=["text", "lists", "object", "number"],
)
def test_a_message_is_short_whatever_the_value(instance: Any) -> None:
    problems = Schema({"enum": ["a" * 1000, *range(1000)], "not": {}}).problems(instance)

    assert problems
    assert all(len(problem.message) < 700 for problem in problems)


def test_there_are_at_most_ten_problems() -> None:
    problems = Schema({"items": {"type": "integer"}}).problems(["x"] * 1000)

    assert len(problems) == 10


def test_an_integer_is_a_number_without_a_fraction() -> None:
    integer = Schema({"type": "integer"})

    assert integer.problems(1.0) == []
    assert integer.problems(10**400) == []
    assert integer.problems(1e300) == []
    assert integer.problems(1.5)
    assert integer.problems(True)


def test_numbers_beyond_64_bits_are_compared_exactly() -> None:
    assert Schema({"maximum": 2**64}).problems(2**64) == []
    assert Schema({"maximum": 2**64}).problems(2**64 + 1)
    assert Schema({"const": 2**70}).problems(2**70) == []
    assert Schema({"const": 2**70}).problems(2**70 + 1)
    assert Schema({"multipleOf": 3}).problems(3 * 10**30) == []


def test_numbers_are_equal_whatever_their_notation() -> None:
    assert Schema({"enum": [1]}).problems(1.0) == []
    assert Schema({"const": 0}).problems(-0.0) == []
    assert Schema({"const": 1}).problems(True)


@pytest.mark.parametrize("instance", [object(), {1: 2}, "\ud800", b"bytes", {"a": object()}])
def test_what_is_not_json_is_a_problem_and_not_an_exception(instance: Any) -> None:
    problems = Schema({"properties": {"a": {"type": "string"}}, "minLength": 1}).problems(instance)

    assert all("cannot be checked" in problem.message for problem in problems)


def test_what_is_not_json_may_stand_beside_other_problems() -> None:
    schema = {"minProperties": 2, "properties": {"a": {"type": "string"}}}

    assert described(schema, {"a": object()}) == "has 1 field, must have at least 2"


def test_format_only_annotates_in_every_dialect() -> None:
    for dialect in ("https://json-schema.org/draft/2020-12", "http://json-schema.org/draft-07"):
        schema = {"$schema": f"{dialect}/schema", "format": "date-time"}
        assert Schema(schema).problems("yesterday") == []


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcd"), inner),
    max_leaves=12,
)
schemas = st.recursive(
    st.sampled_from(
        [
            True,
            {"type": "string"},
            {"type": ["integer", "null"]},
            {"enum": [1, "a", None]},
            {"minimum": 2},
            {"minLength": 2},
            {"required": ["a"]},
            {"const": 0},
            {"maxItems": 1},
            {"pattern": "^a"},
        ]
    ),
    lambda inner: st.one_of(
        st.builds(lambda s: {"properties": {"a": s}, "additionalProperties": False}, inner),
        st.builds(lambda s: {"items": s}, inner),
        st.builds(lambda s: {"not": s}, inner),
        st.builds(lambda s, t: {"anyOf": [s, t]}, inner, inner),
        st.builds(lambda s, t: {"oneOf": [s, t]}, inner, inner),
        st.builds(lambda s, t: {"if": s, "then": t}, inner, inner),
    ),
    max_leaves=6,
)


@given(schemas, json)
def test_there_is_a_problem_exactly_when_the_validator_says_so(schema: Any, instance: Any) -> None:
    import jsonschema_rs

    problems = Schema(schema).problems(instance)

    assert (problems == []) is jsonschema_rs.is_valid(schema, instance)
    assert all(problem.message for problem in problems)


# Invalid schemas.


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "strnig"}, 'type: "strnig" is not a JSON Schema type'),
        ({"pattern": "("}, "is not a valid regular expression"),
        ({"$ref": "http://example.com/a.json"}, "never fetched"),
        ({"$ref": "file:///etc/passwd"}, "never fetched"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}}, r"properties.a.\$ref: .* is not in this"),
        ({"$schema": "http://json-schema.org/draft-03/schema#"}, "2020-12, 2019-09, draft-07"),
        (
            {"$defs": {"a": {"$schema": "urn:mine"}}},
            r"\$defs.a.\$schema: .* not a supported dialect",
        ),
        ({"dependentRequired": {"a": "b"}}, "dependentRequired.a: must be a list"),
        ([], "a schema is an object or a boolean"),
    ],
)
def test_a_wrong_schema_is_refused_where_it_is_wrong(schema: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        Schema(schema).check()


def test_an_error_names_whose_schema_it_is() -> None:
    with pytest.raises(SchemaError) as caught:
        Schema({"type": 7}, where="tool add: inputSchema").check()

    assert str(caught.value) == "tool add: inputSchema: type: 7 is not a JSON Schema type"
    assert (caught.value.source, caught.value.field) == ("tool add: inputSchema", "type")


def test_a_wrong_schema_is_also_refused_by_its_first_use() -> None:
    with pytest.raises(SchemaError, match="regular expression"):
        Schema({"pattern": "["}).problems("x")


@pytest.mark.parametrize(
    ("dialect", "schema", "bad"),
    [
        ("https://json-schema.org/draft/2019-09/schema", {"items": [{"type": "string"}]}, [1]),
        ("http://json-schema.org/draft-07/schema#", {"dependencies": {"a": ["b"]}}, {"a": 1}),
        ("http://json-schema.org/draft-06/schema", {"contains": {"const": 1}}, [2]),
        ("http://json-schema.org/draft-04/schema#", {"minimum": 1, "exclusiveMinimum": True}, 1),
    ],
)
def test_the_older_dialects_work_as_they_did(dialect: str, schema: Any, bad: Any) -> None:
    problems = Schema({"$schema": dialect, **schema}).problems(bad)

    assert len(problems) == 1
    assert problems[0].message != "does not match the schema"


def test_beside_a_reference_older_dialects_ignore_everything() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"text": {"$id": "#text", "type": "string"}},
        "properties": {"a": {"$ref": "#text", "maxLength": 1}},
    }

    assert Schema(schema).problems({"a": "long"}) == []
    assert described(schema, {"a": 1}) == "a: expected string, got integer 1"


def test_local_references_of_all_kinds_work() -> None:
    schema = {
        "$id": "https://example.com/root",
        "$defs": {
            "anchored": {"$anchor": "here", "type": "string"},
            "embedded": {"$id": "inner", "$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n"},
        },
        "properties": {
            "a": {"$ref": "#here"},
            "b": {"$ref": "inner"},
            "c": {"$ref": "https://example.com/inner#/$defs/n"},
            "d": {"$ref": "#"},
        },
    }

    assert Schema(schema).problems({"a": "x", "b": 1, "c": 2, "d": {"a": "y"}}) == []
    assert described(schema, {"a": 1, "b": "x", "c": "x", "d": {"a": 1}}) == (
        "a: expected string, got integer 1; "
        'b: expected integer, got string "x"; '
        'c: expected integer, got string "x"; '
        "d.a: expected string, got integer 1"
    )


def test_the_validator_is_loaded_at_the_first_use() -> None:
    code = (
        "import sys\n"
        "from portico.core.definitions.schema import Schema, structural_check\n"
        "structural_check({'type': 'object', '$ref': '#/$defs/a', '$defs': {'a': {}}})\n"
        "schema = Schema({'type': 'string'})\n"
        "assert 'jsonschema_rs' not in sys.modules\n"
        "schema.problems('x')\n"
        "assert 'jsonschema_rs' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
