"""URIs and templates as ownership compares them: what differs only in spelling is the same."""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from portico.definitions.templates import UriTemplate

_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_HEAD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://[^/?#]*)?")
_SCHEME = re.compile("[a-z][a-z0-9+.-]*:")
_EXPRESSION = re.compile(r"(\{[^}]*\})")
_LONGEST = 4096
"""Beyond this a URI is compared as it is written."""

Rank = tuple[int, int, int]
"""How literal a template is: its text before the first variable, its text in all, and the fewer
variables the better. Greater wins."""


def canonical(uri: str) -> str:
    """The spelling that stands for all equivalent ones (RFC 3986, 6.2.2.1 and 6.2.2.2): scheme and
    host in lower case, escapes only where they are needed."""
    if len(uri) > _LONGEST:
        return uri
    uri = canonical_escapes(uri)
    head = _HEAD.match(uri)
    if head is None:
        return uri
    text = head.group()
    low = text.lower()
    return uri if low == text else low + uri[head.end() :]


def canonical_template(text: str) -> str:
    """The same for a template, whose expressions stay as they are."""
    if len(text) > _LONGEST:
        return text
    pieces = _EXPRESSION.split(text)
    literal = [canonical_escapes(piece) for piece in pieces[::2]]
    masked = "".join(
        one + "x" * len(expression)
        for one, expression in zip(literal, [*pieces[1::2], ""], strict=True)
    )
    head = _HEAD.match(masked)
    end = head.end() if head else 0
    found, at = "", 0
    for one, expression in zip(literal, [*pieces[1::2], ""], strict=True):
        in_head = max(0, min(len(one), end - at))
        found += one[:in_head].lower() + one[in_head:] + expression
        at += len(one) + len(expression)
    return found


def canonical_escapes(text: str) -> str:
    """Escapes only where they are needed, in upper case."""
    return _ESCAPE.sub(_unescaped, text) if "%" in text else text


def _unescaped(escape: re.Match[str]) -> str:
    char = chr(int(escape[1], 16))
    return char if char in _UNRESERVED else escape[0].upper()


class Pattern(Struct, frozen=True):
    """A template that can be matched."""

    text: str
    start: str
    """Its text before the first variable."""
    rank: Rank
    has_scheme: bool
    """Without one it could match what every other server has."""
    sample: str
    """A URI that it matches."""
    template: "UriTemplate"
    literals: tuple[str, ...]

    def may_match(self, uri: str) -> bool:
        """True if its text is in this canonical URI, in order: a quick look before a match."""
        at = 0
        for text in self.literals:
            at = uri.find(text, at)
            if at < 0:
                return False
            at += len(text)
        return True

    def matches(self, uri: str) -> bool:
        """True if this canonical URI is of its family."""
        return self.template.match(uri) is not None


@lru_cache(maxsize=8192)
def pattern(text: str) -> Pattern | None:
    """The pattern of a template; None if it cannot be matched."""
    from portico.definitions.definition_error import DefinitionError
    from portico.definitions.templates import UriTemplate

    same = canonical_template(text)
    try:
        template = UriTemplate(same)
        sample = template.expand(dict.fromkeys(template.variables, "x"))
    except DefinitionError:
        return None
    pieces = _EXPRESSION.split(same)
    start = pieces[0]
    rank = (len(start), sum(map(len, pieces[::2])), -len(template.variables))
    literals = tuple(piece for piece in pieces[::2] if piece)
    return Pattern(text, start, rank, bool(_SCHEME.match(start)), sample, template, literals)
