"""What a regular expression may cost: none may hold up the server, whoever wrote it.

Plain expressions run on an engine whose time is (size of the expression) x (length of the text),
where `(a?){5000}` is thousands of states large; those with look-around or back-references may
backtrack, as far as a limit. Both products are bounded by bounding the text (`limits.py`).
"""

from collections.abc import Iterator
from typing import Any

from portico.definitions.keywords import subschemas

BACKTRACKS = 10_000
COMPILED_BYTES = 2_000_000
_BACKTRACKING = 2_000
"""What one character costs an expression that may backtrack, in steps."""


def pattern_cost(pattern: str) -> int:
    """About how many states an expression has once its counted repetitions are written out."""
    sizes = [0]  # of the open groups, innermost last
    atom = 0  # size of what a quantifier would repeat
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
    return max(size, _BACKTRACKING) if _may_backtrack(pattern) else size


def compile_units(pattern: str) -> int:
    """About how long an expression takes to compile, in values of a schema (4 us each)."""
    return 150 if _may_backtrack(pattern) else 15 + pattern_cost(pattern) // 6


def _repetition(pattern: str, start: int) -> tuple[int, int] | None:
    """The most times of `{n}`, `{n,}` or `{n,m}`, and where it ends; None for a plain brace."""
    end = pattern.find("}", start, start + 16)
    least, _, most = pattern[start + 1 : max(end, start + 1)].partition(",")
    if end < 0 or not least.isdecimal() or (most and not most.isdecimal()):
        return None
    return max(int(most or least), 1), end + 1


def _class_length(pattern: str, start: int) -> int:
    """How far a `[...]` reaches beyond its first character."""
    index = start + 1
    while index < len(pattern) and pattern[index] != "]":
        index += 2 if pattern[index] == "\\" else 1
    return index - start


_FANCY = ("(?=", "(?!", "(?<=", "(?<!", "(?>", "\\k", *(f"\\{digit}" for digit in range(1, 10)))


def _may_backtrack(pattern: str) -> bool:
    """Look-around, atomic groups and back-references need the other engine."""
    return any(mark in pattern for mark in _FANCY)


def patterns_in(root: Any) -> Iterator[tuple[str, str | None]]:
    """Every pattern in a schema, with the field whose text it is for; None if that can be any."""
    waiting: list[tuple[Any, str | None]] = [(root, None)]
    while waiting:
        schema, field = waiting.pop()
        if not isinstance(schema, dict):
            continue
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"], field
        if isinstance(schema.get("patternProperties"), dict):
            yield from ((pattern, field) for pattern in schema["patternProperties"])
        for way, inner in subschemas(schema):
            waiting.append((inner, str(way[1]) if way[0] == "properties" else field))
