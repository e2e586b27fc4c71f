"""Params that every server reads alike.

JSON leaves open which of two equal keys counts, and some readers (Go's among them) take `Name` for
`name`. A decision about a call is only worth something if its server reads the same call.
"""

import re

from msgspec import Raw

from portico.model.errors import InvalidParams
from portico.protocol.codec import encode
from portico.protocol.eras import Members, members


def _folded(key: str) -> str:
    """Equal for all keys that some reader takes for each other: a long s is an s, for example."""
    return key.upper().casefold().replace("\u0307", "")


def _spelled(*keys: str) -> dict[str, str]:
    return {key: _folded(key) for key in keys}


_PARAMS = _spelled(
    *("_meta", "name", "arguments", "uri", "cursor", "level", "task"),
    *("ref", "argument", "context", "inputResponses", "requestState"),
)
"""Keys of params, and what they fold to."""
_key = re.compile(rb'\s*[{,]\s*"[^"\\]*(?:\\.[^"\\]*)*"\s*:\s*').match
_end = re.compile(rb"\s*}\s*").fullmatch
_REFERENCE = _spelled("type", "name", "uri", "title")


def exact(params: bytes) -> Members:
    """The fields of a request's params, each once, and of its `ref` too; raises InvalidParams for
    a key that a reader could take for another one.

    Of two equal keys the last counts, as everywhere in Portico. What is inside `arguments` is the
    tool's own and stays as it came.
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
    """The JSON object with these fields; as it was written, if no key stands there twice."""
    written = encode(fields)
    # Most clients write no spaces: then this is all there is to compare.
    return raw if raw == written or starts_of(raw, fields) else written


def with_field(raw: bytes, key: str, value: bytes) -> bytes:
    """The JSON object with another value in one of its fields, and all else as it was written."""
    fields = members(raw)
    start = starts_of(raw, fields).get(key)
    if start is None:
        return encode({**fields, key: Raw(value)})
    return raw[:start] + value + raw[start + len(fields[key]) :]


def starts_of(raw: bytes, fields: Members) -> dict[str, int]:
    """Where the value of each field begins; empty if a key stands there twice."""
    found: dict[str, int] = {}
    at = 0
    for key, value in fields.items():
        before = _key(raw, at)
        if before is None or not raw.startswith(value, before.end()):
            return {}
        found[key] = before.end()
        at = before.end() + len(value)
    return found if _end(raw, at) else {}


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
                raise InvalidParams(f"{where}: {why}; send that key as it is spelled")
