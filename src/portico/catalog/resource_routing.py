"""Whose resource a URI is, when several servers offer resources.

The rule, in this order:

1. a server that lists the URI;
2. the server with the most literal template that matches it;
3. nobody, and then the server whose result mentioned it, as `gateway/resource_origins.py` knows;
4. the only server with a template without a scheme that matches it.

The order of servers counts only where two list the same URI, or have templates that match it and
are equally literal: then the first in the config owns it. Spelling does not count: URIs are
compared in their canonical form, and sent on as they came. A URI of a server that does not own it
is shown as `portico://SERVER/<escaped uri>`, and so is every URI that begins like ours.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from operator import itemgetter

from msgspec import Struct

from portico.catalog.uris import Pattern, Rank, canonical, canonical_template, pattern

SCHEME = "portico://"
_MAX_TEMPLATES = 100
_MAX_TRIED = 8
"""So many of a server are looked at for a URI, and so many of those matched in full: others'
results must not wait for a server that has thousands."""
_MAX_KNOWN = 5_000


class ServerResources(Struct, frozen=True):
    """A server's resources, as far as they tell whose a URI is."""

    server: str
    uris: Sequence[str]
    templates: Sequence[str]


_Families = dict[str, list[tuple[Rank, str, Pattern]]]


class ResourceRouting:
    """Where each URI leads, among the servers of one catalog."""

    def __init__(self, servers: Iterable[ServerResources]) -> None:
        """In the order of the config."""
        self.servers: dict[str, ServerResources] = {owned.server: owned for owned in servers}
        self._by_low_name = {name.lower(): name for name in reversed(self.servers)}
        self.listed: dict[str, str] = {}
        """By canonical URI, the first server to list it."""
        self.templates: dict[str, str] = {}
        """The same of templates, by their text."""
        self._matched: dict[str, tuple[str | None, str | None]] = {}
        for owned in self.servers.values():
            for uri in owned.uris:
                self.listed.setdefault(canonical(uri), owned.server)
            for text in owned.templates:
                self.templates.setdefault(canonical_template(text), owned.server)

    def owner(self, uri: str) -> str | None:
        """The server that lists this URI, or has the most literal template for it."""
        return self._found(uri)[0]

    def fallback(self, uri: str) -> str | None:
        """For a URI that nobody owns or mentioned: the only server that would take any."""
        return self._found(uri)[1]

    def key(self, uri: str) -> str | None:
        """What is listed for this URI, in its canonical form: itself, or the template it fits."""
        same, text = canonical(uri), canonical_template(uri)
        if same in self.listed:
            return same
        if text in self.templates:
            return text
        fitting = (one for _, _, one in self.candidates(same) if one.may_match(same))
        loose = (one for _, one in self.schemeless)
        found = next((one for one in chain(fitting, loose) if one.matches(same)), None)
        return None if found is None else canonical_template(found.text)

    def _found(self, uri: str) -> tuple[str | None, str | None]:
        found = self._matched.get(uri)
        if found is None:
            if len(self._matched) >= _MAX_KNOWN:
                self._matched.clear()
            found = self._matched[uri] = self._find(uri)
        return found

    def _find(self, uri: str) -> tuple[str | None, str | None]:
        if _is_ours(uri):
            return None, None
        if "{" in uri:  # the text of a template, not a URI
            exact = self.templates.get(canonical_template(uri)) or self.listed.get(canonical(uri))
        else:
            exact = self.listed.get(canonical(uri)) or self.templates.get(canonical_template(uri))
        if exact is not None:
            return exact, None
        same = canonical(uri)
        tried: dict[str, int] = {}
        for _, server, one in self.candidates(same):
            if not one.may_match(same) or tried.get(server, 0) >= _MAX_TRIED:
                continue
            if one.matches(same):
                return server, None
            tried[server] = tried.get(server, 0) + 1
        loose = {server for server, one in self.schemeless if one.matches(same)}
        return None, loose.pop() if len(loose) == 1 else None

    def candidates(self, uri: str) -> list[tuple[Rank, str, Pattern]]:
        """The templates that this canonical URI begins like, the most literal first."""
        families, sizes = self._families
        found = [one for size in sizes for one in families.get(uri[:size], ())]
        found.sort(key=itemgetter(0), reverse=True)  # stable: the config's order counts last
        return found

    @cached_property
    def _families(self) -> tuple[_Families, list[int]]:
        """By the text before their first variable, the templates in their order; and the lengths
        of these texts."""
        found: _Families = {}
        for server, one in self.patterns:
            if one.has_scheme:
                found.setdefault(one.start, []).append((one.rank, server, one))
        for family in found.values():
            family.sort(key=itemgetter(0), reverse=True)
        return found, sorted({len(start) for start in found})

    @cached_property
    def schemeless(self) -> list[tuple[str, Pattern]]:
        """The templates without a scheme, each with its server."""
        return [(server, one) for server, one in self.patterns if not one.has_scheme]

    @cached_property
    def patterns(self) -> list[tuple[str, Pattern]]:
        """The templates that are matched, each with its server."""
        found = [
            (owned.server, pattern(text))
            for owned in self.servers.values()
            for text in owned.templates[:_MAX_TEMPLATES]
            if not _is_ours(text)
        ]
        return [(server, one) for server, one in found if one is not None]

    def exposed_uri(self, server: str, uri: str) -> str:
        """How a URI of this server's is shown to clients."""
        if not _is_ours(uri):
            owner = self.owner(uri)
            if owner is None or owner == server:
                return uri
        return prefixed_uri(server, uri)

    def canonical_exposed(self, shown: str) -> str:
        """The one spelling of a URI under the name of a server; any other as it is."""
        server, uri = self.resolve(shown) if _is_ours(shown) else (None, shown)
        if server is None:
            return shown
        return uri if self.owner(uri) == server else prefixed_uri(server, uri)

    def resolve(self, shown: str) -> tuple[str | None, str]:
        """The server and its own URI for one that a client has; no server if nobody owns it."""
        if not _is_ours(shown):
            return self.owner(shown), shown
        name, _, rest = shown[len(SCHEME) :].partition("/")
        server = name if name in self.servers else self._by_low_name.get(name.lower())
        if server is None or not rest:
            return None, shown
        from urllib.parse import unquote

        # An escaped URI has no colon; one made from a template has that of its scheme.
        return server, rest if ":" in rest else unquote(rest)


def prefixed_uri(server: str, uri: str) -> str:
    """A URI under the name of its server."""
    from urllib.parse import quote

    # A template must stay one, so that it can be filled in: its braces and text are kept.
    return f"{SCHEME}{server}/{uri if '{' in uri else quote(uri, safe='')}"


def _is_ours(uri: str) -> bool:
    """True if it begins like a URI of our own making, which no server can own."""
    return uri[: len(SCHEME)].lower() == SCHEME
