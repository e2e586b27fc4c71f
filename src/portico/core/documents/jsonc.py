"""JSON with comments and trailing commas, as in clients' files."""

import re

_PARTS = re.compile(
    # A string, in which nothing is a comment. An unclosed string or comment extends to the end, so
    # that broken text is matched in linear time.
    r'"(?:[^"\\\n]|\\.)*"?'
    r"|//[^\n]*"
    r"|/\*.*?(?:\*/|\Z)"
    r"|,",
    re.DOTALL,
)
_GAP = re.compile(r"(?:\s|//[^\n]*|/\*.*?(?:\*/|\Z))*", re.DOTALL)
_NO_BREAK = re.compile(r"[^\r\n]")


def plain(text: str) -> str:
    """The text as strict JSON, with each character at its old position."""
    if "/" not in text and not re.search(r",\s*[\]}]", text):
        return text
    return _PARTS.sub(lambda part: _blank(part, text), text)


def gap(text: str, start: int) -> int:
    """The end of the white space and comments that begin here."""
    match = _GAP.match(text, start)
    assert match is not None  # it also matches the empty string
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
