"""The limits of values that a schema can check in bounded time."""

from math import isqrt
from typing import Any

from portico.core.definitions.definition_error import SchemaError
from portico.core.definitions.keywords import subschemas, walk_json
from portico.core.definitions.patterns import compile_units, pattern_cost, patterns_in
from portico.core.definitions.references import References
from portico.core.definitions.structure import FOREIGN_NODES
from portico.core.definitions.validation_cost import MAX_UNITS, ValidationCost, number_units

OWN_WORK = 100_000_000
"""Units of work (20 ns) for one value and a schema of the user: at most two seconds."""
FOREIGN_WORK = 1_000_000
"""The same for a schema of a server that checks its arguments itself: at most 20 ms."""
MAX_DEPTH = 500
"""The limit of nesting: the validator uses its stack for recursive schemas."""
_MAX_UNITS_PER_BYTE = 15
"""Units that one byte of JSON can cost: a byte of a number with 4,000 digits."""
_MIN_WIDTH = 8
"""Units to measure a value."""
_CHARACTERS_PER_UNIT = 512
"""Characters of text that cost as much as a number."""
_MAX_BYTES = 4_000_000
"""More than the default limit of a request body."""


def check_compile_time(schema: Any) -> None:
    """Raise SchemaError for patterns and numbers that take too long to compile."""
    units = sum(compile_units(pattern) for pattern, _ in patterns_in(schema))
    units += sum(number_units(value) for value in walk_json(schema) if isinstance(value, int))
    if units > FOREIGN_NODES:
        raise SchemaError("has patterns or numbers that take too long to compile")


class SchemaLimits:
    """The depth and size that a value may have for one schema."""

    def __init__(self, schema: Any, max_work: int = OWN_WORK) -> None:
        found = dict.fromkeys(patterns_in(schema))
        cost = sum(pattern_cost(pattern) for pattern in {pattern for pattern, _ in found})
        fields = {field for _, field in found}
        references = References(schema)
        work = ValidationCost(schema, references)
        self._max_work = max_work
        self._recursive = work.recursive
        self._width = max(work.width, _MIN_WIDTH)
        self._compares_pairs = _has_unique(schema)
        self._max_text = max_work // cost if cost else MAX_UNITS
        # A reference can apply a pattern to any field.
        self._fields = None if references.has_any or None in fields else fields
        """The fields whose text is matched against a pattern; None for all."""
        worst = _MAX_UNITS_PER_BYTE if max_work == FOREIGN_WORK else 1
        self.safe_size = max_work // ((self._width + cost) * worst)
        """Every value up to this size, in bytes of JSON, is within the limits."""
        if self._compares_pairs:
            self.safe_size = min(self.safe_size, isqrt(max_work) * 2)
        if self._recursive:
            self.safe_size = min(self.safe_size, 2 * MAX_DEPTH)
        self.is_needed = self._recursive or self.safe_size < _MAX_BYTES
        """True if a value of unknown size must be measured."""

    def excess(self, instance: Any) -> str:
        """Return why a value exceeds the limits, or ""."""
        return self._too_large(instance) or self._too_long(instance)

    def _too_large(self, instance: Any) -> str:
        max_units = self._max_work // self._width
        units, pairs = 1, 0
        level = [instance]
        for _ in range(MAX_DEPTH):
            below: list[Any] = []
            for value in level:
                kind = type(value)
                if kind is str:
                    units += len(value) // _CHARACTERS_PER_UNIT
                elif kind is dict or kind is list or kind is tuple:
                    units += len(value)
                    if units > max_units:
                        return self._too_much()
                    below.extend(value.values() if kind is dict else value)
                elif kind is int and (slow := number_units(value)):
                    units += slow
                    pairs += 1
            if not below:
                # The validator compares every pair of numbers beyond 63 bits.
                units += pairs * pairs * 50 if self._compares_pairs else 0
                return self._too_much() if units > max_units else ""
            level = below
        # Only a recursive schema reaches this depth.
        return f"nested deeper than {MAX_DEPTH} levels" if self._recursive else ""

    def _too_long(self, instance: Any) -> str:
        """Return why the text that is matched against patterns is too long, or ""."""
        if self._max_text >= _MAX_BYTES:
            return ""
        text = 0
        level = [(instance, self._fields is None)]
        for _ in range(MAX_DEPTH):
            below: list[tuple[Any, bool]] = []
            for value, counts in level:
                if isinstance(value, str):
                    text += len(value) if counts else 0
                elif isinstance(value, dict):
                    text += sum(map(len, map(str, value))) if counts else 0
                    below.extend((v, counts or self._meets_pattern(k)) for k, v in value.items())
                elif isinstance(value, list | tuple):
                    below.extend((item, counts) for item in value)
            if text > self._max_text:
                return f"too long to match against patterns: over {self._max_text} characters"
            if not below:
                break
            level = below
        return ""

    def _too_much(self) -> str:
        return (
            f"too much to check against this schema: at most {self._max_work // self._width} values"
            f" (up to {self._width} checks for each)"
        )

    def _meets_pattern(self, field: Any) -> bool:
        return self._fields is not None and field in self._fields


def _has_unique(schema: Any) -> bool:
    pending = [schema]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            if one.get("uniqueItems") is True:
                return True
            pending.extend(inner for _, inner in subschemas(one))
    return False
