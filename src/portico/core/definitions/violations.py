"""The violations of a schema, in words that a model can act on."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from portico.core.definitions.keywords import DRAFT_4
from portico.core.definitions.wording import MAX_LENGTH, render, render_all, type_name
from portico.core.model.wording import counted


class SchemaViolation(Struct, frozen=True):
    """A message with its path (`items[2].name`; empty for the whole value)."""

    path: str
    message: str
    expected: Any = None
    """The type, the options or the limit in the schema."""
    keyword: str = ""
    """The violated keyword of the schema."""
    got: str = ""
    """The given value, shortened, if the violation is about the value itself."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def describe(problems: Iterable[SchemaViolation]) -> str:
    """Join the violations into one text."""
    return "; ".join(map(str, problems))


def assertion_problem(path: str, keyword: str, limit: Any, value: Any) -> SchemaViolation:
    """Return the violation of a keyword that constrains the value itself."""
    return SchemaViolation(path, _MESSAGES[keyword](limit, value), limit, keyword, render(value))


def has_type(types: list[str], value: Any, dialect: str) -> bool:
    """True if a value has one of these types."""
    kind = type_name(value)
    if kind == "integer" and isinstance(value, float) and dialect == DRAFT_4:
        kind = "number"  # in draft 4, 1.0 is not an integer
    return kind in types or (kind == "integer" and "number" in types)


def type_problem(path: str, types: list[str], value: Any) -> SchemaViolation:
    """Return the violation of a value that has none of these types."""
    kind = type_name(value)
    got = f"{kind} {render(value)}" if isinstance(value, str | int | float) else kind
    expected = types[0] if len(types) == 1 else types
    return SchemaViolation(path, f"expected {' or '.join(types)}, got {got}", expected, "type", got)


def options_problem(path: str, options: list[Any], got: str) -> SchemaViolation:
    """Return the violation of a value that is not one of these options."""
    if len(options) == 1:
        return SchemaViolation(
            path, f"must be {render(options[0])}, not {got}", options, "enum", got
        )
    return SchemaViolation(path, f"{got} is not one of {render_all(options)}", options, "enum", got)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}…"


def _counted(unit: str, bound: str) -> Callable[[Any, Any], str]:
    def words(limit: Any, value: Any) -> str:
        return f"has {counted(len(value), unit)}, must have at {bound} {render(limit)}"

    return words


_MESSAGES: dict[str, Callable[[Any, Any], str]] = {
    "const": lambda want, got: f"must be {render(want)}, not {render(got)}",
    "minimum": lambda want, got: f"{render(got)} is less than the minimum {render(want)}",
    "maximum": lambda want, got: f"{render(got)} is more than the maximum {render(want)}",
    "exclusiveMinimum": lambda want, got: f"must be more than {render(want)}, not {render(got)}",
    "exclusiveMaximum": lambda want, got: f"must be less than {render(want)}, not {render(got)}",
    "multipleOf": lambda want, got: f"{render(got)} is not a multiple of {render(want)}",
    "minLength": _counted("character", "least"),
    "maxLength": _counted("character", "most"),
    "minItems": _counted("item", "least"),
    "maxItems": _counted("item", "most"),
    "minProperties": _counted("field", "least"),
    "maxProperties": _counted("field", "most"),
    "uniqueItems": lambda _, __: "has the same item more than once",
    "pattern": lambda want, got: f"{render(got)} does not match the pattern {_cut(want)}",
}
ASSERTIONS = frozenset(_MESSAGES) | {"enum"}
