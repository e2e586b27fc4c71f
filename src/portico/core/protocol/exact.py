"""Rejects params that servers could read differently.

JSON does not define which of two equal keys wins, and some parsers, such as Go's, accept `Name` as
`name`. A policy decision is only valid if the server reads the same call.
"""

import re
from json import JSONDecoder

from msgspec import Raw

from portico.core.model.errors import InvalidParams
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import Members, members


def _folded(key: str) -> str:
    """Fold a key, so that keys that some parser treats as equal are equal (a long s and an s)."""
    return key.upper().casefold().replace("\u0307", "")


def _folds(*keys: str) -> dict[str, str]:
    return {key: _folded(key) for key in keys}


_PARAMS = _folds(
    *("_meta", "name", "arguments", "uri", "cursor", "level", "task"),
    *("ref", "argument", "context", "inputResponses", "requestState"),
)
"""The known keys of params, with their folded forms."""
_key = re.compile(rb'\s*[{,]\s*"[^"\\]*(?:\\.[^"\\]*)*"\s*:\s*').match
_end = re.compile(rb"\s*}\s*").fullmatch
_REFERENCE = _folds("type", "name", "uri", "title")


def exact(params: bytes) -> Members:
    """Return the fields of a request's params, and of its `ref`, without duplicate keys; raise
    InvalidParams for a key that a parser could read as another one.

    Of two equal keys the last wins, as everywhere in Portico. The content of `arguments` belongs
    to the tool and stays unchanged.
    """
    fields = members(params)
    _check(fields, _PARAMS, "params")
    reference = fields.get("ref")
    if reference is not None and bytes(reference)[:1] == b"{":
        inner = members(bytes(reference))
        _check(inner, _REFERENCE, "params.ref")
        fields["ref"] = Raw(without_duplicates(bytes(reference), inner))
    return fields


def without_duplicates(raw: bytes, fields: Members) -> bytes:
    """Return the JSON object with these fields; the original bytes if no key is duplicated."""
    written = encode(fields)
    # Most clients write no spaces, which makes this comparison sufficient.
    return raw if raw == written or starts_of(raw, fields) else written


def with_field(raw: bytes, key: str, value: bytes) -> bytes:
    """Return the JSON object with another value in one field and all else byte for byte."""
    fields = members(raw)
    start = starts_of(raw, fields).get(key)
    if start is None:
        return encode({**fields, key: Raw(value)})
    return raw[:start] + value + raw[start + len(fields[key]) :]


def starts_of(raw: bytes, fields: Members) -> dict[str, int]:
    """Return where the value of each field starts; empty if a key is duplicated."""
    found: dict[str, int] = {}
    at = 0
    for key, value in fields.items():
        before = _key(raw, at)
        if before is None or not raw.startswith(value, before.end()):
            return {}
        found[key] = before.end()
        at = before.end() + len(value)
    return found if _end(raw, at) else {}


def has_equal_keys(raw: bytes) -> bool:
    """True if any object in a JSON text has two equal keys, of which parsers read either."""
    try:
        _distinct(raw.decode())
    except ValueError:
        return True
    return False


def _check_distinct(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("equal keys")


# Numbers do not matter here; `len` is quicker than their conversion, and takes any length.
_distinct = JSONDecoder(object_pairs_hook=_check_distinct, parse_int=len, parse_float=len).decode


def _check(fields: Members, known: dict[str, str], where: str) -> None:
    if fields.keys() <= known.keys():
        return
    for key in fields:
        if key not in known:
            folded = _folded(key)
            bare = folded.replace("_", "").replace("-", "")
            meant = [name for name, fold in known.items() if fold in (folded, bare)]
            if meant:
                why = f"{key[:80]!r} could be read as {meant[0]!r}"
                raise InvalidParams(f"{where}: {why}; send the exact key")
