"""Hints in definitions that clients with a tool search of their own read.

A hint that a server has set itself is never changed.
"""

from collections.abc import Callable, Container
from functools import lru_cache

from msgspec import Raw

from portico.core.catalog.merge import Merged
from portico.core.model.offer import Listed
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import members
from portico.gateway.search.synonyms import related
from portico.gateway.search.tokens import parts

SEARCH_HINT, ALWAYS_LOAD = "anthropic/searchHint", "anthropic/alwaysLoad"
_MAX_WORDS = 12
_MAX_TAG = 40


@lru_cache(maxsize=20_000)
def search_hint(tool: str, tags: tuple[str, ...]) -> str:
    """Return the words beside its own by which Portico's search finds a tool: the tags of its
    server, and the synonyms of the words in its name; empty if there are none."""
    own = dict.fromkeys(" ".join(tag.split())[:_MAX_TAG] for tag in tags if tag.strip())
    words = [*own, *(word for word in related(parts(tool)) if word not in own)]
    return " ".join(words[:_MAX_WORDS])


def hinted(
    tools: Listed,
    merged: Merged,
    pinned: Container[str],
    tags: Callable[[str], tuple[str, ...]],
) -> Listed:
    """Return definitions with the hints of Portico; `tags` returns those of a server."""
    found: list[bytes] = []
    for name, raw in zip(tools.keys, tools.items, strict=True):
        route = merged.tools.get(name)
        hint = "" if route is None else search_hint(route[1], tags(route[0].server))
        found.append(with_hints(raw, hint, always_loads=name in pinned))
    return Listed(items=tuple(found), keys=tools.keys)


def with_hints(raw: bytes, hint: str, *, always_loads: bool) -> bytes:
    """Return a definition with these hints; values that it has stay byte for byte."""
    fields = members(raw)
    meta = bytes(fields.get("_meta", b"{}"))
    if not fields or not meta.startswith(b"{"):
        return raw  # a definition that clients may reject, but the server's own
    known = members(meta)
    hints = {SEARCH_HINT: Raw(encode(hint))} if hint else {}
    if always_loads:
        hints[ALWAYS_LOAD] = Raw(b"true")
    missing = {key: hints[key] for key in hints if key not in known}
    return encode({**fields, "_meta": {**known, **missing}}) if missing else raw
