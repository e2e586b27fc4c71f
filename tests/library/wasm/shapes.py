"""Values of the types of WIT, as Hypothesis makes them."""

import base64
from typing import Any

from hypothesis import strategies as st

from portico.library.wit.wit_types import INTEGERS, Shape
from portico.library.wit.wit_values import is_nullable

# QuickJS keeps integers of 64 bits as numbers, which are exact up to here.
SAFE = 2**53 - 1
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def json_of(shape: Shape | None, *, safe: bool) -> st.SearchStrategy[Any]:
    """Return a strategy for the JSON of a type; with `safe`, integers that JavaScript keeps."""
    if shape is None:
        return st.none()
    if shape.kind in INTEGERS:
        least, greatest = INTEGERS[shape.kind]
        return (
            st.integers(max(least, -SAFE), min(greatest, SAFE))
            if safe
            else st.integers(least, greatest)
        )
    parts = [json_of(part, safe=safe) for part in shape.parts]
    return _strategy(shape, parts)


def _strategy(shape: Shape, parts: list[st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    names = shape.names
    match shape.kind:
        case "bool":
            return st.booleans()
        case "f32":
            return st.floats(width=32, allow_nan=False, allow_infinity=False)
        case "f64":
            numbers = st.floats(allow_nan=False, allow_infinity=False)
            return st.one_of(numbers, st.sampled_from(["NaN", "Infinity", "-Infinity"]))
        case "char":
            return st.characters(exclude_categories=["Cs"])
        case "string":
            return _TEXT
        case "bytes":
            return st.binary(max_size=40).map(lambda data: base64.b64encode(data).decode())
        case "list":
            return st.lists(parts[0], max_size=4)
        case "tuple":
            return st.tuples(*parts).map(list)
        case "record":
            return st.fixed_dictionaries(dict(zip(names, parts, strict=True)))
        case "enum":
            return st.sampled_from(names)
        case "flags":
            return st.sets(st.sampled_from(names)).map(lambda one: [n for n in names if n in one])
        case "option":
            some = st.fixed_dictionaries({"some": parts[0]})
            return st.one_of(st.none(), some if is_nullable(shape.parts[0]) else parts[0])
        case "result":
            pairs = zip(names, parts, strict=True)
            return st.one_of([st.fixed_dictionaries({name: part}) for name, part in pairs])
        case _:
            return st.one_of([_case(*case) for case in zip(names, shape.parts, parts, strict=True)])


def _case(
    name: str, shape: Shape | None, part: st.SearchStrategy[Any]
) -> st.SearchStrategy[dict[str, Any]]:
    if shape is None:
        return st.just({"tag": name})
    return st.fixed_dictionaries({"tag": st.just(name), "value": part})
