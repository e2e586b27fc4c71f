"""One member of the gateway: what answers for it, what it offers, and how it fares."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from portico.catalog.catalog import Catalog
from portico.catalog.namespaced import NamespacedOffer
from portico.catalog.sanitize import sanitize_text
from portico.catalog.sanitize_offer import SanitizedItem
from portico.chain.core import CatalogSource
from portico.chain.fold import fold
from portico.chain.only import Only
from portico.config.schema import ServerEntry
from portico.gateway.local_server import LocalEntry
from portico.model.context import Context
from portico.model.errors import McpError, TargetError
from portico.model.message import Request
from portico.model.offer import Offer
from portico.model.types import Answer, LogLevelAware, Notified, Provider
from portico.protocol.eras import members

GATEWAY_CAPABILITY = "portico/gateway"
"""The capability by which a gateway says which one it is."""
_KINDS = ("tools", "resources", "prompts")
_DESCRIPTIVE_FIELDS = ("title", "description", "tags")
_MAX_WARNINGS = 20
_MAX_NAME = 100

Entry = ServerEntry | LocalEntry


class Managed(CatalogSource, Provider, Protocol):
    """A provider that a gateway keeps: it may have to be started, and it has to be ended."""

    starts: int
    """How often it was started so far."""

    def provide(self, request: Request, context: Context) -> Answer:
        """Answer a request, for which nobody else is asked."""
        ...

    def offered(self) -> Catalog | None:
        """What everybody is offered, as it was last heard; None if that never was."""
        ...

    async def fetch_catalog(self) -> None:
        """Ask for all that it offers; raises McpError or TargetError."""
        ...

    def status(self) -> dict[str, Any]:
        """How it is, for people."""
        ...

    @property
    def is_busy(self) -> bool:
        """True as long as calls are under way."""
        ...

    async def close(self) -> None:
        """End it, and whatever was started for it."""
        ...


class Member:
    """One entry, from the time it is there to the time it is gone."""

    def __init__(
        self,
        entry: Entry,
        provider: Managed,
        name_limit: int,
        *,
        gateway: str = "",
        leave: Callable[[], None] | None = None,
    ) -> None:
        """`gateway` is whose member it is; `leave` is called when another takes its place."""
        self.entry = entry
        self.name = entry.name
        self.provider = provider
        self.problem = entry.problem
        """Why it could not be asked the last time; empty if it could."""
        self.refreshing: asyncio.Future[None] | None = None
        """Done when it has answered; None unless it is being asked what it offers."""
        self.stop_saving = leave or _nothing
        """Keep nothing on disk from now on: the next server of this name does."""
        self.links = _links(entry)
        """What every door to it has in front of it."""
        self.handle = fold(self.links, provider.provide)
        """Its answer to a request under its own names."""
        self.is_local = isinstance(entry, LocalEntry)
        """True if it is a part of this process."""
        self._refreshes = 0
        self._name_limit = name_limit
        self._gateway = gateway
        self._namespaced: NamespacedOffer | None = None
        self._seen: Catalog | None = None

    def on_notification(self, request: Request, context: Context) -> None:
        """Pass on what a client says without waiting for an answer."""
        if isinstance(self.provider, Notified):
            self.provider.on_notification(request, context)

    async def set_level(self, request: Request, context: Context) -> None:
        """A client wants log messages from the level on that its session has now."""
        if isinstance(self.provider, LogLevelAware):
            await self.provider.set_level(request, context)

    def adopt(self, entry: Entry) -> bool:
        """Go on with another entry, if only the words for people and models are others in it."""
        words = {key: getattr(self.entry, key) for key in _DESCRIPTIVE_FIELDS}
        if msgspec.structs.replace(entry, **words) != self.entry:
            return False
        self.entry = entry
        return True

    @property
    def namespaced(self) -> NamespacedOffer | None:
        """What it offers, as far as that is known and to be seen."""
        catalog = self._offered()
        if catalog is None:
            return None
        if self._seen is not catalog:
            self._seen = catalog
            offer = self._visible(catalog.offer)
            if self._namespaced is None or not offer.same(self._namespaced.offer):
                self._namespaced = NamespacedOffer(self.name, offer, self._name_limit)
        return self._namespaced

    def _visible(self, offer: Offer) -> Offer:
        for link in self.links:
            offer = link.view(offer)
        return offer

    @property
    def is_pending(self) -> bool:
        """True if it never said which tools it has."""
        return self._offered() is None or self.lacks_tools

    @property
    def lacks_tools(self) -> bool:
        """True if it has tools, as it says, but could not list them."""
        catalog = self.provider.offered()
        return catalog is not None and "tools" in _unlisted(catalog)

    @property
    def is_confirmed(self) -> bool:
        """True if it said so to us, not only to whoever ran before."""
        catalog = self.provider.offered()
        return catalog is not None and catalog.confirmed

    def _offered(self) -> Catalog | None:
        """What it said last; nothing of a server that is this very gateway again."""
        catalog = self.provider.offered()
        return None if catalog is None or self._is_circular(catalog) else catalog

    def _is_circular(self, catalog: Catalog) -> bool:
        said = catalog.offer.introduction
        if not self._gateway or self._gateway.encode() not in said:
            return False
        capabilities = members(members(said).get("capabilities", b""))
        found = members(members(capabilities.get("experimental", b"")).get(GATEWAY_CAPABILITY, b""))
        return _text(found.get("id", b"")) == self._gateway

    @property
    def about(self) -> str:
        """What it is for, in the words of the config: those of the server are not ours."""
        return self.entry.description or self.entry.title

    async def fetch_catalog(self) -> None:
        """Ask it for all it offers; what goes wrong is kept as its problem."""
        if self.entry.problem:
            return  # only another config, or another environment, can help
        if self.refreshing is None:
            self.refreshing = asyncio.get_running_loop().create_future()
        self._refreshes += 1
        try:
            await self.provider.fetch_catalog()
        except (McpError, TargetError) as error:
            put_off = isinstance(error, TargetError) and error.kind in ("backoff", "breaker")
            if not put_off or not self.problem:  # else why it failed is known, and says more
                self.problem = str(error)
        else:
            self.problem = self.listing_problem()
        finally:
            self._refreshes -= 1
            if not self._refreshes:
                self.refreshing.set_result(None)
                self.refreshing = None

    def listing_problem(self) -> str:
        """What it has, as it says, but could not list."""
        catalog = self.provider.offered()
        if catalog is None:
            return ""
        if self._is_circular(catalog):
            return f"{self.name} is this gateway itself; remove it from the config"
        missing = _unlisted(catalog)
        if not missing:
            return ""
        return f"{self.name} could not list its {' and '.join(missing)}; the log says why"

    def warnings(self) -> list[str]:
        """The definitions in which something is hidden, a line each."""
        catalog, namespaced = self._offered(), self.namespaced
        found = () if catalog is None else catalog.sanitized
        hidden = [one for one in found if namespaced is not None and _lists(namespaced, one)]
        lines = [_warning(self.name, one) for one in hidden[:_MAX_WARNINGS]]
        more = len(hidden) - len(lines)
        return [*lines, f"{self.name}: {more} more have hidden characters"] if more else lines

    def status(self) -> dict[str, Any]:
        """How it fares, for people and programs."""
        catalog = self._offered()
        told = self.provider.status()
        lists = {} if catalog is None else self._visible(catalog.offer).lists
        taken = 0.0 if catalog is None else catalog.offer.taken
        age = round(max(0.0, time.time() - taken), 1) if taken else None
        return {
            **told,
            "server": self.name,
            "title": self.entry.title,
            "tags": self.entry.tags,
            "state": self._state(told),
            "tools": len(lists["tools"].keys) if "tools" in lists else 0,
            "lists": {kind: len(listed.keys) for kind, listed in lists.items()},
            "omitted": {kind: listed.omitted for kind, listed in lists.items() if listed.omitted},
            "age_s": age,
            "pending": self.is_pending,
            "error": self.problem,
        }

    def _state(self, told: dict[str, Any]) -> str:
        if "state" in told:
            return str(told["state"])
        if told["breaker"] == "open":
            return "failing"
        states = [connection["state"] for connection in told["connections"]]
        for state in ("active", "connected", "connecting", "idle"):
            if state in states:
                return state
        return "failed" if self.problem else "stopped"


def _lists(namespaced: NamespacedOffer, hidden: SanitizedItem) -> bool:
    return not hidden.key or hidden.key in namespaced.listed(hidden.kind).keys


def _warning(server: str, hidden: SanitizedItem) -> str:
    kind = hidden.kind.removesuffix("s") if hidden.key else hidden.kind
    name = " ".join(sanitize_text(hidden.key).split())[:_MAX_NAME]
    words = f"{server}: hidden characters in {kind} {name}".rstrip()
    if not hidden.in_values:
        return f"{words}; they are shown escaped"
    return f"{words}; those in values that go back to the server are left as they are"


def _unlisted(catalog: Catalog) -> list[str]:
    """The kinds that a server has, as it says, but of which there is no list."""
    offer = catalog.offer
    without = [kind for kind in _KINDS if kind not in offer.lists]
    if not without:
        return []
    declared = members(members(offer.introduction).get("capabilities", b""))
    return [kind for kind in without if kind in declared]


def _links(entry: Entry) -> list[Only]:
    tools = entry.tools
    if not (tools.allow or tools.deny):
        return []
    return [Only(tools=tools.allow or "*", resources="*", prompts="*", without=tools.deny)]


def _nothing() -> None:
    """Nobody needs to know."""


def _text(raw: bytes) -> str:
    try:
        return sanitize_text(msgspec.json.decode(raw, type=str)).strip() if raw else ""
    except msgspec.DecodeError:
        return ""
