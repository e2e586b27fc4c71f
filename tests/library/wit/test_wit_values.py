"""JSON goes into real guests and comes back the same; what has not the type never gets there."""

from contextlib import suppress
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.library.wit.wit_schema import schema_of
from portico.library.wit.wit_types import INTEGERS, Shape
from portico.library.wit.wit_values import Mismatch
from tests.library.wasm import building
from tests.library.wasm.instances import entered, exports
from tests.library.wasm.shapes import json_of

ECHO = "portico-tests:kitchen/echo@0.1.0"
# More than 16 flat values, so all are passed in memory, and the guest returns where they are.
WIDE = (
    "(tuple u64 s64 u32 s32 u16 s16 u8 s8 f32 f64 char bool string (list u8) (list string) "
    "(option (option u64)) (result (list s64) (error string)) (list (tuple u8 (option f32))))"
)
WAT_ECHO = f"""(component
  (core module $m
    (memory (export "memory") 8)
    (global $next (mut i32) (i32.const 64))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local i32)
      (local.set 4 (i32.and (i32.add (global.get $next) (i32.const 15)) (i32.const -16)))
      (global.set $next (i32.add (local.get 4) (local.get 3)))
      (local.get 4))
    (func (export "same") (param i32) (result i32) (local.get 0))
    (func (export "same64") (param i64) (result i64) (local.get 0)))
  (core instance $i (instantiate $m))
  (func (export "wide") (param "value" {WIDE}) (result {WIDE})
    (canon lift (core func $i "same") (memory (core memory $i "memory"))
      (realloc (core func $i "realloc"))))
  (func (export "of-u64") (param "value" u64) (result u64) (canon lift (core func $i "same64")))
  (func (export "of-s64") (param "value" s64) (result s64) (canon lift (core func $i "same64"))))"""


def kitchen() -> Any:
    return building.javascript("kitchen.js", building.WIT / "kitchen", "kitchen")


def echoes() -> list[str]:
    return [name for interface, name in exports(kitchen()).functions if interface == ECHO]


def shape(function: str, source: Any = None) -> Shape:
    interface = ECHO if source is None else ""
    return exports(source or kitchen()).functions[interface, function].signature.params[0][1]


@pytest.mark.slow
def test_every_type_comes_back_from_a_guest_as_it_went_in() -> None:
    guest = entered(kitchen())
    for function in echoes():
        _echo(guest, function)


def _echo(guest: Any, function: str) -> None:
    kind = shape(function)
    schema = jsonschema_rs.validator_for(schema_of(kind))
    is_in_list = function in {"of-outcome", "of-bare"}

    @settings(max_examples=40, deadline=None)
    @given(json_of(kind, safe=True))
    def check(value: Any) -> None:
        assert schema.is_valid(value), (function, value)
        returned = guest.call(ECHO, function, value)
        assert returned == ([value] if is_in_list else value), function

    check()


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_integers_of_64_bits_and_nested_values_are_exact(data: st.DataObject) -> None:
    value = data.draw(json_of(shape("wide", WAT_ECHO), safe=False))
    returned = entered(WAT_ECHO).call("", "wide", value)
    assert returned == value


@pytest.mark.parametrize("value", [0, 2**53 + 1, 2**63, 2**64 - 1])
def test_a_u64_is_exact_to_its_greatest_value(value: int) -> None:
    assert entered(WAT_ECHO).call("", "of-u64", value) == value


@pytest.mark.parametrize("value", [-(2**63), -(2**53) - 1, -1, 2**63 - 1])
def test_an_s64_is_exact_to_its_limits(value: int) -> None:
    assert entered(WAT_ECHO).call("", "of-s64", value) == value


@pytest.mark.parametrize("kind", [*INTEGERS])
def test_numbers_out_of_range_are_refused_before_the_guest_sees_them(kind: str) -> None:
    guest = entered(kitchen())
    least, greatest = INTEGERS[kind]
    for value in (least - 1, greatest + 1):
        with pytest.raises(Mismatch, match=f"value: {value} is out of range; a {kind} is"):
            guest.call(ECHO, f"of-{kind}", value)
    assert guest.call(ECHO, "of-bool", True) is True


WRONG: list[tuple[str, Any, str]] = [
    ("of-u8", 300, "value: 300 is out of range; a u8 is 0 to 255"),
    ("of-u8", True, "value: must be an integer, not true"),
    ("of-u8", 1.5, "value: must be an integer, not 1.5"),
    ("of-u8", "1", "value: must be an integer, not '1'"),
    ("of-u64", 1e300, "value: must be an integer, not 1e+300"),
    ("of-bool", 1, "value: must be true or false, not 1"),
    ("of-f32", 1e39, "value: 1e+39 is out of range; it must fit an f32"),
    ("of-f64", 10**400, "value: 1000000000000000000000000000000000000000 is out of range"),
    ("of-f64", "nan", "value: must be a number, not 'nan'"),
    ("of-char", "ab", "value: must be a string of one character, not 'ab'"),
    ("of-char", "", "value: must be a string of one character, not ''"),
    ("of-char", "\ud800", "value: has half a surrogate pair"),
    ("of-string", "a\udc00", "value: has half a surrogate pair"),
    ("of-string", None, "value: must be a string, not null"),
    ("of-bytes", "*", "value: is not base64"),
    ("of-bytes", [1, 2], "value: must be a string of base64, not an array"),
    ("of-strings", {}, "value: must be an array, not an object"),
    ("of-strings", ["a", 1], "value.1: must be a string, not 1"),
    ("of-pair", [1], "value: must have 2 elements, not 1"),
    ("of-colour", "green", "value: must be one of red, dark-green, blue, not 'green'"),
    ("of-rights", ["read", "read"], "value: names a flag twice"),
    ("of-rights", ["fly"], "value.0: must be one of read, write, run-it, not 'fly'"),
    ("of-point", {"x": 1}, "value: lacks 'y'"),
    ("of-point", {"x": 1, "y": 2, "z": 3}, "value: has no field 'z'"),
    ("of-point", {"x": 1, "y": 2**31}, "value.y: 2147483648 is out of range"),
    ("of-shape", {"tag": "empty", "value": 1}, "value: the case 'empty' has no value"),
    ("of-shape", {"tag": "circle"}, "value: the case 'circle' needs a value"),
    ("of-shape", {"tag": "square"}, "value: must be one of empty, circle"),
    ("of-shape", {"tag": ["circle"]}, "value: must be one of empty, circle"),
    ("of-shape", "empty", 'value: must be an object {"tag", "value"}, not'),
    ("of-shape", {"tag": "polygon", "value": [{"x": 1, "y": None}]}, "value.value.0.y: must be"),
    ("of-twice", 4, 'value: must be null or an object {"some"}, not 4'),
    ("of-outcome", {"ok": "a", "err": 1}, 'value: must be an object {"ok"} or {"err"}'),
    ("of-bare", {"ok": 1}, "value: 'ok' has no value here, so it must be null"),
]


@pytest.mark.parametrize("function, value, message", WRONG)
def test_a_value_of_another_type_is_refused_with_its_place(
    function: str, value: Any, message: str
) -> None:
    export = exports(kitchen()).functions[ECHO, function]
    with pytest.raises(Mismatch) as caught:
        export.checked((value,))
    assert message in str(caught.value)


def test_a_field_that_is_an_option_may_be_left_out() -> None:
    returned = entered(kitchen()).call(ECHO, "of-point", {"x": 1, "y": 2.0})
    assert returned == {"x": 1, "y": 2, "label": None}


def test_cases_that_wasmtime_confuses_arrive_as_they_were_sent() -> None:
    guest = entered(kitchen())
    for case, value in [("truth", True), ("truth", False), ("count", 1), ("count", 0)]:
        sent = {"tag": case, "value": value}
        returned: Any = guest.call(ECHO, "of-count", sent)
        assert (returned, type(returned["value"])) == (sent, type(value))
    others: list[tuple[str, object]] = [("number", 5), ("maybe", None), ("maybe", "x")]
    for case, other in others:
        sent = {"tag": case, "value": other}
        assert guest.call(ECHO, "of-maybe", sent) == sent


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = st.sampled_from(["tag", "value", "x", "y", "some", "ok"])
ANY_JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(ANY_JSON)
def test_the_check_takes_only_what_the_schema_takes(value: Any) -> None:
    for name in ("of-nested", "of-shape", "of-outcome", "of-twice", "of-rights", "of-point"):
        export = exports(kitchen()).functions[ECHO, name]
        with suppress(Mismatch):
            export.checked((value,))
            assert jsonschema_rs.is_valid(schema_of(export.signature.params[0][1]), value)
