"""Why a value does not match a schema: walks both together, in bounded time.

The validator could list every error itself, but it makes the whole list before handing out the
first, and for nested alternatives that list grows without bound. So it is only asked yes-or-no
questions about parts of the schema, and not too many of them.
"""

from collections.abc import Callable
from functools import cached_property, reduce
from operator import getitem
from typing import Any

from msgspec import Struct

from portico.definitions.alternatives import best_of
from portico.definitions.keywords import REF_STANDS_ALONE, REFERENCES, Location, dialect
from portico.definitions.references import References
from portico.definitions.schema_queries import SchemaQueries
from portico.definitions.violations import (
    ASSERTIONS,
    SchemaViolation,
    assertion,
    is_of,
    options_problem,
    type_problem,
)
from portico.definitions.wording import dotted, nearest, render
from portico.model.wording import counted

MAX_PROBLEMS = 10
_MAX_BRANCHES = 20
_DEEPEST = 60
"""Schemas within schemas to walk into; beyond that, where it goes wrong is all that is said."""


class _Place(Struct, frozen=True):
    """A value held against one schema."""

    location: Location
    schema: dict[str, Any]
    value: Any
    path: tuple[str | int, ...]

    def problem(self, message: str, expected: Any = None, keyword: str = "") -> SchemaViolation:
        return SchemaViolation(dotted(self.path), message, expected, keyword)


def explain(root: Any, instance: Any, started: float | None = None) -> list[SchemaViolation]:
    """The problems of a value that is known not to match, at least one of them.

    `started` is the CPU time of this thread when the value was first checked, if that may have
    been slow: then nothing is asked again.
    """
    found = _Explainer(root, started).walk((), instance, ())
    different = {(problem.path, problem.message): problem for problem in found}
    return list(different.values())[:MAX_PROBLEMS]


class _Explainer:
    def __init__(self, root: Any, started: float | None) -> None:
        self._root = root
        self._dialect = dialect(root)
        self._ask = SchemaQueries(root, self._dialect, started)
        self._timely = self._ask.while_there_is_time
        self._active: set[tuple[Location, tuple[str | int, ...]]] = set()

    @cached_property
    def _references(self) -> References:
        return References(self._root)

    # Walking.

    def walk(
        self, location: Location, value: Any, path: tuple[str | int, ...]
    ) -> list[SchemaViolation]:
        """What is wrong with a value that fails the schema at this location."""
        schema = reduce(getitem, location, self._root)
        if not isinstance(schema, dict):
            return [SchemaViolation(dotted(path), "is not allowed here", keyword="false")]
        if (location, path) in self._active or len(self._active) == _DEEPEST:
            return [SchemaViolation(dotted(path), _unexplained(schema))]
        self._active.add((location, path))
        found = self._look(_Place(location, schema, value, path))
        self._active.discard((location, path))
        return found or [SchemaViolation(dotted(path), _unexplained(schema))]

    def _look(self, place: _Place) -> list[SchemaViolation]:
        schema, value = place.schema, place.value
        if "$ref" in schema and self._dialect in REF_STANDS_ALONE:
            return self._follow(place, "$ref")
        if "type" in schema:
            types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            if not is_of(types, value, self._dialect):
                return [type_problem(dotted(place.path), types, value)]
        asserted = (keyword for keyword in schema if keyword in ASSERTIONS)
        broken = (keyword for keyword in asserted if self._ask.breaks(schema, keyword, value))
        found = [_asserted(place, keyword) for keyword in broken]
        for keyword, step in _STEPS.items():
            if len(found) >= MAX_PROBLEMS:
                break
            # What was not evaluated is only worth telling if everything else is well.
            if keyword in schema and not (found and keyword.startswith("unevaluated")):
                found += step(self, place, keyword)
        return found

    def into(
        self, place: _Place, way: Location, value: Any, *steps: str | int
    ) -> list[SchemaViolation]:
        """What is wrong with a value according to a schema inside this one; nothing if it fits."""
        location = (*place.location, *way)
        return (
            self.walk(location, value, (*place.path, *steps))
            if self._ask.fails(location, value)
            else []
        )

    def _follow(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        target = self._references.target(place.schema, place.schema[keyword])
        if target is None or not self._ask.fails(target, place.value):
            return []
        return self.walk(target, place.value, place.path)

    # One step for each keyword that holds schemas or names of fields.

    def required(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        if not isinstance(place.value, dict):
            return []
        missing = [name for name in place.schema[keyword] if name not in place.value]
        return [_missing(place, name, "required") for name in missing]

    def dependent_required(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        found = []
        for name, needed in self._timely(_fields(place.schema[keyword], place.value)):
            if isinstance(needed, list):
                missing = (other for other in needed if other not in place.value)
                why = f"required when {render(name)} is given"
                found += [_missing(place, other, why) for other in missing]
        return found

    def properties(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        found = []
        for name, _ in self._timely(_fields(place.schema[keyword], place.value)):
            found += self.into(place, (keyword, name), place.value[name], name)
        return found

    def pattern_properties(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        found = []
        for pattern in self._timely(place.schema[keyword]):
            for name in self._matching(pattern, place.value):
                found += self.into(place, (keyword, pattern), place.value[name], name)
        return found

    def additional_properties(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        if not isinstance(place.value, dict):
            return []
        known = place.schema.get("properties", {})
        patterned = {
            name
            for pattern in place.schema.get("patternProperties", {})
            for name in self._matching(pattern, place.value)
        }
        extra = [name for name in place.value if name not in known and name not in patterned]
        if place.schema[keyword] is False:
            return [_unknown(place, name, known, keyword) for name in extra[:MAX_PROBLEMS]]
        found = []
        for name in self._timely(extra):
            found += self.into(place, (keyword,), place.value[name], name)
        return found

    def unevaluated_properties(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        """Which fields were evaluated only the validator knows; those named nowhere were not."""
        if not isinstance(place.value, dict):
            return []
        known = self._named_fields(place.location, 0)
        extra = [name for name in place.value if name not in known]
        if extra and place.schema[keyword] is False:
            return [_unknown(place, name, known, keyword) for name in extra[:MAX_PROBLEMS]]
        return [
            place.problem("has fields that are not allowed in this combination", keyword=keyword)
        ]

    def unevaluated_items(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        if not isinstance(place.value, list | tuple):
            return []
        return [place.problem("has items that nothing in the schema allows", keyword=keyword)]

    def property_names(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        if not isinstance(place.value, dict):
            return []
        return [
            place.problem(f"field name {render(name)}: {problem.message}", keyword=keyword)
            for name in self._timely(place.value)
            for problem in self.into(place, (keyword,), name)
        ]

    def prefix_items(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        found = []
        if isinstance(place.value, list | tuple) and isinstance(place.schema[keyword], list):
            pairs = zip(place.value, place.schema[keyword], strict=False)
            for index, (value, _) in enumerate(self._timely(pairs)):
                found += self.into(place, (keyword, index), value, index)
        return found

    def items(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        if not isinstance(place.value, list | tuple) or isinstance(place.schema[keyword], list):
            return self.prefix_items(place, keyword)
        prefix = place.schema.get("items" if keyword == "additionalItems" else "prefixItems")
        skipped = len(prefix) if isinstance(prefix, list) else 0
        if place.schema[keyword] is False and len(place.value) > skipped:
            return [
                place.problem(
                    f"has {counted(len(place.value), 'item')}, must have at most {skipped}"
                )
            ]
        found: list[SchemaViolation] = []
        for index in self._timely(range(skipped, len(place.value))):
            found += self.into(place, (keyword,), place.value[index], index)
            if len(found) >= MAX_PROBLEMS:
                break
        return found

    def contains(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        if not isinstance(place.value, list | tuple):
            return []
        location = (*place.location, keyword)
        matching = sum(not self._ask.fails(location, value) for value in self._timely(place.value))
        least = place.schema.get("minContains", 1)
        most = place.schema.get("maxContains", matching)
        if least <= matching <= most or self._ask.exhausted():
            return []
        wanted = f"at least {least}" if matching < least else f"at most {most}"
        what = render(place.schema[keyword])
        words = f"has {counted(matching, 'item')} like {what}, must have {wanted}"
        return [place.problem(words, keyword=keyword)]

    def every(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        found = []
        for index in self._timely(range(len(place.schema[keyword]))):
            found += self.into(place, (keyword, index), place.value)
        return found

    def some(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        branches = [(*place.location, keyword, i) for i in range(len(place.schema[keyword]))]
        fitting = [
            number
            for number, branch in self._timely(enumerate(branches, 1))
            if not self._ask.fails(branch, place.value)
        ]
        if self._ask.exhausted() or len(fitting) == 1 or (fitting and keyword == "anyOf"):
            return []
        if fitting:
            which = " and ".join(str(number) for number in fitting)
            why = f"fits alternatives {which} of {len(branches)}, must fit exactly one"
            return [place.problem(why, keyword=keyword)]
        tried = [
            self.walk(branch, place.value, place.path)
            for branch in self._timely(branches[:_MAX_BRANCHES])
        ]
        return [] if self._ask.exhausted() else best_of(dotted(place.path), place.value, tried)

    def none(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        if self._ask.fails((*place.location, keyword), place.value) or self._ask.exhausted():
            return []
        what = render(place.schema[keyword])
        return [place.problem(f"must not match {what}", keyword=keyword)]

    def conditional(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        branch = "else" if self._ask.fails((*place.location, keyword), place.value) else "then"
        return self.into(place, (branch,), place.value) if branch in place.schema else []

    def dependent_schemas(self, place: _Place, keyword: str) -> list[SchemaViolation]:
        found = []
        for name, needed in self._timely(_fields(place.schema[keyword], place.value)):
            if not isinstance(needed, list):
                found += self.into(place, (keyword, name), place.value)
        return found

    # Names of fields.

    def _matching(self, pattern: str, value: Any) -> list[str]:
        if not isinstance(value, dict):
            return []
        return [
            name
            for name in self._timely(value)
            if not self._ask.breaks({"pattern": pattern}, "pattern", name)
        ]

    def _named_fields(self, location: Location, depth: int) -> set[str]:
        schema = reduce(getitem, location, self._root)
        if not isinstance(schema, dict) or depth > 8:
            return set()
        named = set(schema.get("properties", ()))
        inner = [(k, i) for k in ("allOf", "anyOf", "oneOf") for i in range(len(schema.get(k, ())))]
        for way in (*inner, *((k,) for k in ("if", "then", "else") if k in schema)):
            named |= self._named_fields((*location, *way), depth + 1)
        for keyword in REFERENCES:
            if target := self._references.target(schema, schema.get(keyword, "?")):
                named |= self._named_fields(target, depth + 1)
        return named


def _fields(by_name: Any, value: Any) -> list[tuple[str, Any]]:
    """Of the named things, those whose field the value has."""
    if not isinstance(value, dict):
        return []
    return [(name, thing) for name, thing in by_name.items() if name in value]


def _asserted(place: _Place, keyword: str) -> SchemaViolation:
    if keyword == "enum":
        return options_problem(dotted(place.path), place.schema[keyword], render(place.value))
    return assertion(dotted(place.path), keyword, place.schema[keyword], place.value)


def _missing(place: _Place, name: str, why: str) -> SchemaViolation:
    return SchemaViolation(dotted((*place.path, name)), f"missing ({why})", "required", "required")


def _unknown(place: _Place, name: str, known: Any, keyword: str) -> SchemaViolation:
    free = [other for other in known if other not in place.value]
    return place.problem(
        f"unknown field {render(name)}{nearest(name, free)}", sorted(known), keyword
    )


def _unexplained(schema: dict[str, Any]) -> str:
    title = schema.get("title")
    return (
        f"does not match {render(title)}" if isinstance(title, str) else "does not match the schema"
    )


_Step = Callable[[_Explainer, _Place, str], list[SchemaViolation]]
_STEPS: dict[str, _Step] = {
    "required": _Explainer.required,
    "dependentRequired": _Explainer.dependent_required,
    "dependencies": lambda e, p, k: e.dependent_required(p, k) + e.dependent_schemas(p, k),
    "additionalProperties": _Explainer.additional_properties,
    "properties": _Explainer.properties,
    "patternProperties": _Explainer.pattern_properties,
    "propertyNames": _Explainer.property_names,
    "prefixItems": _Explainer.prefix_items,
    "items": _Explainer.items,
    "additionalItems": _Explainer.items,
    "contains": _Explainer.contains,
    "allOf": _Explainer.every,
    "anyOf": _Explainer.some,
    "oneOf": _Explainer.some,
    "not": _Explainer.none,
    "if": _Explainer.conditional,
    "dependentSchemas": _Explainer.dependent_schemas,
    **dict.fromkeys(REFERENCES, _Explainer._follow),
    "unevaluatedProperties": _Explainer.unevaluated_properties,
    "unevaluatedItems": _Explainer.unevaluated_items,
}
