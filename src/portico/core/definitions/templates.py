"""URI templates (RFC 6570), which match URIs and return the values of their variables.

Matching never backtracks, so its time is linear in the URI (templates compiled to regular
expressions were CVE-2026-0621). For that, a template must not be ambiguous:

- two variables need text between them: `{a}/{b}`, not `{a}{b}`;
- one variable at most may span several segments: `{+path}`, `{path*}` or `{/path*}`;
- `{/x}` ends the path; `{?x}` or `{&x}`, and then `{#x}`, end the template.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.expressions import Expression, parse
from portico.core.definitions.wording import render

MAX_VARIABLES = 32
_IN_PATH = "/?#"
_IN_QUERY = "?&#"
"""The delimiters that a plain variable cannot contain, by the part of the URI it is in."""


class _Variable(Struct, frozen=True):
    name: str
    stops: str
    """The characters at which its value ends."""


_Part = str | _Variable


class UriTemplate:
    """A URI template that can be matched and expanded."""

    def __init__(self, text: str) -> None:
        """Raise DefinitionError if the text is not a template, or is ambiguous."""
        self.text = text
        self._head: list[_Part] = []  # before the variable that spans segments, or everything
        self._spanning: _Variable | None = None
        self._rest: list[_Part] = []  # after it
        self._segments: tuple[str, ...] = ()
        self._explode = False
        self._query: tuple[str, ...] = ()
        self._query_mark = ""
        self._fragment = ""
        for literal, expression in parse(text):
            self._add_literal(literal)
            if expression is not None:
                self._add_expression(expression)
        if len(self.variables) > MAX_VARIABLES:
            raise DefinitionError(f"has more than {MAX_VARIABLES} variables")

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of its variables, in order."""
        inner = [p for p in (*self._head, self._spanning, *self._rest) if isinstance(p, _Variable)]
        named = [variable.name for variable in inner]
        return tuple(dict.fromkeys((*named, *self.optional)))

    @property
    def optional(self) -> tuple[str, ...]:
        """The variables that a URI may omit."""
        fragment = (self._fragment,) if self._fragment else ()
        return (*self._segments, *self._query, *fragment)

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the decoded values of the variables in a URI, or None if it does not match."""
        found: dict[str, str] = {}
        if self._fragment:
            uri, mark, value = uri.partition("#")
            if mark:
                found[self._fragment] = value
        rest = self._take_query(uri, found)
        matched = None if rest is None else self._match_path(rest)
        if matched is None or not _merge(found, matched):
            return None
        try:
            return {name: _decoded(value) for name, value in found.items()}
        except UnicodeDecodeError:
            return None

    def expand(self, values: Mapping[str, Any]) -> str:
        """Return the URI with these values; variables without a value are omitted."""
        return "".join(
            literal + (expression.expand(values) if expression else "")
            for literal, expression in parse(self.text)
        )

    # Parsing the template.

    def _add_literal(self, text: str) -> None:
        if not text:
            return
        if self._segments or self._query or self._fragment:
            raise DefinitionError(f"{render(text)} follows an expression that must be last")
        self._parts.append(text)

    def _add_expression(self, expression: Expression) -> None:
        last = {"/": self._segments or self._query, "?": self._query, "&": None, "#": None}
        if self._fragment or last.get(expression.operator, self.optional):
            raise DefinitionError(f"{expression} follows an expression that must be last")
        match expression.operator:
            case "?" | "&":
                self._add_query(expression)
            case "#":
                self._fragment = expression.only_name()
                if "#" in self._literals:
                    raise DefinitionError(f'{expression} follows a "#"')
            case "/":
                self._segments = expression.names
                self._explode = expression.explode
                if self._explode:
                    self._check_spanning(expression)
            case _:
                self._add_inner(expression)

    def _add_query(self, expression: Expression) -> None:
        started = "?" in self._literals or bool(self._query)
        if started is (expression.operator == "?"):
            expected = "{&...}" if started else "{?...}"
            raise DefinitionError(f"{expression} must be {expected} here")
        self._query_mark = self._query_mark or expression.operator
        self._query += expression.names

    def _add_inner(self, expression: Expression) -> None:
        """Add a variable inside the text: `{x}`, `{x,y}`, `{+x}` or `{x*}`."""
        before = self._parts[-1] if self._parts else self._spanning
        if isinstance(before, _Variable):
            raise DefinitionError(f"{expression} needs text between it and the previous variable")
        if expression.operator == "+" or expression.explode:
            self._check_spanning(expression)
            stops = "" if expression.operator == "+" else "?#"
            self._spanning = _Variable(expression.only_name(), stops)
            return
        in_query = "?" in self._literals or "#" in self._literals
        for index, name in enumerate(expression.names):
            self._parts.extend([","] if index else [])
            self._parts.append(_Variable(name, _IN_QUERY if in_query else _IN_PATH))

    def _check_spanning(self, expression: Expression) -> None:
        if self._spanning is not None:
            raise DefinitionError(f"{expression} is a second variable that may span segments")

    @property
    def _parts(self) -> list[_Part]:
        """The list that the next part is added to."""
        return self._head if self._spanning is None else self._rest

    @property
    def _literals(self) -> str:
        return "".join(part for part in (*self._head, *self._rest) if isinstance(part, str))

    # Matching.

    def _take_query(self, uri: str, found: dict[str, str]) -> str | None:
        """Remove `name=value` pairs from the end; return the rest, or None if a name is unknown."""
        if not self._query:
            return uri
        if self._query_mark == "?":
            rest, _, query = uri.partition("?")
            pairs = query.split("&") if query else []
        else:
            rest, *pairs = uri.split("&")
        while pairs:
            name, equals, value = pairs[-1].partition("=")
            if not equals or name not in self._query or name in found:
                break
            found[name] = value
            pairs.pop()
        if self._query_mark == "?":
            return None if pairs else rest
        return "&".join((rest, *pairs))

    def _match_path(self, uri: str) -> dict[str, str] | None:
        if self._explode:
            return self._match_exploded(uri)
        # `{/a,b}` may match none, one or both of the last segments.
        for count in range(len(self._segments), -1, -1):
            rest, *segments = uri.rsplit("/", count) if count else [uri]
            if len(segments) == count and all(map(_is_segment, segments)):
                values = self._match_parts(rest)
                taken = dict(zip(self._segments, segments, strict=False))
                if values is not None and _merge(values, taken):
                    return values
        return None

    def _match_exploded(self, uri: str) -> dict[str, str] | None:
        """Match `{/path*}` to everything after the slashes of the text before it."""
        slashes = sum(part.count("/") for part in self._head if isinstance(part, str))
        pieces = uri.split("/", slashes + 1)
        values = self._match_parts("/".join(pieces[: slashes + 1]))
        if values is None or len(pieces) <= slashes + 1:
            return values
        taken = {self._segments[0]: pieces[-1]}
        return values if _is_segment(pieces[-1]) and _merge(values, taken) else None

    def _match_parts(self, uri: str) -> dict[str, str] | None:
        if self._spanning is None:
            # From the right, so that in `{name}.{ext}` the name gets the earlier dots.
            return _scan_back(self._head, uri, whole=True)[0]
        before, end = _scan(self._head, uri, whole=False)
        if before is None:
            return None
        after, start = _scan_back(self._rest, uri[end:], whole=False)
        if after is None or not _assign(before, self._spanning, uri[end : len(uri) - start]):
            return None
        return before if _merge(before, after) else None


def _scan_back(parts: list[_Part], uri: str, *, whole: bool) -> tuple[dict[str, str] | None, int]:
    """Match from the end, by scanning the reversed parts and URI."""
    mirrored = [part[::-1] if isinstance(part, str) else part for part in reversed(parts)]
    values, end = _scan(mirrored, uri[::-1], whole=whole)
    return (None if values is None else {n: v[::-1] for n, v in values.items()}), end


def _scan(parts: list[_Part], uri: str, *, whole: bool) -> tuple[dict[str, str] | None, int]:
    """Match texts and variables from the start; return the values and the end of the match.

    Each variable ends at the first match of the text after it. A later match would never help:
    the next variable can contain everything in between, or the text contains a delimiter that
    ends the variable, and then there is only one match.
    """
    values: dict[str, str] = {}
    at = 0
    pending: _Variable | None = None
    for index, part in enumerate(parts):
        if isinstance(part, _Variable):
            pending = part
            continue
        last = whole and index == len(parts) - 1
        found = len(uri) - len(part) if last else uri.find(part, at + (pending is not None))
        if pending is None:
            found = at if not last or found == at else -1
        if found < at or not uri.startswith(part, found):
            return None, 0
        if pending is not None and not _assign(values, pending, uri[at:found]):
            return None, 0
        pending = None
        at = found + len(part)
    if pending is not None:
        return (values if _assign(values, pending, uri[at:]) else None), len(uri)
    return (values if at == len(uri) or not whole else None), at


def _assign(values: dict[str, str], variable: _Variable, value: str) -> bool:
    if not value or any(stop in value for stop in variable.stops):
        return False
    return _merge(values, {variable.name: value})


def _merge(values: dict[str, str], *more: dict[str, str]) -> bool:
    """Add values; return False if one of them has another value already."""
    return all(values.setdefault(n, v) == v for added in more for n, v in added.items())


def _is_segment(value: str) -> bool:
    return bool(value) and "?" not in value and "#" not in value


def _decoded(value: str) -> str:
    if "%" not in value:
        return value
    from urllib.parse import unquote

    return unquote(value, errors="strict")
