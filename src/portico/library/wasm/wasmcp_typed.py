"""Turns objects of MCP into the records of wasmcp's interfaces, by the types of the component.

The opposite of `wasmcp_values.py`. A field that a type does not have is lost, and so is an optional
field with a value that its type cannot express.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from portico.core.model.errors import PorticoError
from portico.library.wasm.wasmcp_values import field_name, is_json
from portico.library.wit.wit_types import INTEGERS, Shape

_BLOCKS = {"resource_link": "resource-link", "resource": "embedded-resource"}
_DATA = {"text-stream": "text", "blob-stream": "blob"}


class Untyped(PorticoError):
    """A value that a type of wasmcp's cannot express; the message names what."""


def typed(shape: Shape, value: Any) -> Any:
    """Return a value of MCP as `wit_values` takes it for a type; raises Untyped."""
    if shape.kind in INTEGERS:
        return _of_type(int, value, shape)
    return _KINDS.get(shape.kind, _unknown)(shape, value)


def case_of(variant: Shape, name: str) -> Shape | None:
    """Return the type of a case; None if there is none, or it has no value."""
    return variant.parts[variant.names.index(name)] if name in variant.names else None


def _record(shape: Shape, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Untyped("a value that is not an object")
    found = {}
    for name, part in zip(shape.names, shape.parts, strict=True):
        assert part is not None
        if name == "options":
            made = typed(_inside(part), value)
            found[name] = made if any(one is not None for one in made.values()) else None
        else:
            found[name] = _field(name, part, value)
    return found


def _field(name: str, part: Shape, value: Mapping[str, Any]) -> Any:
    given = value.get(field_name(name))
    if is_json(name) and _inside(part).kind == "string":
        if given is None and part.kind == "option":
            return None
        return msgspec.json.encode({} if given is None else given).decode()
    return typed(part, given)


def _option(shape: Shape, value: Any) -> Any:
    if value is None:
        return None
    try:
        return typed(_inside(shape), value)
    except Untyped:
        return None


def _list(shape: Shape, value: Any) -> list[Any]:
    element = _inside(shape)
    if not isinstance(value, list):
        raise Untyped("a value that is not an array")
    return [typed(element, one) for one in value]


def _variant(shape: Shape, value: Any) -> dict[str, Any]:
    tag = _case(shape, value)
    part = case_of(shape, tag)
    if part is None:
        raise Untyped(f"content of the type {str(tag)[:40]!r}")
    return {"tag": tag, "value": typed(part, value)}


def _case(shape: Shape, value: Any) -> str:
    for stream, plain in _DATA.items():
        if stream in shape.names:
            return plain
    if not isinstance(value, dict):
        return _SCALARS.get(type(value), "")
    if "resource-link" in shape.names or "image" in shape.names:
        kind = str(value.get("type"))
        return _BLOCKS.get(kind, kind)
    return "text" if "text" in value else "blob"


_SCALARS: Mapping[type, str] = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    list: "string-array",
}
"""The cases of an answer in a form."""


def _bytes(shape: Shape, value: Any) -> str:
    return str(_of_type(str, value, shape))  # base64 on both sides


def _enum(shape: Shape, value: Any) -> str:
    if value not in shape.names:
        raise Untyped(f"{str(value)[:40]!r}, which is not one of {', '.join(shape.names)}")
    return str(value)


def _tuple(shape: Shape, value: Any) -> list[Any]:
    parts = [part for part in shape.parts if part is not None]
    return [typed(part, one) for part, one in zip(parts, value, strict=True)]


def _float(shape: Shape, value: Any) -> float:
    return float(value if type(value) is float else _of_type(int, value, shape))


def _of_type(kind: type, value: Any, shape: Shape) -> Any:
    if type(value) is not kind:
        raise Untyped(f"a value that is not a {shape.kind}")
    return value


def _unknown(shape: Shape, value: Any) -> Any:
    raise Untyped(f"a {shape.kind}")


def _inside(shape: Shape) -> Shape:
    """Return the type inside an option or a list; others as they are."""
    part = shape.parts[0] if shape.kind in {"option", "list"} else shape
    assert part is not None
    return part


_KINDS: Mapping[str, Callable[[Shape, Any], Any]] = {
    "string": lambda shape, value: _of_type(str, value, shape),
    "bool": lambda shape, value: _of_type(bool, value, shape),
    "f64": _float,
    "bytes": _bytes,
    "record": _record,
    "option": _option,
    "list": _list,
    "variant": _variant,
    "enum": _enum,
    "tuple": _tuple,
}
