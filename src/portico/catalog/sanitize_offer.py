"""Definitions as models may read them: hidden characters written out in texts, and reported.

Texts are names, titles and descriptions. Values that go back to the server (the names of tools,
prompts and arguments, URIs, `enum`, `const`, `default`) stay as they are; a definition that hides
something in them is flagged.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from portico.catalog.sanitize import has_invisible, may_have_invisible, sanitize_text
from portico.model.offer import Listed, Offer
from portico.protocol.codec import decoded, encode
from portico.protocol.eras import SERVER_INFO_KEY, members

FLAG = "portico/hidden"
"""In a definition's `_meta`: it had characters that are not to be seen."""

_TEXTS = ("title", "description")
_IN_SCHEMA = ("title", "description", "$comment")
_VALUES = ("enum", "const", "default", "examples")
_BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_FIELDS = {
    "tools": _TEXTS,
    "prompts": _TEXTS,
    "resources": ("name", *_TEXTS),
    "templates": ("name", *_TEXTS),
}
_IDENTITY = ("name", "title", "description", "version")

# No float holds all that numbers may say.
_as_written = msgspec.json.Decoder(float_hook=lambda number: Raw(number.encode())).decode


class SanitizedItem(Struct, frozen=True):
    """A definition that hides something."""

    kind: str
    key: str
    in_values: bool
    """Also where it cannot be written out."""


def sanitize_offer(offer: Offer) -> tuple[Offer, tuple[SanitizedItem, ...]]:
    """The offer as it may be shown, and what hides something; the very same if nothing does."""
    hidden: list[SanitizedItem] = []
    lists = {kind: _list(kind, listed, hidden) for kind, listed in offer.lists.items()}
    introduction = _introduction(offer.introduction)
    if introduction is not offer.introduction:
        hidden.append(SanitizedItem("instructions", "", in_values=False))
    if not hidden:
        return offer, ()
    return Offer(offer.version, introduction, lists, offer.taken), tuple(hidden)


def sanitize_page(kind: str, field: str, result: bytes) -> bytes:
    """The result of a list, with each definition as it may be shown."""
    if not may_have_invisible(result):
        return result
    fields = members(result)
    items = decoded(fields.get(field, b"[]"), list[Raw])
    if items is None:
        return result
    shown = [Raw(sanitize_definition(kind, bytes(item))[0]) for item in items]
    return encode({**fields, field: shown})


def _list(kind: str, listed: Listed, hidden: list[SanitizedItem]) -> Listed:
    before = len(hidden)
    items = []
    for key, item in zip(listed.keys, listed.items, strict=True):
        shown, in_values = sanitize_definition(kind, item)
        if shown is not item:
            hidden.append(SanitizedItem(kind, key, in_values))
        items.append(shown)
    if len(hidden) == before:
        return listed
    return msgspec.structs.replace(listed, items=tuple(items))


def sanitize_definition(kind: str, raw: bytes) -> tuple[bytes, bool]:
    """A definition whose texts are what they seem, the very same bytes if they were already; and
    whether its values still hide something."""
    if not may_have_invisible(raw):
        return raw, False
    definition = _decoded(raw)
    if not isinstance(definition, dict) or not any(map(has_invisible, _strings(definition))):
        return raw, False
    _sanitize_texts(definition, _FIELDS[kind])
    notes = definition.get("annotations")
    if isinstance(notes, dict):
        _sanitize_texts(notes, _TEXTS)
    arguments = definition.get("arguments")
    for argument in arguments if isinstance(arguments, list) else ():
        if isinstance(argument, dict):
            _sanitize_texts(argument, _TEXTS)
    for key in ("inputSchema", "outputSchema"):
        _sanitize_schema(definition.get(key))
    in_values = any(map(has_invisible, _strings(definition)))
    meta = definition.get("_meta")
    definition["_meta"] = {**(meta if isinstance(meta, dict) else {}), FLAG: True}
    return _encoded(definition), in_values


def _introduction(raw: bytes) -> bytes:
    """The same of what a server says of itself."""
    if not may_have_invisible(raw):
        return raw
    said = _decoded(raw)
    if not isinstance(said, dict):
        return raw
    meta = said.get("_meta")
    modern = meta.get(SERVER_INFO_KEY) if isinstance(meta, dict) else None
    changed = _sanitize_texts(said, ("instructions",))
    for info in (said.get("serverInfo"), modern):
        if isinstance(info, dict):
            changed |= _sanitize_texts(info, _IDENTITY)
    return _encoded(said) if changed else raw


def _sanitize_texts(value: dict[str, Any], keys: tuple[str, ...]) -> bool:
    changed = False
    for key in keys:
        text = value.get(key)
        if isinstance(text, str) and has_invisible(text):
            value[key] = sanitize_text(text)
            changed = True
    return changed


def _sanitize_schema(schema: Any) -> None:
    """Write out texts wherever they stand in a schema, but no value; without recursion, because
    whoever wrote it may have nested it deeply."""
    waiting = [schema]
    while waiting:
        at = waiting.pop()
        if isinstance(at, list):
            waiting += at
        elif isinstance(at, dict):
            _sanitize_texts(at, _IN_SCHEMA)
            for key, of in at.items():
                if key in _BY_NAME and isinstance(of, dict):
                    waiting += of.values()
                elif key not in _VALUES:
                    waiting.append(of)


def _strings(value: Any) -> Iterator[str]:
    """All strings in it, keys included."""
    waiting = [value]
    while waiting:
        at = waiting.pop()
        if isinstance(at, str):
            yield at
        elif isinstance(at, list):
            waiting += at
        elif isinstance(at, dict):
            yield from at
            waiting += at.values()


def _decoded(raw: bytes) -> Any:
    """Numbers stay as they are written; a lone surrogate does not prevent the search."""
    try:
        return _as_written(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass
    try:
        return json.loads(raw, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else math.copysign(1.7976931348623157e308, value)


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # half a character, which JSON can only write as an escape
        return json.dumps(value, separators=(",", ":")).encode()
