"""Refuses a composition that starts itself: its own command, or an alias of it, is a component."""

import os
from collections.abc import Iterable

from portico.library.components.classify import Component, ComponentError
from portico.library.components.resolver import MAX_NESTED

MAX_DEPTH = 8
"""The limit on Porticos that start each other."""
_DIGEST_BYTES = 8


def enter(components: Iterable[Component], *, is_bundle: bool = False) -> None:
    """Record this composition for the processes that it starts.

    Raises ComponentError if it already runs around this process, or if too many are nested: a
    bundle may be inside of as many more as bundles may hold.
    """
    composition = list(components)
    if all(one.is_file for one in composition):
        return  # it starts no command
    from portico.upstream.process.environment import COMPOSITIONS

    digest = _digest(composition)
    outer = [one for one in os.environ.get(COMPOSITIONS, "").split(":") if one]
    names = ", ".join(one.name for one in composition)
    if digest in outer:
        why = f"the composition ({names}) is a component of itself"
        raise ComponentError(f"cannot start: {why}; remove the component that runs it")
    if is_too_deep(MAX_NESTED if is_bundle else 0):
        why = f"{MAX_DEPTH} Porticos start each other"
        raise ComponentError(f"cannot start: {why}; of {names}, remove the one that runs Portico")
    os.environ[COMPOSITIONS] = ":".join((*outer, digest))


def is_too_deep(more: int = 0) -> bool:
    """True for a process inside of as many Porticos as may start each other, and of more."""
    from portico.upstream.process.process_tree import MARK

    return os.environ.get(MARK, "").count(":") >= MAX_DEPTH + more


def _digest(components: Iterable[Component]) -> str:
    """Return a digest of files, commands and URLs, without their names."""
    from hashlib import blake2b

    parts = [os.getcwd()]
    for one in components:
        path = os.path.realpath(one.path) if one.path else ""
        parts += (path, one.variable, one.url, *one.argv, "")
    # A path may have bytes that are not text: Python decodes them to lone surrogates.
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()
