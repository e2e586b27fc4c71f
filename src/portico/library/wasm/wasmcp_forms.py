"""Questions and answers of wasmcp's sessions, as MCP has them."""

from typing import Any

from portico.library.wasm.refused import Refused
from portico.library.wasm.wasmcp_typed import typed
from portico.library.wasm.wasmcp_values import Record, field_name
from portico.library.wit.wit_types import Shape

_TYPES = {"string-schema": "string", "number-schema": "number", "boolean-schema": "boolean"}


def question_of(request: Record) -> dict[str, Any]:
    """Return the params of an elicitation; raises Refused."""
    if "tag" in request:  # since 2025-11-25
        if request["tag"] != "form":
            raise Refused("a component cannot send a person to a URL; ask with a form")
        request = request["value"]
    schema = request["requested-schema"]
    fields = {name: _field(one) for name, one in schema["properties"]}
    form: dict[str, Any] = {"type": "object", "properties": fields}
    if schema["required"] is not None:
        form["required"] = schema["required"]
    return {"message": request["message"], "requestedSchema": form}


def _field(variant: Record) -> dict[str, Any]:
    tag, value = variant["tag"], variant["value"]
    if tag == "enum-schema":
        return _choice(value)
    return {"type": _TYPES[tag], **_given(value)}


def _choice(value: Record) -> dict[str, Any]:
    """Return a field with choices: one list until 2025-06-18, four kinds of them since."""
    tag, value = (value["tag"], value["value"]) if "tag" in value else ("", value)
    given = _given(value)
    if "oneOf" in given:
        choices = [{"const": one["const-value"], "title": one["title"]} for one in given["oneOf"]]
        given["oneOf"] = choices
    if not tag.endswith("multi-select"):
        return {"type": "string", **given}
    items: dict[str, Any] = {}
    if "oneOf" in given:
        items["anyOf"] = given.pop("oneOf")
    if "enum" in given:
        items = {"type": "string", "enum": given.pop("enum")}
    return {"type": "array", "items": items, **given}


def _given(record: Record) -> dict[str, Any]:
    return {field_name(name): value for name, value in record.items() if value is not None}


def answer_of(shape: Shape, answer: Any) -> Any:
    """Return the client's answer as an `elicit-result`; raises Untyped."""
    fields = dict(answer)
    content = fields.pop("content", None)
    made = typed(shape, fields)
    if isinstance(content, dict):
        made["content"] = [[name, _content(shape, one)] for name, one in content.items()]
    return made


def _content(shape: Shape, value: Any) -> Any:
    part = shape.parts[shape.names.index("content")]  # option<list<tuple<string, variant>>>
    pairs = part.parts[0] if part is not None else None
    pair = pairs.parts[0] if pairs is not None else None
    variant = pair.parts[1] if pair is not None else None
    assert variant is not None
    return typed(variant, value)
