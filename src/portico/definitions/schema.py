"""One JSON Schema, compiled when it is first used, and what it says of a value."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from portico.definitions import patterns
from portico.definitions.errors import SchemaError
from portico.definitions.problems import Problem, describe
from portico.definitions.references import References
from portico.definitions.structure import structural_check
from portico.definitions.words import dotted, shown

if TYPE_CHECKING:
    from jsonschema_rs import Validator

__all__ = ["Problem", "Schema", "SchemaError", "describe", "structural_check"]

MAX_INSTANCE_DEPTH = 500
"""The validator follows a recursive schema down a value on its own stack."""


class Schema:
    """A JSON Schema; without `$schema` it is one of 2020-12. `format` only annotates."""

    def __init__(self, source: dict[str, Any] | bool, *, where: str = "") -> None:
        self.source = source
        self._where = where
        self._validator: Validator | None = None
        self._text_limit = 0
        self._measured = False

    def check(self) -> None:
        """Raise SchemaError if it is invalid, of an unknown dialect, not self-contained, or huge.

        A reference to another document counts as dangling: nothing is ever fetched.
        """
        self._compiled()

    def problems(self, instance: Any) -> list[Problem]:
        """What is wrong with a value, in words a model can act on; empty if it is valid."""
        validator = self._validator or self._compiled()
        if self._measured and (excess := self._excess(instance)):
            return [Problem("", excess)]
        try:
            if validator.is_valid(instance):
                return []
        except ValueError as error:  # not JSON: a value that no JSON text could have
            return [Problem("", f"cannot be checked: {shown(str(error), 200)}")]
        from portico.definitions.explain import explain

        return explain(self.source, instance)

    def describe(self, problems: Iterable[Problem]) -> str:
        """The problems in one short text."""
        return describe(problems)

    def _compiled(self) -> "Validator":
        if self._validator is None:
            try:
                self._validator = self._compile()
            except SchemaError as error:
                raise error.inside(source=self._where) from None
        return self._validator

    def _compile(self) -> "Validator":
        structural_check(self.source)
        self._text_limit = patterns.text_limit(self.source)
        # Only for what can be followed arbitrarily deep, or matched at length, are values measured.
        self._measured = References(self.source).any or self._text_limit < patterns.UNLIMITED
        return compiled(self.source)

    def _excess(self, instance: Any) -> str:
        """What is too much about a value for this schema to be checked in good time."""
        text = 0
        level = [instance]
        for _ in range(MAX_INSTANCE_DEPTH):
            below: list[Any] = []
            for value in level:
                if isinstance(value, str):
                    text += len(value)
                elif isinstance(value, dict):
                    text += sum(len(key) for key in value if isinstance(key, str))
                    below.extend(value.values())
                elif isinstance(value, list | tuple):
                    below.extend(value)
            if text > self._text_limit:
                return f"too long to match against patterns: over {self._text_limit} characters"
            if not below:
                return ""
            level = below
        return f"nested deeper than {MAX_INSTANCE_DEPTH} levels"


def compiled(schema: Any, **options: Any) -> "Validator":
    """A validator that fetches nothing and whose patterns cannot run away, or SchemaError."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(
            schema,
            validate_formats=False,
            retriever=_refuse,
            pattern_options=jsonschema_rs.FancyRegexOptions(
                backtrack_limit=patterns.BACKTRACKS, size_limit=patterns.COMPILED_BYTES
            ),
            **options,
        )
    except jsonschema_rs.ValidationError as error:
        raise SchemaError(_reason(error), field=dotted(error.instance_path)) from None
    except ValueError as error:
        raise SchemaError(f"cannot be compiled: {shown(str(error), 200)}") from None


def _reason(error: Any) -> str:
    if error.instance_path and error.instance_path[-1] == "pattern":
        return f"{shown(error.instance)} is not a regular expression, or too large a one"
    message: str = error.message
    return message if len(message) <= 200 else message[:199] + "…"


def _refuse(uri: str, /) -> NoReturn:
    raise ValueError(f"{shown(uri)} is another document, and those are never fetched")
