"""Whose resource a URI is, when several servers offer resources.

A URI stays as it is. Its owner is the first server that lists it, else the first whose template
matches; a second owner's is shown as `portico://SERVER/<escaped uri>`.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count
from operator import itemgetter
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from portico.definitions.templates import UriTemplate

SCHEME = "portico://"
_MOST_TEMPLATES = 500
"""So many of a server are matched: others' results must not wait for one that has thousands."""
_MOST_KNOWN = 5_000


class Owned(Struct, frozen=True):
    """A server's resources, as far as they tell whose a URI is."""

    server: str
    uris: Sequence[str]
    templates: Sequence[str]


class Ownership:
    """Where each URI leads, among the servers of one catalog."""

    def __init__(self, servers: Iterable[Owned]) -> None:
        """In order: the first to list a URI owns it."""
        self._servers: set[str] = set()
        self._owned: list[Owned] = []
        self._listed: dict[str, str] = {}
        self._templates: dict[str, str] = {}
        self._matched: dict[str, str | None] = {}
        self.shadowed: dict[str, set[str]] = {}
        """By server, the URIs and templates that another one owns."""
        for owned in servers:
            self._servers.add(owned.server)
            for known, keys in ((self._listed, owned.uris), (self._templates, owned.templates)):
                for key in keys:
                    if known.setdefault(key, owned.server) != owned.server:
                        self.shadowed.setdefault(owned.server, set()).add(key)
            self._owned.append(owned)

    def owner(self, uri: str) -> str | None:
        """The server whose URI this is; None if nobody lists it or has a template for it."""
        listed = self._listed.get(uri) or self._templates.get(uri)
        if listed is not None:
            return listed
        if uri not in self._matched:
            if len(self._matched) >= _MOST_KNOWN:
                self._matched.clear()
            self._matched[uri] = self._match(uri)
        return self._matched[uri]

    def _match(self, uri: str) -> str | None:
        families = self._families
        sizes = {len(start) for start in families}
        near = [family for size in sizes for family in families.get(uri[:size], ())]
        for _, server, template in sorted(near, key=itemgetter(0)):
            if template.match(uri) is not None:
                return server
        return None

    @cached_property
    def _families(self) -> "dict[str, list[tuple[int, str, UriTemplate]]]":
        """By the text before their first variable, the templates in their order."""
        from portico.definitions.errors import DefinitionError
        from portico.definitions.templates import UriTemplate

        found: dict[str, list[tuple[int, str, UriTemplate]]] = {}
        numbers = count()
        for owned in self._owned:
            for text in owned.templates[:_MOST_TEMPLATES]:
                family = found.setdefault(text.partition("{")[0], [])
                # One that cannot be matched is still listed.
                with suppress(DefinitionError):
                    family.append((next(numbers), owned.server, UriTemplate(text)))
        return found

    def shown(self, server: str, uri: str) -> str:
        """How a URI of this server's is shown to clients."""
        if uri not in self.shadowed.get(server, ()) and self._named(uri) is None:
            owner = self.owner(uri)
            if owner is None or owner == server:
                return uri
        from urllib.parse import quote

        # A template must stay one, so that it can be filled in: its braces and text are kept.
        escaped = uri if "{" in uri else quote(uri, safe="")
        return f"{SCHEME}{server}/{escaped}"

    def read(self, shown: str) -> tuple[str | None, str]:
        """The server and its own URI for one that a client has; no server if nobody owns it."""
        named = self._named(shown)
        if named is not None:
            from urllib.parse import unquote

            server, rest = named
            # An escaped URI has no colon; one made from a template has that of its scheme.
            return server, rest if ":" in rest else unquote(rest)
        return self.owner(shown), shown

    def _named(self, uri: str) -> tuple[str, str] | None:
        """The server that a URI of our own making names, and the rest of it.

        A server may list such a URI itself, as another Portico does; it must not be taken for ours.
        """
        if not uri.startswith(SCHEME):
            return None
        server, slash, rest = uri[len(SCHEME) :].partition("/")
        return (server, rest) if slash and server in self._servers else None
