"""Params that every server reads alike.

JSON leaves open which of two equal keys counts, and some readers (Go's among them) take `Name` for
`name`. A decision about a call is only worth something if its server reads the same call.
"""

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
        fields["ref"] = Raw(encode(inner))
    return fields


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
