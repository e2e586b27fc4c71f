"""An estimate of the validator's work for one value and a schema.

The validator has no time limit and blocks every other call, so the work is limited before it
runs. One unit is about 20 ns, the time of a `type` check. Recursive references cost one visit for
each value, because the validator caches their outcomes.
"""

from typing import Any

from portico.core.definitions.keywords import REFERENCES, SCHEMA_STORES, subschemas, walk_json
from portico.core.definitions.references import References

MAX_UNITS = 1_000_000_000
"""Counting stops here, far beyond every limit."""
_COMPARE = 15
"""Units to compare two numbers, or one level of an object."""
_BIG_NUMBER_UNITS = 75
"""Units for a number beyond 63 bits."""
_REEVALUATIONS = 4
"""How often `unevaluatedProperties` and `unevaluatedItems` evaluate the schemas beside them."""

_IN_PLACE = frozenset(
    {
        *("allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
        *("dependentSchemas", "dependencies", *REFERENCES),
    }
)
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_ALTERNATIVE = ("properties", "additionalProperties", "prefixItems", "items", "additionalItems")
"""Only one of the schemas of these keywords applies to a field or an item."""


def number_units(number: int) -> int:
    """Return the units of a number beyond 63 bits; 0 for others."""
    bits = number.bit_length()
    return _BIG_NUMBER_UNITS + (bits // 53) ** 2 if bits > 63 else 0


class ValidationCost:
    """The units of work that a schema costs for one value inside the checked value."""

    def __init__(self, schema: Any, references: References) -> None:
        self._references = references
        self._found: dict[int, tuple[int, int]] = {}
        self._circular: dict[int, Any] = {}
        here, below = self._measured(schema)
        again = (max(self._found[key]) for key in self._circular)
        self.width = min(max(here, below) + sum(again), MAX_UNITS)
        """Units for the value to which the most schemas apply."""
        self.recursive = bool(self._circular)

    def _measured(self, schema: Any) -> tuple[int, int]:
        """Return the units for the value itself, and the maximum for a value inside it."""
        if not isinstance(schema, dict):
            return 1, 0
        key = id(schema)
        if key in self._found:
            if not any(self._found[key]):
                self._circular[key] = schema
            return self._found[key]
        self._found[key] = (0, 0)  # while it is being measured
        found = self._found[key] = self._measure(schema)
        return found

    def _measure(self, schema: dict[str, Any]) -> tuple[int, int]:
        own = 1 + sum(_keyword_units(keyword, value) for keyword, value in schema.items())
        here = below = one_of = all_of = 0
        for keyword, inner in self._applied(schema):
            at_value, deeper = self._measured(inner)
            if keyword in _IN_PLACE:
                here += at_value
                below += deeper
            elif keyword in _ALTERNATIVE:
                one_of = max(one_of, at_value, deeper)
            else:
                all_of += max(at_value, deeper)
        if any(keyword in schema for keyword in _UNEVALUATED):
            here, below = here * _REEVALUATIONS, below * _REEVALUATIONS + here
        return min(own + here, MAX_UNITS), min(below + one_of + all_of, MAX_UNITS)

    def _applied(self, schema: dict[str, Any]) -> list[tuple[str, Any]]:
        """Return the schemas that this one applies to its value or parts of it."""
        inside = [(str(step[0]), inner) for step, inner in subschemas(schema)]
        applied = [(keyword, inner) for keyword, inner in inside if keyword not in SCHEMA_STORES]
        for keyword in REFERENCES:
            reference = schema.get(keyword)
            if isinstance(reference, str):
                target = self._references.target(schema, reference)
                if target is not None:
                    applied.append((keyword, self._references.at(target)))
        return applied


def _keyword_units(keyword: str, value: Any) -> int:
    """Return the units of a keyword, without the schemas in it."""
    match keyword:
        case "const":
            return _value_units(value)
        case "enum" if isinstance(value, list):
            # Simple options are looked up in a set; the others are compared one by one.
            slow = (
                one for one in value if isinstance(one, dict | list) or _value_units(one) > _COMPARE
            )
            return 5 + sum(map(_value_units, slow))
        case "required" | "dependentRequired":
            return 1 + _value_units(value) // _COMPARE
        case "uniqueItems":
            return 5
    return 2 + (number_units(value) if isinstance(value, int) else 0)


def _value_units(value: Any) -> int:
    """Return the units to compare with a value."""
    parts = walk_json(value)
    return sum(_COMPARE + (number_units(one) if isinstance(one, int) else 0) for one in parts)
