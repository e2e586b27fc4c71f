"""One thing that is wrong with a value, in words a model can act on."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from portico.definitions.keywords import DRAFT_4
from portico.definitions.wording import MAX_LENGTH, listed, render, type_name
from portico.model.wording import counted


class SchemaViolation(Struct, frozen=True):
    """What is wrong, where (`items[2].name`; empty for the whole value), and what was expected."""

    path: str
    message: str
    expected: Any = None
    """What the schema asks for: a type, the options, a limit."""
    keyword: str = ""
    """The keyword of the schema that says so."""
    got: str = ""
    """The value that was given, shortened, if the problem is about the value itself."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def describe(problems: Iterable[SchemaViolation]) -> str:
    """The problems in one short text."""
    return "; ".join(map(str, problems))


def assertion(path: str, keyword: str, asked: Any, value: Any) -> SchemaViolation:
    """The problem of a value that breaks a keyword which asks something of the value itself."""
    return SchemaViolation(path, _WORDS[keyword](asked, value), asked, keyword, render(value))


def is_of(types: list[str], value: Any, dialect: str) -> bool:
    """True for a value of one of these types."""
    kind = type_name(value)
    if kind == "integer" and isinstance(value, float) and dialect == DRAFT_4:
        kind = "number"  # by how it is written, there
    return kind in types or (kind == "integer" and "number" in types)


def type_problem(path: str, types: list[str], value: Any) -> SchemaViolation:
    """The problem of a value that is of none of these types."""
    kind = type_name(value)
    got = f"{kind} {render(value)}" if isinstance(value, str | int | float) else kind
    expected = types[0] if len(types) == 1 else types
    return SchemaViolation(path, f"expected {' or '.join(types)}, got {got}", expected, "type", got)


def options_problem(path: str, options: list[Any], got: str) -> SchemaViolation:
    """The problem of a value that is none of these."""
    if len(options) == 1:
        return SchemaViolation(
            path, f"must be {render(options[0])}, not {got}", options, "enum", got
        )
    return SchemaViolation(path, f"{got} is not one of {listed(options)}", options, "enum", got)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}…"


def _counted(unit: str, bound: str) -> Callable[[Any, Any], str]:
    def words(asked: Any, value: Any) -> str:
        return f"has {counted(len(value), unit)}, must have at {bound} {render(asked)}"

    return words


_WORDS: dict[str, Callable[[Any, Any], str]] = {
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
ASSERTIONS = frozenset(_WORDS) | {"enum"}
