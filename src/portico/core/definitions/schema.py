"""A JSON Schema, compiled on first use; `shapes.py` makes one from a type."""

from collections.abc import Iterable
from time import thread_time
from typing import TYPE_CHECKING, Any, NoReturn

from portico.core.definitions.definition_error import SchemaError
from portico.core.definitions.patterns import MAX_BACKTRACKS, MAX_COMPILED_BYTES
from portico.core.definitions.schema_limits import (
    FOREIGN_WORK,
    OWN_WORK,
    SchemaLimits,
    check_compile_time,
)
from portico.core.definitions.structure import FOREIGN_NODES, MAX_NODES, structural_check
from portico.core.definitions.violations import SchemaViolation, describe
from portico.core.definitions.wording import dotted, render

if TYPE_CHECKING:
    from jsonschema_rs import Validator

__all__ = ["Schema", "SchemaError", "SchemaViolation", "describe", "structural_check"]


class Schema:
    """A JSON Schema, of 2020-12 unless it has `$schema`. `format` is not checked."""

    def __init__(
        self, source: dict[str, Any] | bool, *, where: str = "", foreign: bool = False
    ) -> None:
        """`foreign`: the schema of a server that checks its arguments itself. It gets less time;
        a value that needs more is not checked here."""
        self.source = source
        self._where = where
        self._foreign = foreign
        self._validator: Validator | None = None
        self._limits: SchemaLimits | None = None

    def check(self) -> None:
        """Raise SchemaError if it is invalid, too large, or of an unknown dialect.

        A reference to another document is an error: nothing is ever fetched.
        """
        self._compiled()

    def problems(self, instance: Any, size: int | None = None) -> list[SchemaViolation]:
        """Return the violations of a value, in words that a model can act on.

        `size` is at least the number of bytes of its JSON: a small value is not measured.
        """
        validator = self._validator or self._compiled()
        limits = self._limits
        assert limits is not None
        plain = not limits.is_needed if size is None else size <= limits.safe_size
        if not plain and (excess := limits.excess(instance)):
            return self._unchecked(excess)
        started = None if plain else thread_time()
        try:
            if validator.is_valid(instance):
                return []
        except ValueError as error:  # the value is not JSON
            return self._unchecked(f"cannot be checked: {render(str(error), 200)}")
        from portico.core.definitions.explain import explain

        return explain(self.source, instance, started)

    def _unchecked(self, why: str) -> list[SchemaViolation]:
        return [] if self._foreign else [SchemaViolation("", why)]

    def describe(self, problems: Iterable[SchemaViolation]) -> str:
        """Join the violations into one text."""
        return describe(problems)

    def _compiled(self) -> "Validator":
        if self._validator is None:
            try:
                self._validator = self._compile()
            except SchemaError as error:
                raise error.inside(source=self._where) from None
        return self._validator

    def _compile(self) -> "Validator":
        structural_check(self.source, max_nodes=FOREIGN_NODES if self._foreign else MAX_NODES)
        if self._foreign:
            check_compile_time(self.source)
        self._limits = SchemaLimits(self.source, FOREIGN_WORK if self._foreign else OWN_WORK)
        return compiled(self.source)


def compiled(schema: Any, **options: Any) -> "Validator":
    """Compile a validator that fetches nothing and limits its patterns, or raise SchemaError."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(
            schema,
            validate_formats=False,
            retriever=_refuse,
            pattern_options=jsonschema_rs.FancyRegexOptions(
                backtrack_limit=MAX_BACKTRACKS, size_limit=MAX_COMPILED_BYTES
            ),
            **options,
        )
    except jsonschema_rs.ValidationError as error:
        raise SchemaError(_reason(error), field=dotted(error.instance_path)) from None
    except ValueError as error:
        raise SchemaError(f"cannot be compiled: {render(str(error), 200)}") from None


def _reason(error: Any) -> str:
    if error.instance_path and error.instance_path[-1] == "pattern":
        what = f"{render(error.instance)} is not a valid regular expression, or is too large"
        return f"{what} (use maxLength to limit the length)"
    message: str = error.message
    return message if len(message) <= 200 else message[:199] + "…"


def _refuse(uri: str, /) -> NoReturn:
    raise ValueError(f"{render(uri)} is another document; other documents are never fetched")
