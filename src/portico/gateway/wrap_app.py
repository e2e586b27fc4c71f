"""The application behind `wrap`: one upstream, its catalog on disk, and its endpoint."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from portico.core.model.errors import McpError, PorticoError, TargetError
from portico.core.model.types import Link
from portico.core.state.background import Background
from portico.core.state.report import failed, report
from portico.core.state.watchdog import Watchdog
from portico.library.chain.endpoint import ChainEndpoint
from portico.library.chain.exact_params import exact_params
from portico.library.components.component_upstream import ComponentUpstream
from portico.library.tasks.mcp.wrap_tasks import WrapPolicy
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.upstream import Upstream
from portico.upstream.wires.wire import Address

if TYPE_CHECKING:
    from portico.core.catalog.catalog_store import CatalogStore
    from portico.core.catalog.history import History
    from portico.edge.windows.control import Control, ControlRequest
    from portico.library.observe.journal import Journal

_CONTROL_AFTER_S = 0.2
"""The delay of the control socket: the first client's first requests take precedence."""


class WrapOptions(Struct, frozen=True):
    """The upstream to wrap, and its options."""

    address: Address
    policy: UpstreamPolicy
    key: Callable[[str], str]
    """Returns the name of a view of this upstream on disk."""
    history: str
    """The name of its history on disk, the same for all accounts."""
    cache: bool = True
    warm: bool = False
    refresh: bool = False
    log: str | None = None
    links: tuple[Link, ...] = ()
    watchdog_ms: int = 250
    """Report a message that blocks the event loop for this long; 0 disables it."""
    drain_s: float = 0.0
    """How long tasks have to finish at the end."""
    component: str = ""
    """The name of a component, which gets the sessions of clients; empty for a server."""


class WrapApp:
    """One upstream and its endpoint, from start to end."""

    def __init__(self, options: WrapOptions, *, alone: bool, url: str = "") -> None:
        """`alone` is for a single client: serving stops when the upstream fails to start, and
        without links the upstream's own tasks pass unchanged.

        `url` is the HTTP endpoint, if any.
        """
        self._options = options
        self._url = url
        self.stop = asyncio.Event()
        """Set when the upstream failed at the handshake of its only client."""
        self.failure: McpError | None = None
        # A result of the server's own task would not pass the links.
        is_transparent = alone and not options.links
        self.upstream = (ComponentUpstream if options.component else Upstream)(
            options.address,
            replace(options.policy, hides_tasks=not is_transparent),
            memory=_memory() if options.cache else None,
            key=options.key,
            report=report,
            history=_history(options.history if options.cache else None),
        )
        if isinstance(self.upstream, ComponentUpstream):
            self.upstream.component = options.component
        self.upstream.warms = options.warm
        self.upstream.lost = self._lost if alone else None
        self._log = None if options.log is None else _open_log(options.log)
        scope = f"wrap:{options.key('tasks')}"
        log = None if self._log is None else self._log.event
        self._tasks = WrapPolicy(self.upstream, scope, log, alone=is_transparent)
        # With links, the server must read exactly the params that they have checked.
        before = [exact_params]
        observe = None if self._log is None else self._log.link(self.upstream.name)
        self.endpoint = ChainEndpoint(
            self.upstream,
            [self.upstream],
            options.links,
            failed,
            observe,
            before=before,
            warn=report,
            tasks=self._tasks.link,
        )
        self.endpoint.check_names()
        self._control: Control | None = None
        self._background = Background()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """Accept signals and commands; afterwards close the upstream."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError, RuntimeError, AttributeError):
            loop.add_signal_handler(signal.SIGHUP, self.refresh)
        if self._options.refresh:
            self.refresh()
        control = loop.call_later(_CONTROL_AFTER_S, lambda: self._background.start(self._listen()))
        try:
            with Watchdog(self._options.watchdog_ms / 1000, report):
                yield
        finally:
            control.cancel()
            await self._background.close()  # it may be opening the socket
            if self._control is not None:
                await self._control.close()
            await self._tasks.close(self._options.drain_s)
            self._options.policy.installs.end_in(self._options.drain_s)
            await self.upstream.close()
            if self._log is not None:
                self._log.close()

    def refresh(self) -> None:
        """Refresh the upstream's catalog in the background."""
        self._background.start(self._refresh())

    async def _refresh(self) -> None:
        try:
            await self.upstream.refresh()
        except (TargetError, McpError) as error:
            report(f"cannot refresh: {error}")

    async def _listen(self) -> None:
        """Open the control socket, for `portico servers`."""
        from portico.core.config.paths import state_folder

        async def refresh(request: "ControlRequest") -> dict[str, Any]:
            await self.upstream.refresh()
            return self._status()

        async def status(request: "ControlRequest") -> dict[str, Any]:
            return self._status()

        async def change_account(request: "ControlRequest") -> dict[str, Any]:
            if not await self.upstream.change_account(str(request.get("place"))):
                return {"servers": []}
            if self.upstream.is_listed:
                self.refresh()
            return {"servers": [self.upstream.name]}

        commands = {
            "status": status,
            "refresh": refresh,
            "login": change_account,
            "logout": change_account,
        }
        try:
            # Imported here: with too many open files, the import fails with an OSError too.
            from portico.edge.windows.control import Control

            self._control = Control(os.path.join(state_folder(), "control"), commands)
            await self._control.open()
        except OSError as error:
            report(f"`portico servers` cannot reach this process: {error.strerror or error}")

    def _status(self) -> dict[str, Any]:
        about = {"pid": os.getpid(), "url": self._url, "coroutines": len(asyncio.all_tasks())}
        return {**about, **self.upstream.status()}

    def _lost(self, error: McpError) -> None:
        self.failure = error
        self.stop.set()


def _open_log(path: str) -> "Journal":
    from portico.library.observe.journal import open_call_log

    try:
        return open_call_log(path, report)
    except OSError as error:
        raise PorticoError(f"{path} cannot be written: {error.strerror or error}") from None


def _memory() -> "CatalogStore":
    from portico.core.catalog.cache_folder import CacheFolder
    from portico.core.catalog.catalog_store import CatalogStore
    from portico.core.config.paths import cache_folder

    folder = cache_folder()
    return CatalogStore(
        os.path.join(folder, "catalogs"), report=report, disk_cache=CacheFolder(folder)
    )


def _history(key: str | None) -> "History":
    from portico.core.catalog.history import History

    if key is None:
        return History()
    from portico.core.catalog.history_store import default_history_store

    return History(default_history_store(key, report))
