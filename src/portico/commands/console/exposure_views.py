"""The exposure of each client of a running gateway, as `portico status` prints it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from portico.commands.console.tables import on_one_line

_MAX_LINES = 20
_SHOWN = {"all": "all tools", "search": "the meta-tools"}


def exposure_lines(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each client and its exposure, with the reason; equal ones are counted."""
    exposures = status.get("exposures")
    found = exposures if isinstance(exposures, list) else []
    counts = Counter(_words(one) for one in found if isinstance(one, dict))
    for words, count in [*counts.items()][:_MAX_LINES]:
        yield f"  {words} ({count} clients)" if count > 1 else f"  {words}"
    if len(counts) > _MAX_LINES:
        yield f"  and {len(counts) - _MAX_LINES} more clients"


def _words(exposure: Mapping[str, Any]) -> str:
    client = str(exposure.get("client") or "a client")
    expose = str(exposure.get("expose") or "")
    shown = _SHOWN.get(expose, "nothing yet")
    return on_one_line(f"{client} is shown {shown}: {exposure.get('why')}")
