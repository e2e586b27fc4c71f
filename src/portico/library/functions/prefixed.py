"""A provider whose tools and prompts have a prefix, such as `calc__add`."""

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from portico.core.catalog.exposed_names import LIMIT
from portico.core.catalog.namespaced import NamespacedOffer
from portico.core.model.context import Context
from portico.core.model.errors import RegistrationError
from portico.core.model.message import Request
from portico.core.model.offer import Offer
from portico.core.model.types import Answer, Change, Provider
from portico.core.protocol.codec import decoded
from portico.core.protocol.eras import members
from portico.core.protocol.request_target import with_target
from portico.library.functions.functions import FunctionProvider

if TYPE_CHECKING:
    from portico.library.functions.lifespan import Lifespan
    from portico.library.functions.registered import Tool

_VALID = re.compile(r"[A-Za-z0-9_-]+")
_KIND_OF = {"tools/call": "tools", "prompts/get": "prompts"}
_COMPLETE = "completion/complete"


class PrefixedProvider:
    """Another provider under names with a prefix. URIs stay: resources link to each other."""

    def __init__(self, inner: Provider, prefix: str) -> None:
        """Raises RegistrationError for a prefix that cannot begin the name of a tool."""
        if not _VALID.fullmatch(prefix):
            why = "give letters, digits, - and _"
            raise RegistrationError(f"cannot include with the prefix {prefix[:80]!r}: {why}")
        self.name = inner.name
        self.inner = inner
        self.calls_downstream = getattr(inner, "calls_downstream", False)
        self._prefix = prefix
        self._seen: tuple[Offer, Offer, dict[str, dict[str, str]]] | None = None
        """The offer of the other, this one's, and by kind the plain name of each name here."""

    def offer(self) -> Offer:
        """Return what the other offers, with the prefix."""
        return self._current()[0]

    def watch(self, changed: Callable[[Change], None]) -> None:
        """Call a function on every change of the other."""
        self.inner.watch(changed)

    def provide(self, request: Request, context: Context) -> Answer | None:
        """Pass a request on under the other's own name."""
        kind = _KIND_OF.get(request.method)
        if kind is None and request.method != _COMPLETE:
            return self.inner.provide(request, context)
        name = request.name
        if kind is None:
            reference = decoded(members(request.params).get("ref", b""), dict[str, object]) or {}
            if reference.get("type") != "ref/prompt":
                return self.inner.provide(request, context)
            kind, name = "prompts", str(reference.get("name"))
        plain = self._current()[1][kind].get(name)
        if plain is None:
            return None
        return self.inner.provide(with_target(request, "name", plain), context)

    def tools(self) -> "Mapping[str, Tool]":
        """Return the tools that are functions, by their names here."""
        own = tools_of(self.inner)
        names = self._current()[1]["tools"].items()
        return {name: own[plain] for name, plain in names if plain in own}

    def _current(self) -> tuple[Offer, dict[str, dict[str, str]]]:
        offer, seen = self.inner.offer(), self._seen
        if seen is None or seen[0] is not offer:
            seen = self._seen = (offer, *_prefixed(offer, self._prefix))
        return seen[1:]


def _prefixed(offer: Offer, prefix: str) -> tuple[Offer, dict[str, dict[str, str]]]:
    named = NamespacedOffer(prefix, offer, LIMIT)
    lists, plain = dict(offer.lists), {}
    for kind in ("tools", "prompts"):
        names = named.names(kind)
        plain[kind] = {shown: name for name, shown in names.items()}
        if kind in lists:
            listed = lists[kind]
            items = tuple(named.renamed(kind, key, "name", names[key]) for key in listed.keys)
            keys = tuple(names[key] for key in listed.keys)
            lists[kind] = replace(listed, items=items, keys=keys)
    return replace(offer, lists=lists), plain


def functions_of(provider: Provider) -> FunctionProvider | None:
    """Return the provider of functions that this one is, or that it gives a prefix."""
    while isinstance(provider, PrefixedProvider):
        provider = provider.inner
    return provider if isinstance(provider, FunctionProvider) else None


def tools_of(provider: Provider) -> "Mapping[str, Tool]":
    """Return the tools of a provider that are functions, by name."""
    if isinstance(provider, PrefixedProvider):
        return provider.tools()
    return provider.tools if isinstance(provider, FunctionProvider) else {}


def lifespan_of(provider: Provider) -> "Lifespan | None":
    """Return the lifespan of a provider of functions."""
    functions = functions_of(provider)
    return functions.lifespan if functions is not None else None
