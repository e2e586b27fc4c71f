"""Writes the JSON Schema of the types of WIT, for the JSON that `wit_values` takes and returns."""

from collections.abc import Callable
from typing import Any

from portico.library.wit.wit_types import INTEGERS, Shape, WitFunction
from portico.library.wit.wit_values import NOT_FINITE, is_nullable

Schema = dict[str, Any]


def input_schema(signature: WitFunction) -> Schema:
    """Return the schema of a function's arguments: an object by the names of its parameters."""
    return _object(signature.params)


def schema_of(shape: Shape | None) -> Schema:
    """Return the schema of a type; None, a case without a payload, is null."""
    if shape is None:
        return {"type": "null"}
    if shape.kind in INTEGERS:
        least, greatest = INTEGERS[shape.kind]
        return {"type": "integer", "minimum": least, "maximum": greatest}
    return _SCHEMAS[shape.kind](shape)


def _float(shape: Shape) -> Schema:
    return {"anyOf": [{"type": "number"}, {"enum": list(NOT_FINITE)}]}


def _list(shape: Shape) -> Schema:
    return {"type": "array", "items": schema_of(shape.parts[0])}


def _tuple(shape: Shape) -> Schema:
    length = len(shape.parts)
    items = [schema_of(part) for part in shape.parts]
    return {"type": "array", "prefixItems": items, "minItems": length, "maxItems": length}


def _record(shape: Shape) -> Schema:
    parts = [part for part in shape.parts if part is not None]
    return _object(tuple(zip(shape.names, parts, strict=True)))


def _object(fields: tuple[tuple[str, Shape], ...]) -> Schema:
    schema: Schema = {
        "type": "object",
        "properties": {name: schema_of(part) for name, part in fields},
        "additionalProperties": False,
    }
    required = [name for name, part in fields if part.kind != "option"]
    return schema | {"required": required} if required else schema


def _variant(shape: Shape) -> Schema:
    return {"oneOf": [_case(*case) for case in zip(shape.names, shape.parts, strict=True)]}


def _case(name: str, part: Shape | None) -> Schema:
    schema = _single("tag", {"const": name})
    if part is not None:
        schema["properties"]["value"] = schema_of(part)
        schema["required"].append("value")
    return schema


def _enum(shape: Shape) -> Schema:
    return {"type": "string", "enum": list(shape.names)}


def _flags(shape: Shape) -> Schema:
    return {"type": "array", "items": _enum(shape), "uniqueItems": True}


def _option(shape: Shape) -> Schema:
    payload = schema_of(shape.parts[0])
    some = _single("some", payload) if is_nullable(shape.parts[0]) else payload
    return {"anyOf": [some, {"type": "null"}]}


def _result(shape: Shape) -> Schema:
    cases = zip(shape.names, shape.parts, strict=True)
    return {"oneOf": [_single(name, schema_of(part)) for name, part in cases]}


def _single(name: str, schema: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {name: schema},
        "required": [name],
        "additionalProperties": False,
    }


def _fixed(schema: Schema) -> Callable[[Shape], Schema]:
    return lambda shape: dict(schema)


_SCHEMAS: dict[str, Callable[[Shape], Schema]] = {
    "bool": _fixed({"type": "boolean"}),
    "f32": _float,
    "f64": _float,
    "string": _fixed({"type": "string"}),
    "char": _fixed({"type": "string", "minLength": 1, "maxLength": 1}),
    "bytes": _fixed({"type": "string", "contentEncoding": "base64"}),
    "list": _list,
    "tuple": _tuple,
    "record": _record,
    "variant": _variant,
    "enum": _enum,
    "flags": _flags,
    "option": _option,
    "result": _result,
}
