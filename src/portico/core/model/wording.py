"""Wording that messages share: foreign text, numbers with units, suggestions."""

from collections.abc import Iterable
from re import match


def printable(line: str) -> str:
    """Return a line with control and invisible characters escaped."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in line)


def counted(number: object, unit: str) -> str:
    """`1 item`, `2 items`."""
    return f"{number} {unit}" if number == 1 else f"{number} {unit}s"


def close_matches(
    text: str, options: Iterable[str], limit: int = 1, cutoff: float = 0.6
) -> list[str]:
    """Return the options most similar to a misspelled text, best first."""
    from difflib import get_close_matches

    return get_close_matches(text, list(options), limit, cutoff)


def near_options(given: str, options: Iterable[str]) -> list[str]:
    """Return the long option most similar to a misspelled one; the dashes, which all share, do not
    count."""
    words = (one.removeprefix("--") for one in options if one.startswith("--"))
    return [f"--{word}" for word in close_matches(given.lstrip("-"), words)]


def did_you_mean(names: Iterable[str]) -> str:
    """`did you mean this or that?`; empty without names."""
    shown = " or ".join(names)
    return f"did you mean {shown}?" if shown else ""


def is_nearly_url(text: str) -> bool:
    """True for a URL of another scheme, or without one: a host with a path or a port."""
    return match(r"\w+:/|[\w-]+(\.[\w-]+)+(:\d+)?/|[\w.-]+:\d+(/|$)", text) is not None


def plain(number: float) -> str:
    """Return a number without an exponent, such as 0.00005."""
    return f"{number:.12f}".rstrip("0").rstrip(".") if number % 1 else f"{number:.0f}"
