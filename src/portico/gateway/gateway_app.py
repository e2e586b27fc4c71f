"""`serve` put together: the house of a config, its memory, and what an operator can do with it."""

import asyncio
import contextlib
import os
import signal
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from portico.catalog.cache_folder import CacheFolder
from portico.catalog.catalog_store import CatalogStore
from portico.catalog.history_store import histories
from portico.catalog.upstream_key import user_secret
from portico.chain.endpoint import ChainEndpoint
from portico.config.paths import cache_folder, log_file, state_folder
from portico.config.schema import Config, Search
from portico.gateway.member_kinds import MemberEnvironment, no_history
from portico.gateway.registry import Registry
from portico.gateway.reload import ConfigWatcher
from portico.gateway.serve_options import ServeOptions
from portico.model.errors import PorticoError
from portico.observe.journal import Journal, open_journal
from portico.observe.metrics import Metrics
from portico.process.process_tree import MARK
from portico.state.report import failed, report
from portico.state.watchdog import Watchdog

if TYPE_CHECKING:
    from portico.search.searcher import Searcher

_MAX_RECENT = 20
"""Words that those are told who come later."""
_MAX_DEPTH = 8
"""So many gateways may be behind one another."""
_NEEDS_RESTART = {
    "gateway": (
        "expose",
        "http",
        "auth",
        "log",
        "limits",
        "drain_notice_s",
        "cache_mb",
        "watchdog_ms",
    ),
    "search": ("vectors", "model", "rerank"),
}
"""What cannot be changed while it runs, by table."""


class GatewayApp:
    """A gateway from start to end; made inside a running event loop."""

    def __init__(self, options: ServeOptions) -> None:
        if os.environ.get(MARK, "").count(":") >= _MAX_DEPTH:
            raise PorticoError(
                f"Portico starts Portico starts Portico, {_MAX_DEPTH} times: "
                f"a server of {options.config.path} leads back to it; remove that one"
            )
        self._options = options
        self._listeners: list[Callable[[str], None]] = []
        self._recent: deque[str] = deque(maxlen=_MAX_RECENT)
        self.url = ""
        """Where clients find it, if it serves HTTP."""
        self.metrics = Metrics()
        self.journal: Journal = open_journal(
            options.config.gateway.log, report, self.metrics.record_call
        )
        config = options.config
        cache = cache_folder()
        disk_cache = CacheFolder(cache, config.gateway.cache_mb)
        memory = CatalogStore(
            os.path.join(cache, "catalogs"), report=self.tell, disk_cache=disk_cache
        )
        environment = MemberEnvironment(
            info={"name": "portico", "title": "Portico", "version": options.version},
            memory=memory if options.cache else None,
            secret=user_secret(state_folder()),
            report=self.tell,
            on_stderr=self.journal.record_stderr,
            gateway=options.key(),
            history=histories(config.path, self.tell) if options.cache else no_history,
        )
        self.registry = Registry(
            config,
            environment,
            version=options.version,
            searcher=lambda: _searcher(config.search, disk_cache, self.tell),
            report_failure=failed,
            record_call=self.journal.record_call,
            expose=options.expose,
            links=options.links,
            local=options.local,
        )
        self._routes_changed: list[Callable[[], None]] = []
        self._watcher: ConfigWatcher | None = None

    @property
    def endpoint(self) -> ChainEndpoint:
        """The main doorway: to everything, or to the chosen group."""
        return self.registry.endpoint(self._options.group)

    def client_endpoint(
        self, preferences: Mapping[str, Any]
    ) -> tuple[ChainEndpoint, Mapping[str, Any]]:
        """The same as a client wants it, and what it is to want from whoever serves it next."""
        searches = self.registry.resolves_to_search(preferences.get("expose"))
        endpoint = self.registry.endpoint(self._options.group, searches)
        return endpoint, {"expose": "search" if searches else "all"}

    def endpoint_at(self, path: str) -> ChainEndpoint | None:
        """The endpoint at `/servers/NAME/mcp` or `/groups/NAME/mcp`; None if there is none."""
        match path.split("/"):
            case ["", "servers", name, "mcp"]:
                return self.registry.server_endpoint(name)
            case ["", "groups", name, "mcp"] if name in self.registry.config.groups:
                return self.registry.endpoint(name)
        return None

    def on_routes_changed(self, act: Callable[[], None]) -> None:
        """Have this done whenever doors may lead elsewhere."""
        self._routes_changed.append(act)

    def start_refresh(self) -> None:
        """Ask all servers again for what they offer, behind."""
        self.registry.ask_again()

    def on_report(self, say: Callable[[str], None]) -> None:
        """Have everything that the operator is told passed to this, too, what was told last
        first."""
        for words in self._recent:
            say(words)
        self._listeners.append(say)

    @property
    def commands(self) -> Mapping[str, Callable[[Mapping[str, Any]], Any]]:
        """What can be asked over the control socket."""
        return {"status": self._status, "refresh": self._refresh}

    async def metrics_page(self) -> tuple[bytes, bytes]:
        """The content type and the page of metrics; threads do what would hold up calls."""
        await asyncio.to_thread(import_module, "portico.observe.prometheus")
        from portico.observe.prometheus import CONTENT_TYPE, GatewayCollector

        self.journal.count()
        figures = GatewayCollector(self.metrics, self.registry.status())
        return CONTENT_TYPE, await asyncio.to_thread(figures.page)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator["GatewayApp", None]:
        """Ask the servers behind, follow the config file; afterwards no server is left."""
        registry = self.registry
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError, RuntimeError, AttributeError):
            loop.add_signal_handler(signal.SIGHUP, registry.ask_again)
        watched, options = None, self._options
        if options.read is not None:
            watched = self._watcher = ConfigWatcher(
                registry.config.path, options.read, self._apply, self.tell, known=options.stamp
            )
            watched.start()
        self.journal.event(f"process {os.getpid()} serves {registry.config.path}")
        self._warn(registry.config)
        if self._options.refresh:
            registry.start()
        try:
            with Watchdog(registry.config.gateway.watchdog_ms / 1000, self.tell):
                yield self
        finally:
            if watched is not None:
                await watched.close()
            await registry.close()
            self.journal.event(f"process {os.getpid()} has ended")
            self.journal.close()

    async def _apply(self, config: Config) -> None:
        """Go on with another config, and say what of it has to wait."""
        before = self.registry.config
        self._warn(config)
        waits = [
            f"{table}.{key}"
            for table, keys in _NEEDS_RESTART.items()
            for key in keys
            if getattr(getattr(config, table), key) != getattr(getattr(before, table), key)
        ]
        if waits:
            self.tell(f"{', '.join(waits)}: what is new counts from the next start")
        for act in self._routes_changed:
            asyncio.get_running_loop().call_soon(act)  # which is before new servers have answered
        await self.registry.apply(config)

    def _warn(self, config: Config) -> None:
        for warning in config.warnings:
            self.tell(warning)
        for lacking in config.unresolved:
            self.tell(f"{lacking}; until then this server is not started")

    def tell(self, words: str) -> None:
        """Tell the operator, now and in the log."""
        report(words)
        self.journal.event(words)
        self._recent.append(words)
        for say in self._listeners:
            say(words)

    async def _status(self, order: Mapping[str, Any]) -> dict[str, Any]:
        registry = self.registry
        return {
            "pid": os.getpid(),
            "config": registry.config.path,
            "rejected": self._watcher.rejected if self._watcher is not None else "",
            "log": self._options.config.gateway.log or log_file(),
            "url": self.url,
            "disabled": registry.config.disabled,
            "warnings": registry.config.warnings,
            "tasks": len(asyncio.all_tasks()),
            **registry.status(),
        }

    async def _refresh(self, order: Mapping[str, Any]) -> dict[str, Any]:
        registry = self.registry
        server = order.get("server")
        if server is not None and server not in list(registry.members):
            raise PorticoError(f"there is no server {server!r} here")
        await registry.refresh(list(registry.members) if server is None else [server])
        return await self._status(order)


def _searcher(search: Search, disk_cache: CacheFolder, tell: Callable[[str], None]) -> "Searcher":
    from portico.search.searcher import Searcher

    return Searcher.configured(search, os.path.join(disk_cache.folder, "search"), tell, disk_cache)
