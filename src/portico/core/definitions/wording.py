"""Values, paths and suggestions as short text for messages."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from portico.core.model.wording import close_matches, did_you_mean, printable

MAX_LENGTH = 80
_MAX_OPTIONS = 10
_MAX_DEPTH = 3
_MAX_CANDIDATES = 500
_MAX_CANDIDATE = 64
_MAX_PATH = 300
_WORD_MARKS = str.maketrans("_-$", "aaa")


def type_name(value: Any) -> str:
    """Return the JSON Schema type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case dict():
            return "object"
    return type(value).__name__


def render(value: Any, limit: int = MAX_LENGTH) -> str:
    """Return a value as short JSON-like text, in time that does not grow with the value."""
    text = _text(value, limit, 0)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _text(value: Any, limit: int, depth: int) -> str:
    match value:
        case None | bool():
            return "null" if value is None else str(value).lower()
        case int():
            # Python raises an error for integers of thousands of digits.
            return str(value) if value.bit_length() <= 256 else "(very large)"
        case str():
            # Cut before quoting, so that both quotes are kept.
            text = value if len(value) <= limit - 2 else value[: limit - 3] + "…"
            escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
            return f'"{printable(escaped)}"'
        case list() | tuple():
            if depth == _MAX_DEPTH:
                return "[…]"
            return "[" + _joined((_text(v, limit, depth + 1) for v in value), limit) + "]"
        case dict():
            if depth == _MAX_DEPTH:
                return "{…}"
            fields = (
                f"{_text(name, limit, 0)}: {_text(inner, limit, depth + 1)}"
                for name, inner in value.items()
            )
            return "{" + _joined(fields, limit) + "}"
    return str(value) if isinstance(value, float) else f"a {type(value).__name__}"


def _joined(parts: Iterable[str], limit: int) -> str:
    """Join as many parts as fit; the others are never created."""
    taken: list[str] = []
    length = 0
    for part in parts:
        taken.append(part)
        length += len(part) + 2
        if length > limit:
            break
    return ", ".join(taken)


def render_all(options: Sequence[Any]) -> str:
    """Return the first few options as text."""
    text = ", ".join(render(option, 40) for option in options[:_MAX_OPTIONS])
    more = len(options) - _MAX_OPTIONS
    return f"{text} and {more} more" if more > 0 else text


def dotted(path: Iterable[str | int]) -> str:
    """Return a path as text: `items[2].name`, or `["a.b"]` for a key that is not a plain word."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif len(part) <= MAX_LENGTH and part.translate(_WORD_MARKS).isalnum():
            text += f".{part}" if text else part
        else:
            text += f"[{render(part)}]"
    return text if len(text) <= _MAX_PATH else "…" + text[-_MAX_PATH:]


def suggestion(word: str, candidates: Iterable[str]) -> str:
    """Return ` (did you mean "city"?)` if a candidate is similar, else ""."""
    if len(word) > _MAX_CANDIDATE:
        return ""
    # Comparing is slow, so the number and length of candidates are limited.
    few = islice(candidates, _MAX_CANDIDATES)
    found = close_matches(word, (c for c in few if len(c) <= _MAX_CANDIDATE), cutoff=0.7)
    return f" ({did_you_mean(map(render, found))})" if found else ""
