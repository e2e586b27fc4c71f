"""JSON as clients' files have it: with comments and commas before a closing bracket."""

import re

_PARTS = re.compile(
    # A string, in which nothing is a comment. What is not closed goes on to the end, so that broken
    # text takes no longer than any other.
    r'"(?:[^"\\\n]|\\.)*"?'
    r"|//[^\n]*"
    r"|/\*.*?(?:\*/|\Z)"
    r"|,",
    re.DOTALL,
)
_GAP = re.compile(r"(?:\s|//[^\n]*|/\*.*?(?:\*/|\Z))*", re.DOTALL)
_NO_BREAK = re.compile(r"[^\r\n]")


def plain(text: str) -> str:
    """The same as strict JSON, each character in its place."""
    if "/" not in text and not re.search(r",\s*[\]}]", text):
        return text
    return _PARTS.sub(lambda part: _blank(part, text), text)


def gap(text: str, start: int) -> int:
    """Where white space and comments end that begin here."""
    match = _GAP.match(text, start)
    assert match is not None  # it matches nothing, too
    return match.end()


def _blank(part: re.Match[str], text: str) -> str:
    found = part[0]
    if found[0] == '"':
        return found
    if found == ",":
        after = gap(text, part.end())
        if text[after : after + 1] not in ("]", "}"):
            return found
    return _NO_BREAK.sub(" ", found)
