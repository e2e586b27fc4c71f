"""A digest of what a definition means, however it is written."""

from typing import Any

import msgspec
from msgspec import Raw

from portico.catalog.catalog_file import BAD_JSON
from portico.model.digest import blake2b


def fingerprint(definition: bytes) -> str:
    """A digest that stays when only spaces, escapes or the order of keys change."""
    import json

    try:
        value = json.loads(
            definition.decode(),
            object_pairs_hook=_object,
            parse_float=_as_written,
            parse_int=_as_written,
            parse_constant=_refuse,
        )
        canonical = msgspec.json.encode(value, order="sorted")
    except BAD_JSON:
        # Readers may differ on what it says, so its very bytes count.
        return blake2b(definition, digest_size=16, person=b"as written").hexdigest()
    return blake2b(canonical, digest_size=16).hexdigest()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key is there twice")
    return value


def _as_written(number: str) -> Raw:
    """Numbers keep their text: no float or integer type holds them all."""
    return Raw(number.encode())


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
