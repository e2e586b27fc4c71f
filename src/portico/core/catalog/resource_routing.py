"""The routing of resource URIs to servers.

The rule, in this order:

1. a server that lists the URI;
2. the server with the most literal template that matches it;
3. the first server with a tool that has it as its page;
4. the server whose result mentioned it (`resource_origins.py`);
5. the only server with a template without a scheme that matches it.

The order of servers matters only if two list the same URI, or have equally literal templates that
match it: then the first in the config owns it. URIs are compared in their canonical form and
forwarded unchanged. A URI of a server that does not own it is exposed as
`portico://SERVER/<escaped uri>`. Clients show a page (MCP Apps) only if its URI begins with
`ui://`, so `ui://AUTHORITY/...` is exposed as `ui://SERVER--AUTHORITY/...` instead. No server can
own a URI in one of these two forms: it is always exposed with its server, so that it cannot take
the place of another server's.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from operator import itemgetter

from msgspec import Struct

from portico.core.catalog.uris import (
    Rank,
    UriPattern,
    canonical,
    canonical_escapes,
    canonical_template,
    uri_pattern,
)

SCHEME = "portico://"
_PAGE = "ui://"
_BETWEEN = "--"
"""Between the server and the authority of an exposed page."""
_AUTHORITY = re.compile("[^/?#]*")
_MAX_TEMPLATES = 100
_MAX_TRIED = 8
"""The limits of templates that are used, and matched in full, for each server: a server with
thousands must not delay the results of others."""
_MAX_KNOWN = 5_000


class ServerResources(Struct, frozen=True):
    """The URIs and templates of one server."""

    server: str
    uris: Sequence[str]
    templates: Sequence[str]
    pages: Sequence[str] = ()
    """The URIs of the pages of its tools, which it need not list."""


_Families = dict[str, list[tuple[Rank, str, UriPattern]]]


class ResourceRouting:
    """The server of each URI, among the servers of one catalog."""

    def __init__(self, servers: Iterable[ServerResources]) -> None:
        """Take the servers in the order of the config."""
        self.servers: dict[str, ServerResources] = {
            resources.server: resources for resources in servers
        }
        self._longest_name = max(map(len, self.servers), default=0)
        self._by_low_name = {name.lower(): name for name in reversed(self.servers)}
        self.listed: dict[str, str] = {}
        """The first server to list each canonical URI."""
        self.templates: dict[str, str] = {}
        """The first server to list each canonical template."""
        self._pages: dict[str, str] = {}
        self._matches: dict[str, tuple[str | None, str | None]] = {}
        for resources in self.servers.values():
            for uri in resources.uris:
                self.listed.setdefault(canonical(uri), resources.server)
            for text in resources.templates:
                self.templates.setdefault(canonical_template(text), resources.server)
            for uri in resources.pages:
                self._pages.setdefault(canonical(uri), resources.server)

    def owner(self, uri: str) -> str | None:
        """Return the server that lists this URI, has the most literal template for it, or has a
        tool with this page."""
        return self._match(uri)[0]

    def fallback(self, uri: str) -> str | None:
        """Return the only server with a matching template without a scheme."""
        return self._match(uri)[1]

    def key(self, uri: str) -> str | None:
        """Return the canonical form of the listed URI, or of the template that matches it."""
        same, text = canonical(uri), canonical_template(uri)
        if same in self.listed:
            return same
        if text in self.templates:
            return text
        fitting = (pattern for _, _, pattern in self.candidates(same) if pattern.may_match(same))
        schemeless = (pattern for _, pattern in self.schemeless)
        found = next(
            (pattern for pattern in chain(fitting, schemeless) if pattern.matches(same)), None
        )
        return None if found is None else canonical_template(found.text)

    def _match(self, uri: str) -> tuple[str | None, str | None]:
        found = self._matches.get(uri)
        if found is None:
            if len(self._matches) >= _MAX_KNOWN:
                self._matches.clear()
            found = self._matches[uri] = self._find(uri)
        return found

    def _find(self, uri: str) -> tuple[str | None, str | None]:
        if self._is_prefixed(uri):
            return None, None
        if "{" in uri:  # the text of a template, not a URI
            exact = self.templates.get(canonical_template(uri)) or self.listed.get(canonical(uri))
        else:
            exact = self.listed.get(canonical(uri)) or self.templates.get(canonical_template(uri))
        if exact is not None:
            return exact, None
        same = canonical(uri)
        tried: dict[str, int] = {}
        for _, server, pattern in self.candidates(same):
            if not pattern.may_match(same) or tried.get(server, 0) >= _MAX_TRIED:
                continue
            if pattern.matches(same):
                return server, None
            tried[server] = tried.get(server, 0) + 1
        if same in self._pages:
            return self._pages[same], None
        schemeless = {server for server, pattern in self.schemeless if pattern.matches(same)}
        return None, schemeless.pop() if len(schemeless) == 1 else None

    def candidates(self, uri: str) -> list[tuple[Rank, str, UriPattern]]:
        """Return the templates whose start this canonical URI has, the most literal first."""
        families, sizes = self._families
        found = [pattern for size in sizes for pattern in families.get(uri[:size], ())]
        found.sort(key=itemgetter(0), reverse=True)  # stable: the order of the config decides last
        return found

    @cached_property
    def _families(self) -> tuple[_Families, list[int]]:
        """The templates by the text before their first variable, and the lengths of these texts."""
        found: _Families = {}
        for server, pattern in self.patterns:
            if pattern.has_scheme:
                found.setdefault(pattern.start, []).append((pattern.rank, server, pattern))
        for family in found.values():
            family.sort(key=itemgetter(0), reverse=True)
        return found, sorted({len(start) for start in found})

    @cached_property
    def schemeless(self) -> list[tuple[str, UriPattern]]:
        """The templates without a scheme, with their servers."""
        return [(server, pattern) for server, pattern in self.patterns if not pattern.has_scheme]

    @cached_property
    def patterns(self) -> list[tuple[str, UriPattern]]:
        """The templates that can be matched, with their servers."""
        found = [
            (resources.server, uri_pattern(text))
            for resources in self.servers.values()
            for text in resources.templates[:_MAX_TEMPLATES]
            if not self._is_prefixed(text)
        ]
        return [(server, pattern) for server, pattern in found if pattern is not None]

    def exposed_uri(self, server: str, uri: str) -> str:
        """Return the URI that clients see for a URI of this server."""
        if not self._is_prefixed(uri):
            owner = self.owner(uri)
            if owner is None or owner == server:
                return uri
        return self.prefixed(server, uri)

    def prefixed(self, server: str, uri: str) -> str:
        """Return the URI that names its server too: `ui:` for a page, `portico:` for others."""
        if _is_page(uri):
            page = f"{uri[: len(_PAGE)]}{server}{_BETWEEN}{uri[len(_PAGE) :]}"
            if self._own_page(page) == (server, uri):
                return page
            # Another server's name begins with this one: the page could be read as its own.
        from urllib.parse import quote

        # A template is not escaped, so that clients can still expand it.
        return f"{SCHEME}{server}/{uri if '{' in uri else quote(uri, safe='')}"

    def canonical_exposed(self, exposed: str) -> str:
        """Return the canonical form of an exposed URI with its server; other URIs unchanged."""
        server, uri = self.resolve(exposed) if self._is_prefixed(exposed) else (None, exposed)
        if server is None:
            return exposed
        return uri if self.owner(uri) == server else self.prefixed(server, uri)

    def resolve(self, exposed: str) -> tuple[str | None, str]:
        """Return the server of an exposed URI, or None, and the URI there."""
        if _is_page(exposed):
            server, uri = self._own_page(exposed)
            return (self.owner(exposed), exposed) if server is None else (server, uri)
        if not _has_portico_scheme(exposed):
            return self.owner(exposed), exposed
        name, _, rest = exposed[len(SCHEME) :].partition("/")
        server = self._server(name)
        if server is None or not rest:
            return None, exposed
        from urllib.parse import unquote

        # An escaped URI has no colon; a URI from a template has the colon of its scheme.
        return server, rest if ":" in rest else unquote(rest)

    def _is_prefixed(self, uri: str) -> bool:
        """True for a URI in a form of ours, which no server can own."""
        return _has_portico_scheme(uri) or (_is_page(uri) and self._own_page(uri)[0] is not None)

    def _own_page(self, exposed: str) -> tuple[str | None, str]:
        """Return the server in the URI of a page, or None, and the URI there."""
        found = _AUTHORITY.match(exposed, len(_PAGE))
        assert found is not None
        rest = exposed[found.end() :]
        for authority in dict.fromkeys((found[0], canonical_escapes(found[0]))):
            at = self._longest_name + len(_BETWEEN)
            while (at := authority.rfind(_BETWEEN, 0, at)) > 0:  # the longest name first
                server = self._server(authority[:at])
                if server is not None:
                    own = authority[at + len(_BETWEEN) :]
                    return server, f"{exposed[: len(_PAGE)]}{own}{rest}"
                at += 1  # three hyphens contain two pairs
        return None, exposed

    def _server(self, name: str) -> str | None:
        return name if name in self.servers else self._by_low_name.get(name.lower())


def _has_portico_scheme(uri: str) -> bool:
    return uri[: len(SCHEME)].lower() == SCHEME


def _is_page(uri: str) -> bool:
    return uri[: len(_PAGE)].lower() == _PAGE
