"""The cost of regular expressions, which must not block the server.

Plain expressions run on an engine whose time is (size of the expression) x (length of the text),
where `(a?){5000}` has thousands of states; those with look-around or back-references backtrack up
to a limit. Both products are bounded by a limit on the text (`schema_limits.py`).
"""

from collections.abc import Iterator
from typing import Any

from portico.core.definitions.keywords import subschemas

MAX_BACKTRACKS = 10_000
MAX_COMPILED_BYTES = 2_000_000
_BACKTRACKING_STEPS = 2_000
"""Steps for each character, if an expression may backtrack."""


def pattern_cost(pattern: str) -> int:
    """Estimate the states of an expression with its counted repetitions expanded."""
    sizes = [0]  # of the open groups, the innermost last
    atom = 0  # the size of the part that a quantifier would repeat
    index = 0
    while index < len(pattern):
        char = pattern[index]
        if char == "{" and (found := _repetition(pattern, index)):
            times, index = found
            sizes[-1] += atom * (times - 1)
            atom *= times
            continue
        if char == "(":
            sizes.append(1)
        elif char == ")" and len(sizes) > 1:
            atom = sizes.pop()
            sizes[-1] += atom
        else:
            atom = 1
            sizes[-1] += 1
            index += _class_length(pattern, index) if char == "[" else char == "\\"
        index += 1
    size = sum(sizes)
    return max(size, _BACKTRACKING_STEPS) if _may_backtrack(pattern) else size


def compile_units(pattern: str) -> int:
    """Estimate the time to compile an expression, in values of a schema (4 us each)."""
    return 150 if _may_backtrack(pattern) else 15 + pattern_cost(pattern) // 6


def _repetition(pattern: str, start: int) -> tuple[int, int] | None:
    """Return the maximum of `{n}`, `{n,}` or `{n,m}` and its end; None for a plain brace."""
    end = pattern.find("}", start, start + 16)
    low, _, high = pattern[start + 1 : max(end, start + 1)].partition(",")
    if end < 0 or not low.isdecimal() or (high and not high.isdecimal()):
        return None
    return max(int(high or low), 1), end + 1


def _class_length(pattern: str, start: int) -> int:
    """Return the length of a `[...]` after its first character."""
    index = start + 1
    while index < len(pattern) and pattern[index] != "]":
        index += 2 if pattern[index] == "\\" else 1
    return index - start


_BACK_REFERENCES = ("\\k", *(f"\\{digit}" for digit in range(1, 10)))
_LOOK_AROUND = ("(?=", "(?!", "(?<=", "(?<!", "(?>")


def _may_backtrack(pattern: str) -> bool:
    """True for look-around, atomic groups and back-references."""
    return any(mark in pattern for mark in (*_LOOK_AROUND, *_BACK_REFERENCES))


def patterns_in(root: Any) -> Iterator[tuple[str, str | None]]:
    """Yield every pattern in a schema with the field it applies to; None if it may be any."""
    pending: list[tuple[Any, str | None]] = [(root, None)]
    while pending:
        schema, field = pending.pop()
        if not isinstance(schema, dict):
            continue
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"], field
        if isinstance(schema.get("patternProperties"), dict):
            yield from ((pattern, field) for pattern in schema["patternProperties"])
        for step, inner in subschemas(schema):
            pending.append((inner, str(step[1]) if step[0] == "properties" else field))
