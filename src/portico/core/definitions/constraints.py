"""Constraints of other libraries in annotations, converted to msgspec's.

They are recognized by name and attributes, so that pydantic is not imported.
"""

import types
import typing
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

_BOUNDS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")
_KEYWORDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "min_length": "minLength",
    "max_length": "maxLength",
}
_WORDS = ("title", "description", "examples")
_UNIONS = (typing.Union, types.UnionType)


def members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union; of another type, the type itself."""
    return typing.get_args(kind) if typing.get_origin(kind) in _UNIONS else (kind,)


def is_field(note: Any) -> bool:
    """True for pydantic's `Field(...)`."""
    return type(note).__name__ == "FieldInfo" and hasattr(note, "metadata")


def constrained(kind: Any) -> Any:
    """Return the type with its constraints as `msgspec.Meta`."""
    if typing.get_origin(kind) is Annotated:
        inner = constrained(kind.__origin__)
        for note in kind.__metadata__:
            inner = _annotated(inner, note)
        return inner
    arguments = typing.get_args(kind)
    if not arguments or typing.get_origin(kind) is typing.Literal:
        return kind
    inside = tuple(constrained(one) if typing.get_args(one) else one for one in arguments)
    if all(new is old for new, old in zip(inside, arguments, strict=True)):
        return kind
    origin = typing.get_origin(kind)
    return typing.Union[inside] if origin in _UNIONS else origin[inside]  # noqa: UP007


def constrained_default(kind: Any, field: Any) -> Any:
    """Return the type of a parameter whose default is a `Field(...)`."""
    return _annotated(constrained(kind), field)


def default_of(field: Any) -> Callable[[], Any] | None:
    """Return a function that makes the default of a `Field(...)`; None if it has no default."""
    if field.default_factory is not None:
        factory: Callable[[], Any] = field.default_factory
        return factory
    default = field.default
    if default is ... or type(default).__name__ == "PydanticUndefinedType":
        return None
    return lambda: default


def _annotated(kind: Any, note: Any) -> Any:
    """Return the type with one more annotation."""
    limits = _limits(note)
    said = [(name, getattr(note, name, None)) for name in _WORDS] if is_field(note) else []
    words: dict[str, Any] = {name: value for name, value in said if value}
    extra = getattr(note, "json_schema_extra", None) if is_field(note) else None
    if isinstance(extra, dict):
        words["extra_json_schema"] = extra
    if not limits and not words:
        return Annotated[kind, note]
    try:
        found = Annotated[kind, msgspec.Meta(**limits, **words)]
        msgspec.json.schema(found, schema_hook=lambda _: {})
    except (TypeError, ValueError):
        # msgspec cannot constrain this type, but its schema can.
        keywords = {_KEYWORDS.get(name, name): value for name, value in limits.items()}
        words["extra_json_schema"] = {**keywords, **words.get("extra_json_schema", {})}
        return Annotated[kind, msgspec.Meta(**words)]
    return found


def _limits(note: Any) -> dict[str, Any]:
    """Return the limits in an annotation of pydantic or annotated-types."""
    if isinstance(note, msgspec.Meta | str):
        return {}
    home = type(note).__module__.partition(".")[0]
    if home not in ("annotated_types", "pydantic"):
        return {}
    limits: dict[str, Any] = {name: getattr(note, name, None) for name in _BOUNDS}
    for inner in getattr(note, "metadata", ()) if is_field(note) else ():
        limits |= _limits(inner)
    if hasattr(limits["pattern"], "pattern"):
        limits["pattern"] = limits["pattern"].pattern
    limits = {name: value for name, value in limits.items() if value is not None}
    for name, value in limits.items():
        if not isinstance(value, int | float | str):
            raise TypeError(f"the limit {name}={value!r} cannot be written as JSON")
    return limits
