"""Which values a schema can be held against in good time."""

from math import isqrt
from typing import Any

from portico.definitions.definition_error import SchemaError
from portico.definitions.keywords import parts_of, subschemas
from portico.definitions.patterns import compile_units, pattern_cost, patterns_in
from portico.definitions.references import References
from portico.definitions.structure import FOREIGN_NODES
from portico.definitions.validation_cost import MAX_UNITS, ValidationCost, huge

OWN_WORK = 100_000_000
"""Units of work (20 ns) for one value and a schema of our user: two seconds at worst."""
FOREIGN_WORK = 1_000_000
"""The same for a schema of a server that also checks its arguments itself: 20 ms at worst."""
MAX_DEPTH = 500
"""The validator follows a recursive schema down a value on its own stack."""
_WORST_BYTE = 15
"""Units that a byte of JSON can cause where a schema does one: in a number of 4,000 digits."""
_NARROWEST = 8
"""Units that measuring a value takes itself."""
_CHARACTERS = 512
"""Characters of text that are as much work as a number."""
_MAX_BYTES = 4_000_000
"""More than a request body may hold by default."""


def check_compile_time(schema: Any) -> None:
    """Raise SchemaError for patterns and numbers that take too long to compile."""
    units = sum(compile_units(pattern) for pattern, _ in patterns_in(schema))
    units += sum(huge(value) for value in parts_of(schema) if isinstance(value, int))
    if units > FOREIGN_NODES:
        raise SchemaError("has patterns or numbers that take too long to compile")


class SchemaLimits:
    """How deep a value may be for a schema, and how much of it there may be."""

    def __init__(self, schema: Any, most: int = OWN_WORK) -> None:
        found = dict.fromkeys(patterns_in(schema))
        cost = sum(pattern_cost(pattern) for pattern in {pattern for pattern, _ in found})
        fields = {field for _, field in found}
        references = References(schema)
        work = ValidationCost(schema, references)
        self._most = most
        self._recursive = work.recursive
        self._width = max(work.width, _NARROWEST)
        self._pairs = _has_unique(schema)
        self._text = most // cost if cost else MAX_UNITS
        # A reference can bring a pattern to any other field.
        self._fields = None if references.any or None in fields else fields
        """The fields whose text meets a pattern; None for all."""
        worst = _WORST_BYTE if most == FOREIGN_WORK else 1
        self.small = most // ((self._width + cost) * worst)
        """Every value of so many bytes of JSON, or fewer, is within the limits."""
        if self._pairs:
            self.small = min(self.small, isqrt(most) * 2)
        if self._recursive:
            self.small = min(self.small, 2 * MAX_DEPTH)
        self.needed = self._recursive or self.small < _MAX_BYTES
        """False if a value whose size is not known need not be measured."""

    def excess(self, instance: Any) -> str:
        """What is too much about a value; empty if nothing is."""
        return self._too_large(instance) or self._too_long(instance)

    def _too_large(self, instance: Any) -> str:
        most = self._most // self._width
        units, pairs = 1, 0
        level = [instance]
        for _ in range(MAX_DEPTH):
            below: list[Any] = []
            for value in level:
                kind = type(value)
                if kind is str:
                    units += len(value) // _CHARACTERS
                elif kind is dict or kind is list or kind is tuple:
                    units += len(value)
                    if units > most:
                        return self._too_much()
                    below.extend(value.values() if kind is dict else value)
                elif kind is int and (slow := huge(value)):
                    units += slow
                    pairs += 1
            if not below:
                # Numbers beyond 63 bits are told apart by comparing each with every other.
                units += pairs * pairs * 50 if self._pairs else 0
                return self._too_much() if units > most else ""
            level = below
        # Without recursion no schema reaches that deep.
        return f"nested deeper than {MAX_DEPTH} levels" if self._recursive else ""

    def _too_long(self, instance: Any) -> str:
        """The same for the text that meets patterns."""
        if self._text >= _MAX_BYTES:
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
                    below.extend((v, counts or self._meets(k)) for k, v in value.items())
                elif isinstance(value, list | tuple):
                    below.extend((item, counts) for item in value)
            if text > self._text:
                return f"too long to match against patterns: over {self._text} characters"
            if not below:
                break
            level = below
        return ""

    def _too_much(self) -> str:
        return (
            f"too much to check against this schema: at most {self._most // self._width} values"
            f" (the schema does up to {self._width} checks on one)"
        )

    def _meets(self, field: Any) -> bool:
        return self._fields is not None and field in self._fields


def _has_unique(schema: Any) -> bool:
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if one.get("uniqueItems") is True:
                return True
            waiting.extend(inner for _, inner in subschemas(one))
    return False
