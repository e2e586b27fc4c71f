"""Canonical URIs and templates, by which the routing of resources compares them."""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from portico.core.definitions.templates import UriTemplate

_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_HEAD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://[^/?#]*)?")
_SCHEME = re.compile("[a-z][a-z0-9+.-]*:")
_EXPRESSION = re.compile(r"(\{[^}]*\})")
_MAX_LENGTH = 4096
"""A longer URI is compared as written."""

Rank = tuple[int, int, int]
"""How literal a template is: the length of its text before the first variable, the length of all
its text, and minus its variables. The greatest wins."""


def canonical(uri: str) -> str:
    """Return the canonical form of a URI (RFC 3986, 6.2.2.1 and 6.2.2.2): scheme and host in lower
    case, escapes only where needed."""
    if len(uri) > _MAX_LENGTH:
        return uri
    uri = canonical_escapes(uri)
    head = _HEAD.match(uri)
    if head is None:
        return uri
    text = head.group()
    low = text.lower()
    return uri if low == text else low + uri[head.end() :]


def canonical_template(text: str) -> str:
    """Return the canonical form of a template, with its expressions unchanged."""
    if len(text) > _MAX_LENGTH:
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
    """Return a text with escapes only where needed, in upper case."""
    return _ESCAPE.sub(_unescaped, text) if "%" in text else text


def _unescaped(escape: re.Match[str]) -> str:
    char = chr(int(escape[1], 16))
    return char if char in _UNRESERVED else escape[0].upper()


class UriPattern(Struct, frozen=True):
    """A template that can be matched against URIs."""

    text: str
    start: str
    """Its text before the first variable."""
    rank: Rank
    has_scheme: bool
    """A template without a scheme could match the URIs of every server."""
    sample: str
    """A URI that it matches."""
    template: "UriTemplate"
    literals: tuple[str, ...]

    def may_match(self, uri: str) -> bool:
        """True if this canonical URI contains its text in order: a fast check before a match."""
        at = 0
        for text in self.literals:
            at = uri.find(text, at)
            if at < 0:
                return False
            at += len(text)
        return True

    def matches(self, uri: str) -> bool:
        """True if it matches this canonical URI."""
        return self.template.match(uri) is not None


@lru_cache(maxsize=8192)
def uri_pattern(text: str) -> UriPattern | None:
    """Return the pattern of a template, or None if the template cannot be matched."""
    from portico.core.definitions.definition_error import DefinitionError
    from portico.core.definitions.templates import UriTemplate

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
    return UriPattern(text, start, rank, bool(_SCHEME.match(start)), sample, template, literals)
