"""The violations of a value that does not match its schema, found in bounded time.

The validator can list every error, but it builds the whole list first, which grows without bound
for nested alternatives. So this walks the value and the schema together, and sends the validator
a limited number of yes-or-no queries about parts of the schema.
"""

from collections.abc import Callable
from functools import cached_property, reduce
from operator import getitem
from typing import Any

from msgspec import Struct

from portico.core.definitions.alternatives import best_of
from portico.core.definitions.keywords import REF_ONLY_DIALECTS, REFERENCES, Location, dialect
from portico.core.definitions.references import References
from portico.core.definitions.schema_queries import SchemaQueries
from portico.core.definitions.violations import (
    ASSERTIONS,
    SchemaViolation,
    assertion_problem,
    has_type,
    options_problem,
    type_problem,
)
from portico.core.definitions.wording import dotted, render, suggestion
from portico.core.model.wording import counted

MAX_PROBLEMS = 10
_MAX_BRANCHES = 20
_MAX_DEPTH = 60
"""The limit of nested schemas; beyond it, only the path is reported."""


class _Node(Struct, frozen=True):
    """A value and the schema that it must match."""

    location: Location
    schema: dict[str, Any]
    value: Any
    path: tuple[str | int, ...]

    def problem(self, message: str, expected: Any = None, keyword: str = "") -> SchemaViolation:
        return SchemaViolation(dotted(self.path), message, expected, keyword)


def explain(root: Any, instance: Any, started: float | None = None) -> list[SchemaViolation]:
    """Return the violations, at least one, of a value that does not match.

    `started` is the CPU time of this thread when the check of the value began, if that may have
    been slow: the time limit starts there.
    """
    found = _Explainer(root, started).walk((), instance, ())
    different = {(problem.path, problem.message): problem for problem in found}
    return list(different.values())[:MAX_PROBLEMS]


class _Explainer:
    def __init__(self, root: Any, started: float | None) -> None:
        self._root = root
        self._dialect = dialect(root)
        self._queries = SchemaQueries(root, self._dialect, started)
        self._in_time = self._queries.while_in_time
        self._active: set[tuple[Location, tuple[str | int, ...]]] = set()

    @cached_property
    def _references(self) -> References:
        return References(self._root)

    # Walking.

    def walk(
        self, location: Location, value: Any, path: tuple[str | int, ...]
    ) -> list[SchemaViolation]:
        """Return the violations of a value that does not match the schema at this location."""
        schema = reduce(getitem, location, self._root)
        if not isinstance(schema, dict):
            return [SchemaViolation(dotted(path), "is not allowed here", keyword="false")]
        if (location, path) in self._active or len(self._active) == _MAX_DEPTH:
            return [SchemaViolation(dotted(path), _unexplained(schema))]
        self._active.add((location, path))
        found = self._problems_at(_Node(location, schema, value, path))
        self._active.discard((location, path))
        return found or [SchemaViolation(dotted(path), _unexplained(schema))]

    def _problems_at(self, node: _Node) -> list[SchemaViolation]:
        schema, value = node.schema, node.value
        if "$ref" in schema and self._dialect in REF_ONLY_DIALECTS:
            return self._follow(node, "$ref")
        if "type" in schema:
            types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            if not has_type(types, value, self._dialect):
                return [type_problem(dotted(node.path), types, value)]
        asserted = (keyword for keyword in schema if keyword in ASSERTIONS)
        broken = (keyword for keyword in asserted if self._queries.breaks(schema, keyword, value))
        found = [_asserted(node, keyword) for keyword in broken]
        for keyword, step in _STEPS.items():
            if len(found) >= MAX_PROBLEMS:
                break
            # Unevaluated fields are worth reporting only if there is no other violation.
            if keyword in schema and not (found and keyword.startswith("unevaluated")):
                found += step(self, node, keyword)
        return found

    def descend(
        self, node: _Node, suffix: Location, value: Any, *steps: str | int
    ) -> list[SchemaViolation]:
        """Return the violations of a value by a schema inside this one; empty if it matches."""
        location = (*node.location, *suffix)
        return (
            self.walk(location, value, (*node.path, *steps))
            if self._queries.fails(location, value)
            else []
        )

    def _follow(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        target = self._references.target(node.schema, node.schema[keyword])
        if target is None or not self._queries.fails(target, node.value):
            return []
        return self.walk(target, node.value, node.path)

    # One method for each keyword that contains schemas or field names.

    def required(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        if not isinstance(node.value, dict):
            return []
        missing = [name for name in node.schema[keyword] if name not in node.value]
        return [_missing(node, name, "required") for name in missing]

    def dependent_required(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        found = []
        for name, needed in self._in_time(_fields(node.schema[keyword], node.value)):
            if isinstance(needed, list):
                missing = (other for other in needed if other not in node.value)
                why = f"required when {render(name)} is given"
                found += [_missing(node, other, why) for other in missing]
        return found

    def properties(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        found = []
        for name, _ in self._in_time(_fields(node.schema[keyword], node.value)):
            found += self.descend(node, (keyword, name), node.value[name], name)
        return found

    def pattern_properties(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        found = []
        for pattern in self._in_time(node.schema[keyword]):
            for name in self._matching(pattern, node.value):
                found += self.descend(node, (keyword, pattern), node.value[name], name)
        return found

    def additional_properties(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        if not isinstance(node.value, dict):
            return []
        known = node.schema.get("properties", {})
        patterned = {
            name
            for pattern in node.schema.get("patternProperties", {})
            for name in self._matching(pattern, node.value)
        }
        extra = [name for name in node.value if name not in known and name not in patterned]
        if node.schema[keyword] is False:
            return [_unknown(node, name, known, keyword) for name in extra[:MAX_PROBLEMS]]
        found = []
        for name in self._in_time(extra):
            found += self.descend(node, (keyword,), node.value[name], name)
        return found

    def unevaluated_properties(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        """Report the fields that no schema names: only the validator knows all evaluated fields."""
        if not isinstance(node.value, dict):
            return []
        known = self._named_fields(node.location, 0)
        extra = [name for name in node.value if name not in known]
        if extra and node.schema[keyword] is False:
            return [_unknown(node, name, known, keyword) for name in extra[:MAX_PROBLEMS]]
        return [
            node.problem("has fields that are not allowed in this combination", keyword=keyword)
        ]

    def unevaluated_items(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        if not isinstance(node.value, list | tuple):
            return []
        return [node.problem("has items that the schema does not allow", keyword=keyword)]

    def property_names(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        if not isinstance(node.value, dict):
            return []
        return [
            node.problem(f"field name {render(name)}: {problem.message}", keyword=keyword)
            for name in self._in_time(node.value)
            for problem in self.descend(node, (keyword,), name)
        ]

    def prefix_items(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        found = []
        if isinstance(node.value, list | tuple) and isinstance(node.schema[keyword], list):
            pairs = zip(node.value, node.schema[keyword], strict=False)
            for index, (value, _) in enumerate(self._in_time(pairs)):
                found += self.descend(node, (keyword, index), value, index)
        return found

    def items(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        if not isinstance(node.value, list | tuple) or isinstance(node.schema[keyword], list):
            return self.prefix_items(node, keyword)
        prefix = node.schema.get("items" if keyword == "additionalItems" else "prefixItems")
        skipped = len(prefix) if isinstance(prefix, list) else 0
        if node.schema[keyword] is False and len(node.value) > skipped:
            return [
                node.problem(f"has {counted(len(node.value), 'item')}, must have at most {skipped}")
            ]
        found: list[SchemaViolation] = []
        for index in self._in_time(range(skipped, len(node.value))):
            found += self.descend(node, (keyword,), node.value[index], index)
            if len(found) >= MAX_PROBLEMS:
                break
        return found

    def contains(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        if not isinstance(node.value, list | tuple):
            return []
        location = (*node.location, keyword)
        matching = sum(
            not self._queries.fails(location, value) for value in self._in_time(node.value)
        )
        minimum = node.schema.get("minContains", 1)
        maximum = node.schema.get("maxContains", matching)
        if minimum <= matching <= maximum or self._queries.is_exhausted():
            return []
        limit = f"at least {minimum}" if matching < minimum else f"at most {maximum}"
        what = render(node.schema[keyword])
        words = f"has {counted(matching, 'item')} like {what}, must have {limit}"
        return [node.problem(words, keyword=keyword)]

    def all_of(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        found = []
        for index in self._in_time(range(len(node.schema[keyword]))):
            found += self.descend(node, (keyword, index), node.value)
        return found

    def any_of(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        branches = [(*node.location, keyword, i) for i in range(len(node.schema[keyword]))]
        fitting = [
            number
            for number, branch in self._in_time(enumerate(branches, 1))
            if not self._queries.fails(branch, node.value)
        ]
        if self._queries.is_exhausted() or len(fitting) == 1 or (fitting and keyword == "anyOf"):
            return []
        if fitting:
            which = " and ".join(str(number) for number in fitting)
            why = f"matches alternatives {which} of {len(branches)}, must match exactly one"
            return [node.problem(why, keyword=keyword)]
        tried = [
            self.walk(branch, node.value, node.path)
            for branch in self._in_time(branches[:_MAX_BRANCHES])
        ]
        return [] if self._queries.is_exhausted() else best_of(dotted(node.path), node.value, tried)

    def negation(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        if (
            self._queries.fails((*node.location, keyword), node.value)
            or self._queries.is_exhausted()
        ):
            return []
        what = render(node.schema[keyword])
        return [node.problem(f"must not match {what}", keyword=keyword)]

    def conditional(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        branch = "else" if self._queries.fails((*node.location, keyword), node.value) else "then"
        return self.descend(node, (branch,), node.value) if branch in node.schema else []

    def dependent_schemas(self, node: _Node, keyword: str) -> list[SchemaViolation]:
        found = []
        for name, needed in self._in_time(_fields(node.schema[keyword], node.value)):
            if not isinstance(needed, list):
                found += self.descend(node, (keyword, name), node.value)
        return found

    # Names of fields.

    def _matching(self, pattern: str, value: Any) -> list[str]:
        if not isinstance(value, dict):
            return []
        return [
            name
            for name in self._in_time(value)
            if not self._queries.breaks({"pattern": pattern}, "pattern", name)
        ]

    def _named_fields(self, location: Location, depth: int) -> set[str]:
        schema = reduce(getitem, location, self._root)
        if not isinstance(schema, dict) or depth > 8:
            return set()
        named = set(schema.get("properties", ()))
        inner = [(k, i) for k in ("allOf", "anyOf", "oneOf") for i in range(len(schema.get(k, ())))]
        for suffix in (*inner, *((k,) for k in ("if", "then", "else") if k in schema)):
            named |= self._named_fields((*location, *suffix), depth + 1)
        for keyword in REFERENCES:
            if target := self._references.target(schema, schema.get(keyword, "?")):
                named |= self._named_fields(target, depth + 1)
        return named


def _fields(by_name: Any, value: Any) -> list[tuple[str, Any]]:
    """Return the items whose name is a field of the value."""
    if not isinstance(value, dict):
        return []
    return [(name, thing) for name, thing in by_name.items() if name in value]


def _asserted(node: _Node, keyword: str) -> SchemaViolation:
    if keyword == "enum":
        return options_problem(dotted(node.path), node.schema[keyword], render(node.value))
    return assertion_problem(dotted(node.path), keyword, node.schema[keyword], node.value)


def _missing(node: _Node, name: str, why: str) -> SchemaViolation:
    return SchemaViolation(dotted((*node.path, name)), f"missing ({why})", "required", "required")


def _unknown(node: _Node, name: str, known: Any, keyword: str) -> SchemaViolation:
    free = [other for other in known if other not in node.value]
    return node.problem(
        f"unknown field {render(name)}{suggestion(name, free)}", sorted(known), keyword
    )


def _unexplained(schema: dict[str, Any]) -> str:
    title = schema.get("title")
    return (
        f"does not match {render(title)}" if isinstance(title, str) else "does not match the schema"
    )


_Step = Callable[[_Explainer, _Node, str], list[SchemaViolation]]
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
    "allOf": _Explainer.all_of,
    "anyOf": _Explainer.any_of,
    "oneOf": _Explainer.any_of,
    "not": _Explainer.negation,
    "if": _Explainer.conditional,
    "dependentSchemas": _Explainer.dependent_schemas,
    **dict.fromkeys(REFERENCES, _Explainer._follow),
    "unevaluatedProperties": _Explainer.unevaluated_properties,
    "unevaluatedItems": _Explainer.unevaluated_items,
}
