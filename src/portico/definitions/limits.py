"""Which values a schema can be held against in good time."""

from sys import maxsize
from typing import Any

from portico.definitions.patterns import WORK, pattern_cost, patterns_in
from portico.definitions.references import References

MAX_DEPTH = 500
"""The validator follows a recursive schema down a value on its own stack."""
_MOST_TEXT = 4_000_000
"""More text than a request body may hold by default."""


class Limits:
    """How deep a value may be for a schema, and how much text it may have for its patterns."""

    def __init__(self, schema: Any) -> None:
        found = dict.fromkeys(patterns_in(schema))
        cost = sum(pattern_cost(pattern) for pattern in {pattern for pattern, _ in found})
        fields = {field for _, field in found}
        refers = References(schema).any
        self._text = WORK // cost if cost else maxsize
        # A reference can bring a pattern to any other field.
        self._fields = None if refers or None in fields else fields
        """The fields whose text meets a pattern; None for all."""
        self.needed = refers or self._text < _MOST_TEXT
        """False if every value that can arrive is within the limits."""

    def excess(self, instance: Any) -> str:
        """What is too much about a value; empty if nothing is."""
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
                return ""
            level = below
        return f"nested deeper than {MAX_DEPTH} levels"

    def _meets(self, field: Any) -> bool:
        return self._fields is not None and field in self._fields
