"""One member of the gateway: its provider, its offer and its state."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import msgspec

from portico.core.catalog.catalog import Catalog
from portico.core.catalog.namespaced import NamespacedOffer, can_create_tasks
from portico.core.catalog.sanitize import sanitize_text
from portico.core.catalog.sanitize_offer import SanitizedItem
from portico.core.catalog.settled import in_order_of_keys, settled
from portico.core.config.schema import ComponentEntry, ServerEntry
from portico.core.model.context import Context
from portico.core.model.errors import McpError, TargetError
from portico.core.model.message import Request
from portico.core.model.offer import Offer
from portico.core.model.types import Answer, LogLevelAware, Notified, Provider
from portico.core.protocol.eras import members
from portico.core.protocol.tasks import support_of
from portico.gateway.members.in_process_server import InProcessEntry
from portico.library.chain.endpoint_parts import CatalogSource
from portico.library.chain.fold import fold
from portico.library.chain.only import Only
from portico.library.functions.task_mode import TaskMode, TaskSupport
from portico.upstream.connections.backoff import BackoffLimits, jittered
from portico.upstream.connections.direct_call import as_mcp_error
from portico.upstream.connections.installs import INSTALLING, WAITING
from portico.upstream.wires.wire import LOGIN

GATEWAY_CAPABILITY = "portico/gateway"
"""The capability that identifies a gateway."""
_KINDS = ("tools", "resources", "prompts")
_DESCRIPTIVE_FIELDS = ("title", "description", "tags", "trust_hints")
_MAX_WARNINGS = 20
_MAX_NAME = 100
_RETRIES = BackoffLimits(first_pause_s=5.0, max_pause_s=600.0)
"""The pauses between tries to list the tools of a server that failed."""

Entry = ServerEntry | ComponentEntry | InProcessEntry
_KIND_NAMES: dict[type, str] = {
    ServerEntry: "server",
    ComponentEntry: "component",
    InProcessEntry: "member",
}


class Managed(CatalogSource, Provider, Protocol):
    """A provider that a gateway starts, refreshes and closes."""

    starts: int
    """The number of starts so far."""

    def provide(self, request: Request, context: Context) -> Answer:
        """Answer a request that no other provider will see."""
        ...

    def offered(self) -> Catalog | None:
        """Return the last known catalog for all clients; None if there is none."""
        ...

    async def fetch_catalog(self) -> None:
        """Fetch the catalog; raises McpError or TargetError."""
        ...

    def status(self) -> dict[str, Any]:
        """Return the state for `portico status`."""
        ...

    @property
    def is_busy(self) -> bool:
        """True while calls are running."""
        ...

    async def close(self) -> None:
        """Close it, and end every process that was started for it."""
        ...


@runtime_checkable
class InProcessFunctions(Protocol):
    """A provider whose functions run in this process, also as tasks."""

    def task_mode(self, tool: str) -> TaskMode | None:
        """Return how a tool supports tasks."""
        ...


class Member:
    """One entry of the config and its provider, until the entry is removed."""

    def __init__(
        self,
        entry: Entry,
        provider: Managed,
        name_limit: int | None,
        *,
        gateway: str = "",
        stop_saving: Callable[[], None] | None = None,
        cwd: str = "",
        placed: "Callable[[str], tuple[Managed, str]] | None" = None,
    ) -> None:
        """`gateway` identifies the gateway; `stop_saving` is called when the entry is removed.
        `cwd` is where its process runs, if it has one. `placed` returns a provider for the same
        server in another folder, and where that runs; None if one process is for all folders."""
        self.entry = entry
        self.name = entry.name
        self.provider = provider
        self.problem = entry.problem
        """The error of the last refresh; empty if it succeeded."""
        self.refreshing: asyncio.Future[None] | None = None
        """Done when the current refresh ends; None if none is running."""
        self.retry: asyncio.TimerHandle | None = None
        """Starts the next try to list its tools, if one is planned."""
        self.failures = 0
        """The number of failed refreshes in a row."""
        self.retry_pause_s = 0.0
        """The pause before the next try, after a failure."""
        self.login_error: McpError | None = None
        """Set if the last refresh failed because a person must log in."""
        self.stop_saving = stop_saving or _nothing
        """Stops saving the catalog on disk: the next server of this name does."""
        self.links = _links(entry)
        """The links before it, at every endpoint."""
        self.handle = fold(self.links, provider.provide)
        """Answers a request under the server's own names."""
        self.is_in_process = isinstance(entry, InProcessEntry) or (
            isinstance(entry, ComponentEntry) and entry.in_process
        )
        """True if the server runs in this process."""
        self._cwd = cwd
        self._placed = placed
        self.lists_differ = False
        """True if the process of another folder has listed otherwise."""
        self._refreshes = 0
        self._name_limit = name_limit
        self._gateway = gateway
        self._namespaced: NamespacedOffer | None = None
        self._task_modes: tuple[Catalog | None, dict[str, TaskMode | None]] = (None, {})
        self._seen: Catalog | None = None

    @property
    def is_per_folder(self) -> bool:
        """True if it has a process for each folder."""
        return self._placed is not None

    def in_folder(self, folder: str) -> "FolderMember":
        """Return the same server in another folder."""
        assert self._placed is not None
        provider, cwd = self._placed(folder)
        return FolderMember(self, provider, self._name_limit, gateway=self._gateway, cwd=cwd)

    def on_notification(self, request: Request, context: Context) -> None:
        """Pass on a client's notification."""
        if isinstance(self.provider, Notified):
            self.provider.on_notification(request, context)

    async def set_level(self, request: Request, context: Context) -> None:
        """Pass on the log level that a client has set on its session."""
        if isinstance(self.provider, LogLevelAware):
            await self.provider.set_level(request, context)

    def adopt(self, entry: Entry) -> bool:
        """Adopt a new entry in place if only fields changed that concern no process."""
        words = {key: getattr(self.entry, key) for key in _DESCRIPTIVE_FIELDS}
        if msgspec.structs.replace(entry, **words) != self.entry:
            return False
        self.entry = entry
        return True

    @property
    def catalog(self) -> Catalog | None:
        """The last known catalog; None if there is none."""
        return self.provider.offered()

    @property
    def namespaced(self) -> NamespacedOffer | None:
        """The visible offer under its names in the gateway; None if unknown."""
        catalog = self._offered()
        if catalog is None:
            return None
        if self._seen is not catalog:
            self._seen = catalog
            # A server may list in any order, and otherwise in each era.
            offer = in_order_of_keys(self._visible(catalog.offer))
            known = self._namespaced
            if known is not None:
                offer = settled(offer, known.offer)
            if known is None or not offer.same(known.offer):
                self._namespaced = NamespacedOffer(self.name, offer, self._name_limit)
        return self._namespaced

    def _visible(self, offer: Offer) -> Offer:
        for link in self.links:
            offer = link.view(offer)
        return offer

    @property
    def is_pending(self) -> bool:
        """True if its tools were never listed."""
        return self._offered() is None or self.lacks_tools

    @property
    def lacks_tools(self) -> bool:
        """True if it declares tools but could not list them."""
        catalog = self.catalog
        return catalog is not None and "tools" in _unlisted(catalog)

    @property
    def is_confirmed(self) -> bool:
        """True if this process fetched the catalog, rather than reading it from disk."""
        catalog = self.catalog
        return catalog is not None and catalog.confirmed

    def _offered(self) -> Catalog | None:
        """Return the last known catalog; None for a server that is this gateway itself."""
        catalog = self.catalog
        return None if catalog is None or self._is_circular(catalog) else catalog

    def _is_circular(self, catalog: Catalog) -> bool:
        introduction = catalog.offer.introduction
        if not self._gateway or self._gateway.encode() not in introduction:
            return False
        capabilities = members(members(introduction).get("capabilities", b""))
        found = members(members(capabilities.get("experimental", b"")).get(GATEWAY_CAPABILITY, b""))
        return _text(found.get("id", b"")) == self._gateway

    @property
    def about(self) -> str:
        """Its purpose according to the config: a server's own text is not trusted."""
        return self.entry.description or self.entry.title

    async def fetch_catalog(self) -> None:
        """Fetch the catalog; a failure is kept as the problem."""
        if self.entry.problem:
            return  # only a changed config or environment can fix it
        if self.refreshing is None:
            self.refreshing = asyncio.get_running_loop().create_future()
        self._refreshes += 1
        self.login_error = None
        try:
            await self.provider.fetch_catalog()
        except (McpError, TargetError) as error:
            self._failed(error)
        else:
            self.problem = self.listing_problem()
            self.failures = self.failures + 1 if self.problem else 0
            self.retry_pause_s = jittered(_RETRIES, self.failures)
        finally:
            self._refreshes -= 1
            if not self._refreshes:
                self.refreshing.set_result(None)
                self.refreshing = None

    @property
    def is_due(self) -> bool:
        """True if its tools should be listed in the background: this process never listed them, and
        the config is complete."""
        if self.entry.problem or self.is_in_process or self.login_error:
            return False  # a login refreshes it
        return self.lacks_tools or not self.is_confirmed

    def _failed(self, error: McpError | TargetError) -> None:
        kind, details = ("", {}) if isinstance(error, McpError) else (error.kind, error.details)
        if kind == INSTALLING:
            self.retry_pause_s = 0.0  # the installer continues, and the next try waits for it
        elif kind in ("backoff", "breaker") and self.problem:
            # It was not started; the earlier error explains more.
            self.retry_pause_s = details["retry_after_s"]
        else:
            if isinstance(error, TargetError) and kind == LOGIN:
                self.login_error = as_mcp_error(error)
            self.problem = str(error)
            self.retry_pause_s = jittered(_RETRIES, self.failures)
            self.failures += 1

    def listing_problem(self) -> str:
        """Return the problem of a server that did not list all that it declares."""
        catalog = self.catalog
        if catalog is None:
            return ""
        if self._is_circular(catalog):
            return f"{self.name} is this gateway itself; remove it from the config"
        missing = _unlisted(catalog)
        if not missing:
            return ""
        return f"{self.name} could not list its {' and '.join(missing)}; see the log"

    @property
    def has_tasks(self) -> bool:
        """True if its tools can be called as tasks."""
        catalog = self.catalog
        return catalog is not None and can_create_tasks(catalog.offer)

    @property
    def delegates(self) -> bool:
        """True if its tools delegate tasks to agents."""
        return isinstance(self.entry, InProcessEntry) and self.entry.is_builtin

    @property
    def requires_tasks(self) -> bool:
        """True if one of its tools runs only as a task."""
        catalog = self.catalog
        if catalog is None or not can_create_tasks(catalog.offer):
            return False
        return any(b'"required"' in raw for raw in catalog.offer.listed("tools").items)

    def task_mode(self, tool: str) -> TaskMode | None:
        """Return how one of its tools supports tasks."""
        catalog = self.catalog
        if self._task_modes[0] is not catalog:
            self._task_modes = (catalog, {})
        modes = self._task_modes[1]
        if tool not in modes:
            modes[tool] = None if catalog is None else self._task_mode(tool, catalog)
        return modes[tool]

    def _task_mode(self, tool: str, catalog: Catalog) -> TaskMode | None:
        if isinstance(self.provider, InProcessFunctions):
            return self.provider.task_mode(tool)
        definition = catalog.tool(tool)
        if definition is None or not can_create_tasks(catalog.offer):
            return None
        if catalog.offer.version.modern:
            return TaskMode(TaskSupport.REMOTE)
        support = support_of(definition.raw)
        if support not in ("optional", "required"):
            return None
        return TaskMode(TaskSupport.REMOTE, is_required=support == "required")

    def warnings(self) -> list[str]:
        """Return a warning for each definition with hidden characters."""
        catalog, namespaced = self._offered(), self.namespaced
        found = () if catalog is None else catalog.sanitized
        hidden = [one for one in found if namespaced is not None and _lists(namespaced, one)]
        lines = [_warning(self.name, one) for one in hidden[:_MAX_WARNINGS]]
        more = len(hidden) - len(lines)
        return [*lines, f"{self.name}: hidden characters in {more} more"] if more else lines

    def status(self) -> dict[str, Any]:
        """Return the state for `portico status`, metrics and models."""
        catalog = self._offered()
        status = self.provider.status()
        lists = {} if catalog is None else self._visible(catalog.offer).lists
        taken = 0.0 if catalog is None else catalog.offer.taken
        age = round(max(0.0, time.time() - taken), 1) if taken else None
        return {
            **status,
            "server": self.name,
            "kind": _KIND_NAMES[type(self.entry)],
            "title": self.entry.title,
            "tags": self.entry.tags,
            "state": self._state(status),
            "folder": self._cwd,
            "tools": len(lists["tools"].keys) if "tools" in lists else 0,
            "lists": {kind: len(listed.keys) for kind, listed in lists.items()},
            "omitted": {kind: listed.omitted for kind, listed in lists.items() if listed.omitted},
            "age_s": age,
            "pending": self.is_pending,
            "error": self.problem or (status.get("login") or {}).get("problem", ""),
            "retry_in_s": self._retry_in_s(),
        }

    def _retry_in_s(self) -> float | None:
        """Return the time until the next try; None if none is planned."""
        if self.retry is None or self.refreshing is not None or not self.is_due:
            return None
        return round(max(0.0, self.retry.when() - asyncio.get_running_loop().time()), 1)

    def _state(self, status: dict[str, Any]) -> str:
        if "state" in status:
            return str(status["state"])
        states = [connection["state"] for connection in status["connections"]]
        for state in (INSTALLING, WAITING):
            if state in states:
                return state
        if (status.get("login") or {}).get("problem"):
            return LOGIN
        if status["breaker"] == "open":
            return "failing"
        for state in ("active", "connected", "connecting", "idle"):
            if state in states:
                return state
        return "failed" if self.problem else "stopped"


class FolderMember(Member):
    """A server that runs in the folder of some windows; its catalog is the one that all folders
    share, until its own process has listed otherwise."""

    def __init__(
        self,
        shared: Member,
        provider: Managed,
        name_limit: int | None,
        *,
        gateway: str,
        cwd: str,
    ) -> None:
        super().__init__(shared.entry, provider, name_limit, gateway=gateway, cwd=cwd)
        self.shared = shared
        self._differs = False

    @property
    def catalog(self) -> Catalog | None:
        """The catalog of its own process, if that differs; else the one of all folders."""
        return self.provider.offered() if self._differs else self.shared.catalog

    @property
    def namespaced(self) -> NamespacedOffer | None:
        """The visible offer under its names in the gateway; None if unknown."""
        return super().namespaced if self._differs else self.shared.namespaced

    def compare(self) -> None:
        """Use the own catalog from now on if it differs from the one of all folders."""
        own = self.provider.offered() if self.provider.starts else None
        if own is None or not own.confirmed:
            return
        shared = self.shared.catalog
        self._differs = shared is None or not own.offer.same(shared.offer)
        self.shared.lists_differ |= self._differs

    @property
    def differs(self) -> bool:
        """True if its own process has listed otherwise than the others."""
        return self._differs


def _lists(namespaced: NamespacedOffer, hidden: SanitizedItem) -> bool:
    return not hidden.key or hidden.key in namespaced.listed(hidden.kind).keys


def _warning(server: str, hidden: SanitizedItem) -> str:
    kind = hidden.kind.removesuffix("s") if hidden.key else hidden.kind
    name = " ".join(sanitize_text(hidden.key).split())[:_MAX_NAME]
    words = f"{server}: hidden characters in {kind} {name}".rstrip()
    if not hidden.in_values:
        return f"{words}; they are shown escaped"
    return f"{words}; those in values sent back to the server are unchanged"


def _unlisted(catalog: Catalog) -> list[str]:
    """Return the kinds that a server declares but did not list."""
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
    """Save nothing, so there is nothing to stop."""


def _text(raw: bytes) -> str:
    try:
        return sanitize_text(msgspec.json.decode(raw, type=str)).strip() if raw else ""
    except msgspec.DecodeError:
        return ""
