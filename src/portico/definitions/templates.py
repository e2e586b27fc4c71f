"""URI templates (RFC 6570): which URIs are of a family, and what varies in them.

Matching never goes back on a choice, so its time is linear in the URI (regular expressions made
from templates were CVE-2026-0621). For that, a template must leave no two ways to read a URI:

- two variables need text between them: `{a}/{b}`, not `{a}{b}`;
- one variable at most may span several segments: `{+path}`, `{path*}` or `{/path*}`;
- `{/x}` ends the path; `{?x}` or `{&x}`, and then `{#x}`, end the template.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from portico.definitions.definition_error import DefinitionError
from portico.definitions.expressions import Expression, parse
from portico.definitions.wording import render

MAX_VARIABLES = 32
_IN_PATH = "/?#"
_IN_QUERY = "?&#"
"""What a plain variable cannot hold: the marks that structure the part of the URI it is in."""


class _Variable(Struct, frozen=True):
    name: str
    stops: str
    """The characters at which its value ends."""


_Part = str | _Variable


class UriTemplate:
    """A URI template that can be matched and expanded."""

    def __init__(self, text: str) -> None:
        """Raise DefinitionError for what is no template, or one that reads in several ways."""
        self.text = text
        self._head: list[_Part] = []  # before the variable that spans segments, or all there is
        self._wide: _Variable | None = None
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
        inner = [p for p in (*self._head, self._wide, *self._rest) if isinstance(p, _Variable)]
        named = [variable.name for variable in inner]
        return tuple(dict.fromkeys((*named, *self.optional)))

    @property
    def optional(self) -> tuple[str, ...]:
        """The variables that a URI may lack."""
        fragment = (self._fragment,) if self._fragment else ()
        return (*self._segments, *self._query, *fragment)

    def match(self, uri: str) -> dict[str, str] | None:
        """The decoded values of its variables, without those left out; None if it does not fit."""
        found: dict[str, str] = {}
        if self._fragment:
            uri, mark, value = uri.partition("#")
            if mark:
                found[self._fragment] = value
        rest = self._take_query(uri, found)
        matched = None if rest is None else self._match_path(rest)
        if matched is None or not _agree(found, matched):
            return None
        try:
            return {name: _decoded(value) for name, value in found.items()}
        except UnicodeDecodeError:
            return None

    def expand(self, values: Mapping[str, Any]) -> str:
        """The URI with these values; a variable that has none leaves nothing behind."""
        return "".join(
            literal + (expression.expand(values) if expression else "")
            for literal, expression in parse(self.text)
        )

    # Reading the template.

    def _add_literal(self, text: str) -> None:
        if not text:
            return
        if self._segments or self._query or self._fragment:
            raise DefinitionError(f"{render(text)} stands after an expression that must come last")
        self._parts.append(text)

    def _add_expression(self, expression: Expression) -> None:
        last = {"/": self._segments or self._query, "?": self._query, "&": None, "#": None}
        if self._fragment or last.get(expression.operator, self.optional):
            raise DefinitionError(f"{expression} stands after an expression that must come last")
        match expression.operator:
            case "?" | "&":
                self._add_query(expression)
            case "#":
                self._fragment = expression.only_name()
                if "#" in self._literals:
                    raise DefinitionError(f'{expression} stands after a "#"')
            case "/":
                self._segments = expression.names
                self._explode = expression.explode
                if self._explode:
                    self._admit_wide(expression)
            case _:
                self._add_inner(expression)

    def _add_query(self, expression: Expression) -> None:
        started = "?" in self._literals or bool(self._query)
        if started is (expression.operator == "?"):
            wanted = "{&...}" if started else "{?...}"
            raise DefinitionError(f"{expression} should be {wanted} there")
        self._query_mark = self._query_mark or expression.operator
        self._query += expression.names

    def _add_inner(self, expression: Expression) -> None:
        """A variable among the text: `{x}`, `{x,y}`, `{+x}` or `{x*}`."""
        before = self._parts[-1] if self._parts else self._wide
        if isinstance(before, _Variable):
            raise DefinitionError(f"{expression} needs text between it and the variable before it")
        if expression.operator == "+" or expression.explode:
            self._admit_wide(expression)
            stops = "" if expression.operator == "+" else "?#"
            self._wide = _Variable(expression.only_name(), stops)
            return
        in_query = "?" in self._literals or "#" in self._literals
        for index, name in enumerate(expression.names):
            self._parts.extend([","] if index else [])
            self._parts.append(_Variable(name, _IN_QUERY if in_query else _IN_PATH))

    def _admit_wide(self, expression: Expression) -> None:
        if self._wide is not None:
            raise DefinitionError(f"{expression} is a second variable that may span segments")

    @property
    def _parts(self) -> list[_Part]:
        """Where the next part goes."""
        return self._head if self._wide is None else self._rest

    @property
    def _literals(self) -> str:
        return "".join(part for part in (*self._head, *self._rest) if isinstance(part, str))

    # Matching.

    def _take_query(self, uri: str, found: dict[str, str]) -> str | None:
        """Take `name=value` pairs off the end; what is left, or None if one is not ours."""
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
        # `{/a,b}` may take none, one or both of the last segments.
        for count in range(len(self._segments), -1, -1):
            rest, *segments = uri.rsplit("/", count) if count else [uri]
            if len(segments) == count and all(map(_is_segment, segments)):
                values = self._match_parts(rest)
                taken = dict(zip(self._segments, segments, strict=False))
                if values is not None and _agree(values, taken):
                    return values
        return None

    def _match_exploded(self, uri: str) -> dict[str, str] | None:
        """`{/path*}` takes everything after the slashes of the text before it."""
        slashes = sum(part.count("/") for part in self._head if isinstance(part, str))
        pieces = uri.split("/", slashes + 1)
        values = self._match_parts("/".join(pieces[: slashes + 1]))
        if values is None or len(pieces) <= slashes + 1:
            return values
        taken = {self._segments[0]: pieces[-1]}
        return values if _is_segment(pieces[-1]) and _agree(values, taken) else None

    def _match_parts(self, uri: str) -> dict[str, str] | None:
        if self._wide is None:
            # From the right, so that of `{name}.{ext}` the name gets the earlier dots.
            return _scan_back(self._head, uri, whole=True)[0]
        before, end = _scan(self._head, uri, whole=False)
        if before is None:
            return None
        after, start = _scan_back(self._rest, uri[end:], whole=False)
        if after is None or not _hold(before, self._wide, uri[end : len(uri) - start]):
            return None
        return before if _agree(before, after) else None


def _scan_back(parts: list[_Part], uri: str, *, whole: bool) -> tuple[dict[str, str] | None, int]:
    """Scan from the end: the same scan over everything reversed."""
    mirrored = [part[::-1] if isinstance(part, str) else part for part in reversed(parts)]
    values, end = _scan(mirrored, uri[::-1], whole=whole)
    return (None if values is None else {n: v[::-1] for n, v in values.items()}), end


def _scan(parts: list[_Part], uri: str, *, whole: bool) -> tuple[dict[str, str] | None, int]:
    """Match texts and variables from the start; the values, and where the match ends.

    Each variable ends at the first place where the text after it fits. A later place would never
    help: between the two the next variable can hold everything, or the text holds a mark that
    ends the variable, and then there is only one place.
    """
    values: dict[str, str] = {}
    at = 0
    waiting: _Variable | None = None
    for index, part in enumerate(parts):
        if isinstance(part, _Variable):
            waiting = part
            continue
        last = whole and index == len(parts) - 1
        found = len(uri) - len(part) if last else uri.find(part, at + (waiting is not None))
        if waiting is None:
            found = at if not last or found == at else -1
        if found < at or not uri.startswith(part, found):
            return None, 0
        if waiting is not None and not _hold(values, waiting, uri[at:found]):
            return None, 0
        waiting = None
        at = found + len(part)
    if waiting is not None:
        return (values if _hold(values, waiting, uri[at:]) else None), len(uri)
    return (values if at == len(uri) or not whole else None), at


def _hold(values: dict[str, str], variable: _Variable, value: str) -> bool:
    if not value or any(stop in value for stop in variable.stops):
        return False
    return _agree(values, {variable.name: value})


def _agree(values: dict[str, str], *more: dict[str, str]) -> bool:
    """Add values; False if one is there already and differs."""
    return all(values.setdefault(n, v) == v for added in more for n, v in added.items())


def _is_segment(value: str) -> bool:
    return bool(value) and "?" not in value and "#" not in value


def _decoded(value: str) -> str:
    if "%" not in value:
        return value
    from urllib.parse import unquote

    return unquote(value, errors="strict")
