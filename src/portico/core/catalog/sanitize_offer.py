"""Definitions that are safe for models: invisible characters are escaped in texts, and reported.

Texts are names, titles and descriptions. Values that clients send back to the server (the names
of tools, prompts and arguments, URIs, `enum`, `const`, `default`) are kept; a definition with
invisible characters in them is flagged.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from portico.core.catalog.sanitize import has_invisible, may_have_invisible, sanitize_text
from portico.core.model.offer import Listed, Offer
from portico.core.protocol.codec import decoded, encode
from portico.core.protocol.eras import SERVER_INFO_KEY, members

FLAG = "portico/hidden"
"""The key in a definition's `_meta` that marks invisible characters."""

_TEXTS = ("title", "description")
_SCHEMA_TEXTS = ("title", "description", "$comment")
_VALUES = ("enum", "const", "default", "examples")
_SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_FIELDS = {
    "tools": _TEXTS,
    "prompts": _TEXTS,
    "resources": ("name", *_TEXTS),
    "templates": ("name", *_TEXTS),
}
_IDENTITY = ("name", "title", "description", "version")

# A float cannot represent every JSON number.
_decode_verbatim = msgspec.json.Decoder(float_hook=lambda number: Raw(number.encode())).decode


class SanitizedItem(Struct, frozen=True):
    """A definition, or the instructions, with invisible characters."""

    kind: str
    key: str
    in_values: bool
    """True if values have invisible characters, which are kept."""


def sanitize_offer(offer: Offer) -> tuple[Offer, tuple[SanitizedItem, ...]]:
    """Return the sanitized offer and its changed items; the same object if nothing changed."""
    sanitized: list[SanitizedItem] = []
    lists = {kind: _sanitize_list(kind, listed, sanitized) for kind, listed in offer.lists.items()}
    introduction = _sanitize_introduction(offer.introduction)
    if introduction is not offer.introduction:
        sanitized.append(SanitizedItem("instructions", "", in_values=False))
    if not sanitized:
        return offer, ()
    return Offer(offer.version, introduction, lists, offer.taken), tuple(sanitized)


def sanitize_page(kind: str, field: str, result: bytes) -> bytes:
    """Return the result of a list request with sanitized definitions."""
    if not may_have_invisible(result):
        return result
    fields = members(result)
    items = decoded(fields.get(field, b"[]"), list[Raw])
    if items is None:
        return result
    clean = [Raw(sanitize_definition(kind, bytes(item))[0]) for item in items]
    return encode({**fields, field: clean})


def _sanitize_list(kind: str, listed: Listed, sanitized: list[SanitizedItem]) -> Listed:
    before = len(sanitized)
    items = []
    for key, item in zip(listed.keys, listed.items, strict=True):
        clean, in_values = sanitize_definition(kind, item)
        if clean is not item:
            sanitized.append(SanitizedItem(kind, key, in_values))
        items.append(clean)
    if len(sanitized) == before:
        return listed
    return msgspec.structs.replace(listed, items=tuple(items))


def sanitize_definition(kind: str, raw: bytes) -> tuple[bytes, bool]:
    """Return the sanitized definition (the same object if nothing changed), and whether its values
    still have invisible characters."""
    if not may_have_invisible(raw):
        return raw, False
    definition = _decode(raw)
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
    return _encode(definition), in_values


def _sanitize_introduction(raw: bytes) -> bytes:
    """Return a server's introduction with sanitized texts."""
    if not may_have_invisible(raw):
        return raw
    introduction = _decode(raw)
    if not isinstance(introduction, dict):
        return raw
    meta = introduction.get("_meta")
    modern = meta.get(SERVER_INFO_KEY) if isinstance(meta, dict) else None
    changed = _sanitize_texts(introduction, ("instructions",))
    for info in (introduction.get("serverInfo"), modern):
        if isinstance(info, dict):
            changed |= _sanitize_texts(info, _IDENTITY)
    return _encode(introduction) if changed else raw


def _sanitize_texts(value: dict[str, Any], keys: tuple[str, ...]) -> bool:
    changed = False
    for key in keys:
        text = value.get(key)
        if isinstance(text, str) and has_invisible(text):
            value[key] = sanitize_text(text)
            changed = True
    return changed


def _sanitize_schema(schema: Any) -> None:
    """Sanitize the texts in a schema, but not its values; without recursion, because a schema may
    be nested deeply."""
    pending = [schema]
    while pending:
        at = pending.pop()
        if isinstance(at, list):
            pending += at
        elif isinstance(at, dict):
            _sanitize_texts(at, _SCHEMA_TEXTS)
            for key, of in at.items():
                if key in _SCHEMA_MAPS and isinstance(of, dict):
                    pending += of.values()
                elif key not in _VALUES:
                    pending.append(of)


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value, including keys."""
    pending = [value]
    while pending:
        at = pending.pop()
        if isinstance(at, str):
            yield at
        elif isinstance(at, list):
            pending += at
        elif isinstance(at, dict):
            yield from at
            pending += at.values()


def _decode(raw: bytes) -> Any:
    """Decode JSON with numbers as written; lone surrogates are accepted."""
    try:
        return _decode_verbatim(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass
    try:
        return json.loads(raw, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def _finite(number: str) -> float:
    value = float(number)
    return value if math.isfinite(value) else math.copysign(1.7976931348623157e308, value)


def _encode(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a lone surrogate, which needs a JSON escape
        return json.dumps(value, separators=(",", ":")).encode()
