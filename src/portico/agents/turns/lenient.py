"""Reads the JSON of agents, which may lack or garble any field."""

from collections.abc import Iterable
from typing import Any

import msgspec

from portico.core.catalog.sanitize import sanitize_text
from portico.core.model.wording import printable

_MAX_AMOUNT = 2**63
_decode = msgspec.json.Decoder(dict[str, Any], float_hook=float).decode


def decoded_fields(raw: bytes) -> dict[str, Any] | None:
    """Decode an object; None if it is not one."""
    try:
        return _decode(raw or b"{}")
    except (msgspec.DecodeError, RecursionError):
        return None


def fields(value: Any) -> dict[str, Any]:
    """Return an object, or an empty one in place of anything else."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """Return an array, or an empty one in place of anything else."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    """Return a string, or an empty one in place of anything else."""
    return value if isinstance(value, str) else ""


def amount(value: Any) -> int | float | None:
    """Return a finite number that is not negative; None in place of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 <= value < _MAX_AMOUNT else None


def short(value: Any, limit: int = 200) -> str:
    """Return foreign text on one printable line."""
    line = printable(" ".join(text(value)[: 4 * limit].split()))
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def excerpt(value: Any, limit: int = 200) -> str:
    """Return foreign text on one printable line; of a long one, the beginning and the end."""
    line = printable(" ".join(_cut(text(value), limit).split()))
    return _cut(sanitize_text(line), 2 * limit)  # an escape takes more room


def _cut(whole: str, limit: int) -> str:
    half = limit // 2
    if len(whole) <= limit:
        return whole
    return f"{whole[:half]} [... {len(whole) - 2 * half} characters ...] {whole[-half:]}"


def texts(values: Iterable[Any]) -> list[str]:
    """Return the strings among some values."""
    return [value for value in values if isinstance(value, str)]
