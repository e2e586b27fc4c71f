"""The most useful violation of a value that matches none of several alternatives."""

from typing import Any

from portico.core.definitions.violations import SchemaViolation, options_problem, type_problem

_MAX_ALTERNATIVES = 4
_MAX_LENGTH = 100


def best_of(path: str, value: Any, attempts: list[list[SchemaViolation]]) -> list[SchemaViolation]:
    """Return the most useful of the violations that each alternative reports for one value."""
    if len(attempts) == 1:
        return attempts[0]
    common = _common_type(path, value, attempts) or _common_options(attempts)
    if common is not None:
        return [common]
    ranked = sorted(attempts, key=lambda problems: _distance(path, problems))
    if _distance(path, ranked[0]) < _distance(path, ranked[1]):
        return ranked[0]
    first = (_cut(str(problems[0])) for problems in attempts[:_MAX_ALTERNATIVES])
    each = (f"({number}) {text}" for number, text in enumerate(first, 1))
    why = f"matches none of {len(attempts)} alternatives: {' or '.join(each)}"
    return [SchemaViolation(path, why, keyword="anyOf")]


def _distance(path: str, problems: list[SchemaViolation]) -> tuple[bool, bool, int]:
    """Rank an alternative: a wrong type is furthest, then a wrong tag, then other violations."""
    return (
        any(p.keyword == "type" and p.path == path for p in problems),
        any(_is_option(p) for p in problems),
        len(problems),
    )


def _common_type(
    path: str, value: Any, attempts: list[list[SchemaViolation]]
) -> SchemaViolation | None:
    """Return one violation with all types, if every alternative expects another type."""
    types: list[str] = []
    for problems in attempts:
        found = next((p for p in problems if p.keyword == "type" and p.path == path), None)
        if found is None:
            return None
        types += found.expected if isinstance(found.expected, list) else [found.expected]
    return type_problem(path, list(dict.fromkeys(types)), value)


def _common_options(attempts: list[list[SchemaViolation]]) -> SchemaViolation | None:
    """Return one violation with all tags, if the alternatives are a tagged union."""
    for first in filter(_is_option, attempts[0]):
        options: list[Any] = []
        for problems in attempts:
            found = next((p for p in problems if _is_option(p) and p.path == first.path), None)
            if found is None:
                break
            options += found.expected if found.keyword == "enum" else [found.expected]
        else:
            return options_problem(first.path, options, first.got)
    return None


def _is_option(problem: SchemaViolation) -> bool:
    return problem.keyword in ("const", "enum")


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_LENGTH else text[: _MAX_LENGTH - 1] + "…"
