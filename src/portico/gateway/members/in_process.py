"""A component in the gateway's own process, imported when it is first needed."""

import asyncio
from collections.abc import Callable
from typing import Any

from portico.core.catalog.catalog import Catalog
from portico.core.config.schema import ComponentEntry
from portico.core.documents.trust import check_code
from portico.core.model.context import Context
from portico.core.model.errors import PorticoError, TargetError
from portico.core.model.message import Request, Response
from portico.core.model.offer import Offer
from portico.core.model.types import Answer, Change
from portico.core.state.hub import ChangeHub
from portico.gateway.members.in_process_server import InProcessServer
from portico.library.chain.endpoint_parts import Hub
from portico.library.components.classify import ComponentError, classify
from portico.library.components.import_in_thread import ImportTimeout, load_in_thread
from portico.library.components.load import import_file, load_file
from portico.library.components.own_modules import forget_modules
from portico.library.functions.task_mode import TaskMode
from portico.library.server import Server
from portico.upstream.connections.direct_call import as_mcp_error

_NOTHING = Offer()


class InProcessComponent:
    """A member's provider that imports a file, and is then a `InProcessServer`."""

    def __init__(self, entry: ComponentEntry) -> None:
        self.name = entry.name
        self.starts = 0
        self._entry = entry
        self._local: InProcessServer | None = None
        self._loading: asyncio.Task[InProcessServer] | None = None
        self._timeout: ImportTimeout | None = None
        self._watchers: list[Callable[[Change], None]] = []
        self._hub = ChangeHub()  # clients may listen before the import

    @property
    def is_busy(self) -> bool:
        """True while calls are running."""
        return self._local is not None and self._local.is_busy

    def offer(self) -> Offer:
        """Return the current offer, which is empty before the import."""
        return _NOTHING if self._local is None else self._local.offer()

    def task_mode(self, tool: str) -> TaskMode | None:
        """Return how a tool supports tasks; None before the import."""
        return None if self._local is None else self._local.task_mode(tool)

    def offered(self) -> Catalog | None:
        """Return the catalog; None before the import."""
        return None if self._local is None else self._local.offered()

    def catalog(self, request: Request, context: Context) -> Catalog | None:
        """Return the one catalog; None before the import."""
        return self.offered()

    def published(self) -> list[tuple[Catalog, ChangeHub]]:
        """Return the catalog and its hub; nothing before the import."""
        catalog = self.offered()
        return [] if catalog is None else [(catalog, self._hub)]

    async def ready(self, request: Request, context: Context) -> None:
        """Wait for the import; raises McpError if it fails."""
        try:
            await self._loaded()
        except TargetError as error:
            raise as_mcp_error(error) from error

    def hub(self, request: Request, context: Context) -> Hub:
        """Return the one hub."""
        return self._hub

    def on_initialize(self, request: Request, context: Context) -> None:
        """Change nothing: all clients see the same."""

    def provide(self, request: Request, context: Context) -> Answer:
        """Call the function that owns the request, after the import."""
        if self._local is not None:
            return self._local.provide(request, context)
        return self._provide_when_loaded(request, context)

    async def _provide_when_loaded(self, request: Request, context: Context) -> Response:
        await self.ready(request, context)
        return await self.provide(request, context)

    def watch(self, changed: Callable[[Change], None]) -> None:
        """Call this function for every later change."""
        self._watchers.append(changed)

    def _changed(self, change: Change) -> None:
        self._hub.publish(change)
        for changed in self._watchers:
            changed(change)

    async def fetch_catalog(self) -> None:
        """Import the file, and start the lifespan of its server; raises TargetError."""
        await (await self._loaded()).fetch_catalog()

    async def _loaded(self) -> InProcessServer:
        """Return the loaded server; all callers wait for the same import."""
        if self._local is not None:
            return self._local
        if self._loading is None or self._loading.done():
            self._loading = asyncio.create_task(self._load())
            self._loading.add_done_callback(_retrieve)
        # The import continues if this caller is cancelled: others may wait for it too.
        return await asyncio.shield(self._loading)

    async def _load(self) -> InProcessServer:
        entry = self._entry
        try:
            if entry.problem:
                raise ComponentError(entry.problem)
            if self._timeout is not None:  # that import still runs; a changed file starts another
                raise self._timeout
            self.starts += 1
            key = f"components.{entry.name}.timeouts.init"
            limit_s = entry.timeouts.init
            server = await load_in_thread(lambda: _server_of(entry), entry.path, limit_s, key)
        except PorticoError as error:
            self._timeout = error if isinstance(error, ImportTimeout) else None
            words = f"{self.name} is not started: {error}"
            raise TargetError(words, kind="start", server=self.name) from error
        local = self._local = InProcessServer(self.name, server)
        local.watch(self._changed)
        for kind in ("tools", "resources", "prompts"):
            self._changed(Change(kind))
        return local

    def status(self) -> dict[str, Any]:
        """Return the state for `portico status`."""
        if self._local is not None:
            return {**self._local.status(), "starts": self.starts}
        is_loading = self._loading is not None and not self._loading.done()
        return {
            "server": self.name,
            "state": "importing" if is_loading else "failed" if self._loading else "not imported",
            "breaker": "closed",
            "held": 0,
            "starts": self.starts,
            "connections": [],
            "changes": [],
        }

    async def close(self) -> None:
        """Close the lifespan of the server. An import that still runs continues in its thread."""
        if self._loading is not None:
            self._loading.cancel()
        if self._local is not None:
            await self._local.close()


def _server_of(entry: ComponentEntry) -> Server:
    """Import a component's file and return its server; raises PorticoError."""
    check_code(entry.files)  # it may have changed since the config was read
    component = classify(entry.path)
    if not component.is_file:
        why = "a server of another library, which needs its own process"
        raise ComponentError(f"{entry.path}: {why}; remove in_process")
    for file in entry.files:
        forget_modules(file)
    loaded = load_file(component, import_file(entry.handlers) if entry.handlers else None)
    if loaded.server is None:
        how = "write it in gateway.links instead"
        raise ComponentError(f"{entry.path}: middleware, not a server; {how}")
    if loaded.links:
        why = "a server with middleware, which in_process does not support"
        how = f"write {component.path}:NAME for the server alone, or remove in_process"
        raise ComponentError(f"{entry.path}: {why}; {how}")
    return loaded.server


def _retrieve(done: "asyncio.Task[InProcessServer]") -> None:
    """Mark the failure as seen, as no caller may wait for it."""
    if not done.cancelled():
        done.exception()
