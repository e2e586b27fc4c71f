"""The options of enums in the order of their source; msgspec sorts them."""

import typing
from collections.abc import Iterable
from enum import Enum
from typing import Any

from portico.core.definitions.keywords import walk_json

Choices = dict[frozenset[Any], list[Any]]
"""The options in source order, by their set."""


def restore_order(schemas: Iterable[Any], kinds: Iterable[Any]) -> None:
    """Put the options of every `enum` in these schemas into the order of these types."""
    walked = (part for part in walk_json(*schemas) if isinstance(part, dict))
    found = [s for s in walked if isinstance(s.get("enum"), list) and len(s["enum"]) > 1]
    if not found:
        return
    choices: Choices = {}
    seen: set[int] = set()
    for kind in kinds:
        _collect(kind, choices, seen)
    for schema in found:
        own = choices.get(_key(schema["enum"]))
        if own is not None:
            schema["enum"] = own


def _collect(kind: Any, choices: Choices, seen: set[int]) -> None:
    if id(kind) in seen:
        return
    seen.add(id(kind))
    options = _options(kind)
    if options:
        choices.setdefault(_key(options), options)
        return
    for inner in (*typing.get_args(kind), *_fields(kind)):
        _collect(inner, choices, seen)


def _options(kind: Any) -> list[Any]:
    if typing.get_origin(kind) is typing.Literal:
        return list(typing.get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [member.value for member in kind]
    return []


def _fields(kind: Any) -> list[Any]:
    """Return the types inside a class, an alias or a `NewType`."""
    for name in ("__supertype__", "__value__"):
        if hasattr(kind, name):
            return [getattr(kind, name)]
    kind = typing.get_origin(kind) or kind
    if not isinstance(kind, type) or not hasattr(kind, "__annotations__"):
        return []
    try:
        return list(typing.get_type_hints(kind, include_extras=True).values())
    except (NameError, TypeError, AttributeError):
        return []  # msgspec can still make its schema


def _key(options: list[Any]) -> frozenset[Any]:
    # 1 and True are equal, but different options.
    return frozenset((type(one), one) for one in options if not isinstance(one, list | dict))
