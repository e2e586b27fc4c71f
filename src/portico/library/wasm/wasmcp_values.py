"""Turns the records of wasmcp's interfaces into objects of MCP, and params of MCP into records.

The records are those of `wit_values`: names have hyphens, and optional fields are in a record
`options` inside.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from portico.library.wasm.guest import GuestError

Record = dict[str, Any]
Params = Mapping[str, Any]
# Fields that are JSON texts.
_JSON = frozenset({"input-schema", "output-schema", "structured-content", "meta"})
_NAMES = {"meta": "_meta"}


def is_json(name: str) -> bool:
    """True for a field that is a text with JSON."""
    return name in _JSON


def field_name(name: str) -> str:
    """Return the name that MCP has for a field."""
    return _NAMES.get(name) or _camel(name)


def plain(record: Record) -> Record:
    """Return a record as an object of MCP: names as MCP has them, options beside the rest."""
    found: Record = {}
    for name, value in record.items():
        if value is None:
            continue
        if name == "options":
            found.update(plain(value))
        else:
            is_text = name in _JSON and isinstance(value, str)
            found[field_name(name)] = _json(name, value) if is_text else _inner(value)
    return found


def _inner(value: Any) -> Any:
    if isinstance(value, dict):
        return plain(value)
    return [_inner(one) for one in value] if isinstance(value, list) else value


def _camel(name: str) -> str:
    first, *others = name.split("-")
    return first + "".join(word.capitalize() for word in others)


def _json(name: str, text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise GuestError(f"returned a {name} that is not JSON: {error}") from None


def tool_result(record: Record) -> Record:
    """Return the result of `tools/call`."""
    content = [content_block(one) for one in record["content"]]
    return {**plain({**record, "content": None}), "content": content}


def resource_result(record: Record) -> Record:
    """Return the result of `resources/read`."""
    contents = [_contents(one) for one in record["contents"]]
    return {**plain({**record, "contents": None}), "contents": contents}


def prompt_result(record: Record) -> Record:
    """Return the result of `prompts/get`."""
    messages = [
        {"role": one["role"], "content": content_block(one["content"])}
        for one in record["messages"]
    ]
    return {**plain({**record, "messages": None}), "messages": messages}


def completion_result(record: Record) -> Record:
    """Return the result of `completion/complete`."""
    found = plain(record)
    meta = {"_meta": found.pop("_meta")} if "_meta" in found else {}
    return {"completion": found, **meta}


def content_block(variant: Record) -> Record:
    """Return one block of content."""
    tag, value = variant["tag"], variant["value"]
    rest = plain({"options": value["options"]})
    if tag == "text":
        return {"type": "text", "text": _data(value["text"]), **rest}
    if tag in {"image", "audio"}:
        data = _data(value["data"])
        return {"type": tag, "data": data, "mimeType": value["mime-type"], **rest}
    if tag == "resource-link":
        return {"type": "resource_link", **plain(value)}
    return {"type": "resource", "resource": _contents(value["resource"]), **rest}


def _contents(variant: Record) -> Record:
    tag, value = variant["tag"], variant["value"]
    found = {"uri": value["uri"], tag: _data(value[tag])}
    return {**found, **plain({"options": value["options"]})}


def _data(variant: Record) -> str:
    if variant["tag"].endswith("-stream"):
        raise GuestError(f"returned a {variant['tag']}, which cannot be read; return its content")
    return str(variant["value"])


def error_of(variant: Record) -> GuestError:
    """Return the error that a component returned."""
    error = variant["value"]
    data = error["data"]
    # A text that is not JSON is passed on as it is: it is more useful than an error about it.
    with suppress(msgspec.DecodeError):
        data = None if data is None else msgspec.json.decode(data)
    return GuestError(error["message"], error["code"], data)


def cursor_request(params: Params) -> Record:
    """Return the request of a list."""
    return {"cursor": params.get("cursor")}


def named_request(params: Params) -> Record:
    """Return the request of a tool or a prompt."""
    return {"name": params.get("name"), "arguments": _text(params.get("arguments"))}


def uri_request(params: Params) -> Record:
    """Return the request of a resource."""
    return {"uri": params.get("uri")}


def completion_request(params: Params) -> Record:
    """Return the request of a completion."""
    argument = params.get("argument")
    ref = _reference(params.get("ref"))
    request: Record = {"argument": argument, "ref": ref, "context": None}
    if isinstance(argument, dict):
        request["argument"] = {key: argument.get(key) for key in ("name", "value")}
    context = params.get("context")
    if isinstance(context, dict):
        request["context"] = {"arguments": _text(context.get("arguments"))}
    return request


def _reference(ref: Any) -> Any:
    if not isinstance(ref, dict):
        return ref
    if ref.get("type") == "ref/resource":
        return {"tag": "resource-template", "value": ref.get("uri")}
    return {"tag": "prompt", "value": {"name": ref.get("name"), "title": ref.get("title")}}


def _text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
