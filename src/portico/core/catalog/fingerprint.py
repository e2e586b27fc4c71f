"""A digest of a definition's meaning, independent of its formatting."""

from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw

from portico.core.catalog.catalog_file import BAD_JSON


def fingerprint(definition: bytes) -> str:
    """Return a digest that ignores spaces, escapes and the order of keys."""
    import json

    try:
        value = json.loads(
            definition.decode(),
            object_pairs_hook=_unique_keys,
            parse_float=_as_written,
            parse_int=_as_written,
            parse_constant=_reject_constant,
        )
        canonical = msgspec.json.encode(value, order="sorted")
    except BAD_JSON:
        # Parsers may disagree on its meaning, so use the exact bytes.
        return blake2b(definition, digest_size=16, person=b"as written").hexdigest()
    return blake2b(canonical, digest_size=16).hexdigest()


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is set twice")
    return value


def _as_written(number: str) -> Raw:
    """Keep the text of a number: no float or integer type can represent them all."""
    return Raw(number.encode())


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
