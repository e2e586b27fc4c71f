"""How much work a schema can cause the validator for one value, found without asking it.

The validator has no time limit and holds up every other call, so the bound is set before it runs.
One unit is about 20 ns, the time of a `type` check. Recursive references cost one visit for each
value, because the validator remembers their outcomes.
"""

from typing import Any

from portico.definitions.keywords import REFERENCES, STORES, parts_of, subschemas
from portico.definitions.references import References

MAX_UNITS = 1_000_000_000
"""Where counting ends: far beyond every limit."""
_COMPARED = 15
"""Units to compare two numbers, or one level of an object."""
_HUGE = 75
"""Units for a number beyond 63 bits, which is compared digit by digit."""
_EVALUATED_AGAIN = 4
"""How often `unevaluatedProperties` and `unevaluatedItems` run the schemas beside them."""

_IN_PLACE = frozenset(
    {
        *("allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
        *("dependentSchemas", "dependencies", *REFERENCES),
    }
)
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_ALTERNATIVE = ("properties", "additionalProperties", "prefixItems", "items", "additionalItems")
"""Of these a field or an item meets one schema, of the other keywords every one."""


def huge(number: int) -> int:
    """Units for one number, if it is beyond 63 bits; else 0."""
    bits = number.bit_length()
    return _HUGE + (bits // 53) ** 2 if bits > 63 else 0


class ValidationCost:
    """The units of work a schema can cause at a single place of a value."""

    def __init__(self, schema: Any, references: References) -> None:
        self._references = references
        self._found: dict[int, tuple[int, int]] = {}
        self._circular: dict[int, Any] = {}
        here, below = self._measured(schema)
        again = (max(self._found[key]) for key in self._circular)
        self.width = min(max(here, below) + sum(again), MAX_UNITS)
        """Units at the place where the most schemas apply."""
        self.recursive = bool(self._circular)

    def _measured(self, schema: Any) -> tuple[int, int]:
        """Units at the value itself, and at most at one place below it."""
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
        own = 1 + sum(_weight(keyword, value) for keyword, value in schema.items())
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
            here, below = here * _EVALUATED_AGAIN, below * _EVALUATED_AGAIN + here
        return min(own + here, MAX_UNITS), min(below + one_of + all_of, MAX_UNITS)

    def _applied(self, schema: dict[str, Any]) -> list[tuple[str, Any]]:
        """The schemas that this one applies to its value or to parts of it."""
        inside = [(str(way[0]), inner) for way, inner in subschemas(schema)]
        applied = [(keyword, inner) for keyword, inner in inside if keyword not in STORES]
        for keyword in REFERENCES:
            reference = schema.get(keyword)
            if isinstance(reference, str):
                target = self._references.target(schema, reference)
                if target is not None:
                    applied.append((keyword, self._references.at(target)))
        return applied


def _weight(keyword: str, value: Any) -> int:
    """Units for one keyword, apart from the schemas in it."""
    match keyword:
        case "const":
            return _data(value)
        case "enum" if isinstance(value, list):
            # Plain options are looked up; the others are compared one by one.
            slow = (one for one in value if isinstance(one, dict | list) or _data(one) > _COMPARED)
            return 5 + sum(map(_data, slow))
        case "required" | "dependentRequired":
            return 1 + _data(value) // _COMPARED
        case "uniqueItems":
            return 5
    return 2 + (huge(value) if isinstance(value, int) else 0)


def _data(value: Any) -> int:
    """Units to compare with a value."""
    parts = parts_of(value)
    return sum(_COMPARED + (huge(one) if isinstance(one, int) else 0) for one in parts)
