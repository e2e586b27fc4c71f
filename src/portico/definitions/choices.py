"""Options in the order in which their author wrote them; msgspec sorts them."""

import typing
from collections.abc import Iterable
from enum import Enum
from typing import Any

from portico.definitions.keywords import parts_of

Choices = dict[frozenset[Any], list[Any]]
"""By the options themselves, how they are written."""


def restore_order(schemas: Iterable[Any], kinds: Iterable[Any]) -> None:
    """Put the options of all `enum`s in these schemas of these types into their own order."""
    walked = (part for part in parts_of(*schemas) if isinstance(part, dict))
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
    """The types within a class, an alias or a new name."""
    for name in ("__supertype__", "__value__"):
        if hasattr(kind, name):
            return [getattr(kind, name)]
    kind = typing.get_origin(kind) or kind
    if not isinstance(kind, type) or not hasattr(kind, "__annotations__"):
        return []
    try:
        return list(typing.get_type_hints(kind, include_extras=True).values())
    except (NameError, TypeError, AttributeError):
        return []  # msgspec, which knows more of classes, made its schema all the same


def _key(options: list[Any]) -> frozenset[Any]:
    # 1 and True are equal, but different options.
    return frozenset((type(one), one) for one in options if not isinstance(one, list | dict))
