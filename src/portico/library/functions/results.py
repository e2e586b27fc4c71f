"""Converts the return value of a handler to a result of the request's version."""

from collections.abc import Iterable
from copy import copy
from typing import Any

import msgspec
from msgspec import Struct

from portico.core.model.content import Content, Contents, Message, Text, ToolResult
from portico.core.model.version import Version

_SCALARS = (bool, int, float)
_ROLES = ("user", "assistant")


class WrongReturn(TypeError):
    """A handler returned a value that cannot become a result."""


def tool_result(value: Any, *, structured: bool, wrapped: bool, version: Version) -> dict[str, Any]:
    """Return a `tools/call` result. `structured`: the tool has an output schema. `wrapped`: that
    schema has the value under the key `result`."""
    whole = value if isinstance(value, ToolResult) else ToolResult(content=value)
    data = _plain(whole.structured)
    content = whole.content
    if not isinstance(value, ToolResult) and _is_data(value, wrapped):
        data = _plain(value)
        if wrapped:
            data = {"result": data}
        content = None
    blocks = [block_for(block, version) for block in _blocks(content)]
    if content is None and data is not None:
        shown = data["result"] if wrapped and not isinstance(value, ToolResult) else data
        blocks = [{"type": "text", "text": msgspec.json.encode(shown).decode()}]
    result: dict[str, Any] = {"content": blocks}
    if data is not None and _carries(data, version) and (structured or not _is_scalar(data)):
        result["structuredContent"] = data
    if whole.is_error:
        result["isError"] = True
    if whole.meta is not None:
        result["_meta"] = whole.meta
    return result


def prompt_result(value: Any, description: str | None, version: Version) -> dict[str, Any]:
    """Return a `prompts/get` result."""
    if isinstance(value, dict) and "messages" in value:
        return value
    items = value if isinstance(value, list | tuple) else [value]
    result: dict[str, Any] = {"messages": [_message(item, version) for item in items]}
    if description:
        result["description"] = description
    return result


def resource_result(value: Any, uri: str, mime_type: str) -> dict[str, Any]:
    """Return a `resources/read` result."""
    if isinstance(value, dict) and _are_contents(value.get("contents")):
        return value
    several = isinstance(value, list | tuple) and any(isinstance(v, Contents) for v in value)
    items = value if several else [value]
    return {"contents": [_contents(item, uri, mime_type) for item in items]}


def block_for(block: Content, version: Version) -> dict[str, Any]:
    """Return a content block as JSON, or as text if the version lacks its kind."""
    wire = block.block()
    if block.kind == "audio" and version < Version.V2025_03_26:
        return {"type": "text", "text": f"[audio, {wire['mimeType']}, not shown]"}
    if block.kind == "resource_link" and version < Version.V2025_06_18:
        return {"type": "text", "text": f"{wire['name']}: {wire['uri']}"}
    return wire


def _is_data(value: Any, wrapped: bool) -> bool:
    """True for a value that is not content and has a JSON form.

    Text is content, unless the output schema makes it data, such as an enumeration.
    """
    if value is None or isinstance(value, bytes | bytearray):
        return False
    if isinstance(value, str):
        return wrapped
    if _is_content(value):
        return False
    if isinstance(value, list | tuple):
        return not any(map(_is_content, value))
    return True


def _plain(value: Any) -> Any:
    try:
        return msgspec.to_builtins(_spelled_out(value), str_keys=True, enc_hook=_dumped)
    except (TypeError, ValueError) as error:
        raise WrongReturn(f"{_returned(value)}: {error}") from None


def _dumped(value: Any) -> Any:
    """Convert a pydantic model to data."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    return dump(mode="json", by_alias=True)


def _spelled_out(value: Any) -> Any:
    """Convert dataclasses inside a value to dicts: msgspec omits the default fields of dataclasses
    that it created."""
    if isinstance(value, list | tuple):
        return [_spelled_out(item) for item in value] if value else value
    if isinstance(value, dict):
        return {key: _spelled_out(item) for key, item in value.items()}
    if isinstance(value, Struct):
        return _with_spelled_out(value)
    if not hasattr(type(value), "__dataclass_fields__"):
        return value
    from dataclasses import fields

    return {field.name: _spelled_out(getattr(value, field.name)) for field in fields(value)}


def _with_spelled_out(value: Struct) -> Struct:
    """Convert the fields of a struct, but keep the struct: its class defines its encoding."""
    spelled = copy(value)
    for name in value.__struct_fields__:
        inner = getattr(value, name)
        msgspec.structs.force_setattr(spelled, name, _spelled_out(inner))
    return spelled


def _blocks(content: Any) -> Iterable[Content]:
    if content is None:
        return []
    if isinstance(content, str):
        return [Text(content)]
    if isinstance(content, Content):
        return [content]
    if isinstance(content, list | tuple):
        return [block for item in content for block in _blocks(item)]
    if isinstance(content, bytes | bytearray) or _is_content(content):
        raise WrongReturn(
            f"{_returned(content)}; return text, a content block, a list of those, or data with a "
            "JSON form"
        )
    return [Text(msgspec.json.encode(_plain(content)).decode())]


def _returned(value: Any) -> str:
    return f"the handler returned a value of type {type(value).__name__}"


def _is_content(value: Any) -> bool:
    return bool(getattr(type(value), "__mcp_content__", False))


def _is_scalar(data: Any) -> bool:
    return isinstance(data, _SCALARS)


def _carries(data: Any, version: Version) -> bool:
    """Structured content came with 2025-06-18, as an object; any JSON value since 2026-07-28."""
    if version.modern:
        return True
    return version >= Version.V2025_06_18 and isinstance(data, dict)


def _message(item: Any, version: Version) -> dict[str, Any]:
    if isinstance(item, dict):
        return item
    message = item if isinstance(item, Message) else Message(item)
    content = Text(message.content) if isinstance(message.content, str) else message.content
    if not isinstance(content, Content):
        raise WrongReturn(
            f"{_returned(item)}; return text, a Message, a content block, or a list of those"
        )
    if message.role not in _ROLES:
        why = f"the handler returned a message with the role {message.role!r}"
        raise WrongReturn(f"{why}; use {' or '.join(_ROLES)}")
    return {"role": message.role, "content": block_for(content, version)}


def _are_contents(entries: Any) -> bool:
    """True for the `contents` of a result, as opposed to data with a field of that name."""
    return isinstance(entries, list) and all(isinstance(e, dict) and "uri" in e for e in entries)


def _contents(item: Any, uri: str, mime_type: str) -> dict[str, Any]:
    if isinstance(item, Contents):
        return item.entry(uri, mime_type)
    if isinstance(item, str):
        return Contents(item).entry(uri, mime_type or "text/plain")
    if isinstance(item, bytes | bytearray):
        return Contents(bytes(item)).entry(uri, mime_type or "application/octet-stream")
    if _is_content(item):
        raise WrongReturn(
            f"{_returned(item)}; return text, bytes, Contents, a list of those, or data with a "
            "JSON form"
        )
    text = msgspec.json.encode(_plain(item)).decode()
    return Contents(text).entry(uri, mime_type or "application/json")
