"""Parameters in one line: names, references and limits."""

from typing import Any

import pytest

from portico.core.catalog.parameter_summary import parameters

PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "at": {"$ref": "#/$defs/Point"}},
    "required": ["city"],
}
POINT = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}}
NODE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "below": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
    },
}


@pytest.mark.parametrize(
    ("schema", "short"),
    [
        ({}, ""),
        (None, ""),
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, "a:string*"),
        ({"properties": {"a": {"type": ["string", "null"]}}}, "a:string|null"),
        ({"properties": {"a": {"type": "array", "items": {"type": "integer"}}}}, "a:integer[]"),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, "a:string|null"),
        ({"properties": {"a": {"enum": [1, 2]}, "b": {}, "c": True}}, "a:enum, b:any, c:any"),
        ({"properties": {"a": {"type": "array"}}, "required": "a"}, "a:any[]"),
        ({"properties": {"a": {}, "b": {}}, "required": ["b", ["a"]]}, "b:any*, a:any"),
        ({"properties": {"a": {"enum": ["x", "y"]}, "b": {"const": "z"}}}, "a:x|y, b:z"),
    ],
)
def test_types_are_named(schema: Any, short: str) -> None:
    assert parameters(schema, nulls=True) == short


def test_null_is_left_out_for_models() -> None:
    maybe = {"anyOf": [{"type": "string"}, {"type": "null"}]}

    assert parameters({"properties": {"a": maybe, "b": {"type": "null"}}}) == "a:string, b:null"


@pytest.mark.parametrize(
    ("field", "short"),
    [
        ({"$ref": "#/$defs/Place"}, "a:{city:string*, at:{x:number, y:number}}"),
        ({"type": "array", "items": {"$ref": "#/$defs/Point"}}, "a:{x:number, y:number}[]"),
        ({"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]}, "a:{x:number, y:number}"),
        ({"allOf": [{"$ref": "#/$defs/Point"}]}, "a:{x:number, y:number}"),
        ({"$ref": "#/$defs/Unit"}, "a:C|F"),
        ({"type": "array", "items": {"$ref": "#/$defs/Unit"}}, "a:(C|F)[]"),
        ({"$ref": "#/$defs/Node"}, "a:{name:string, below:object[]}"),
        ({"$ref": "#/$defs/Nobody"}, "a:any"),
        ({"$ref": "https://example.com/a"}, "a:any"),
        ({"$ref": "#/$defs/Circle"}, "a:object"),
    ],
)
def test_references_are_followed(field: dict[str, Any], short: str) -> None:
    definitions = {
        "Place": PLACE,
        "Point": POINT,
        "Node": NODE,
        "Unit": {"enum": ["C", "F"]},
        "Circle": {"$ref": "#/$defs/Circle"},
    }
    assert parameters({"properties": {"a": field}, "$defs": definitions}) == short


def test_a_line_ends_however_large_the_schema_is() -> None:
    definitions = {
        f"d{n}": {
            "type": "object",
            "properties": {f"p{m}": {"$ref": f"#/$defs/d{n + 1}"} for m in range(50)},
        }
        for n in range(50)
    }
    schema = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions}

    assert len(parameters(schema)) < 10_000
