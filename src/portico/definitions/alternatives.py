"""Several alternatives, none of which fits: what is the one useful thing to say?"""

from typing import Any

from portico.definitions.violations import SchemaViolation, options_problem, type_problem

_MOST_SHOWN = 4
_LONGEST_SHOWN = 100


def best_of(path: str, value: Any, attempts: list[list[SchemaViolation]]) -> list[SchemaViolation]:
    """From what is wrong by each alternative of the value at a path, what to tell."""
    if len(attempts) == 1:
        return attempts[0]
    common = _common_type(path, value, attempts) or _common_options(attempts)
    if common is not None:
        return [common]
    ranked = sorted(attempts, key=lambda problems: _distance(path, problems))
    if _distance(path, ranked[0]) < _distance(path, ranked[1]):
        return ranked[0]
    first = (_cut(str(problems[0])) for problems in attempts[:_MOST_SHOWN])
    each = (f"({number}) {text}" for number, text in enumerate(first, 1))
    why = f"fits none of {len(attempts)} alternatives: {' or '.join(each)}"
    return [SchemaViolation(path, why, keyword="anyOf")]


def _distance(path: str, problems: list[SchemaViolation]) -> tuple[bool, bool, int]:
    """How far a value is from an alternative: of another type, of another tag, or just flawed."""
    return (
        any(p.keyword == "type" and p.path == path for p in problems),
        any(_is_option(p) for p in problems),
        len(problems),
    )


def _common_type(
    path: str, value: Any, attempts: list[list[SchemaViolation]]
) -> SchemaViolation | None:
    """All alternatives want another type: name the types."""
    types: list[str] = []
    for problems in attempts:
        found = next((p for p in problems if p.keyword == "type" and p.path == path), None)
        if found is None:
            return None
        types += found.expected if isinstance(found.expected, list) else [found.expected]
    return type_problem(path, list(dict.fromkeys(types)), value)


def _common_options(attempts: list[list[SchemaViolation]]) -> SchemaViolation | None:
    """All alternatives want something else of one field, as tagged unions do: name the tags."""
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
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"
