"""A Python `Server` in this process, as a member of a gateway."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any

from msgspec import Struct

from portico.core.catalog.attributed_questions import for_session
from portico.core.config.schema import Config, ToolFilter
from portico.core.documents.names import is_valid_name, valid_name
from portico.core.model.context import Context, Peer
from portico.core.model.errors import PorticoError, TargetError
from portico.core.model.message import Request, Response
from portico.core.model.offer import Offer
from portico.core.model.session import Session
from portico.core.model.types import Answer, Change
from portico.library.chain.core import first_owner
from portico.library.functions.prefixed import functions_of, tools_of
from portico.library.functions.task_mode import TaskMode
from portico.library.server import Server, freeze
from portico.upstream.connections.direct_call import as_mcp_error


class InProcessEntry(Struct, frozen=True, kw_only=True):
    """The entry of a server in this process, beside those of the config."""

    name: str
    server: Server
    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    tools: ToolFilter = ToolFilter()
    problem: str = ""
    trust_hints: bool = True
    is_builtin: bool = False
    """True for names without a prefix, for tools of Portico itself."""


class InProcessServer:
    """A member's provider that calls functions: it has no process and no wire.

    The server's lifespan starts with the gateway, and every call waits for it; a start that failed
    is repeated by the next call or refresh.
    """

    starts = 0

    def __init__(self, name: str, server: Server) -> None:
        self.name = name
        self._server = server
        self._start: asyncio.Task[None] | None = None
        self._running = AsyncExitStack()
        self._is_started = not server.has_lifespan
        self._has_lifespan = server.has_lifespan
        self._calls = 0
        self._providers, source = freeze(server)
        self._owner = first_owner(self._providers)
        for number, provider in enumerate(self._providers):
            functions = functions_of(provider)
            if functions is not None:  # another member may have the same server
                functions.session_scope = f"{name} {number}" if number else name
        self.now = self.offered = source.now
        self.catalog = source.catalog
        self.ready = source.ready
        self.hub = source.hub
        self.published = source.published
        self.on_initialize = source.on_initialize

    def offer(self) -> Offer:
        """Return the current offer."""
        return self.now().offer

    def provide(self, request: Request, context: Context) -> Answer:
        """Call the function that owns the request."""
        within = context.derived()
        within.task_control = context.task_control
        within.server_info = self.now().identity
        session, peer = context.session, context.peer
        if peer is not None and session is not None and session.names_servers:
            within.peer = _NamedPeer(peer, session, self.name)
        if self._has_lifespan:
            return self._provide(request, within)
        return self._owner(request, within)

    async def _provide(self, request: Request, context: Context) -> Response:
        """Call the function once the lifespan has started, and count it until it returns."""
        self._calls += 1
        try:
            if not self._is_started:
                await self._started()
            return await self._owner(request, context)
        except TargetError as error:
            raise as_mcp_error(error) from error
        finally:
            self._calls -= 1

    async def _started(self) -> None:
        """Wait until the lifespan has started; raises TargetError if that fails."""
        if self._start is None or self._start.done():
            self._start = asyncio.create_task(self._enter())
            self._start.add_done_callback(lambda start: start.cancelled() or start.exception())
        start = self._start
        # The start continues if this caller is cancelled: others may wait for it too.
        await asyncio.wait({start})
        if start.cancelled():
            raise TargetError(f"{self.name} was closed", kind="closed", server=self.name)
        error = start.exception()
        if error is not None:
            raise TargetError(str(error), kind="lifespan", server=self.name) from error

    async def _enter(self) -> None:
        await self._running.enter_async_context(self._server.running())
        self._is_started = True

    def task_mode(self, tool: str) -> TaskMode | None:
        """Return how a tool supports tasks."""
        for provider in self._providers:
            found = tools_of(provider).get(tool)
            if found is not None:
                return found.mode
        return None

    @property
    def is_busy(self) -> bool:
        """True while calls use the lifespan."""
        return self._calls > 0

    def watch(self, changed: Callable[[Change], None]) -> None:
        """Call this function for every later change, in the current event loop: a change may come
        from a thread in which a function runs."""
        loop = asyncio.get_running_loop()
        here = threading.get_ident()

        def tell(change: Change) -> None:
            if threading.get_ident() == here:
                changed(change)
            else:
                loop.call_soon_threadsafe(changed, change)

        for provider in self._providers:
            provider.watch(tell)

    async def fetch_catalog(self) -> None:
        """Start the lifespan; the offer is always known. Raises TargetError."""
        if not self._is_started:
            await self._started()

    def status(self) -> dict[str, Any]:
        """Return the state for `portico status`."""
        return {
            "server": self.name,
            "state": "in process",
            "breaker": "closed",
            "held": 0,
            "starts": 0,
            "connections": [],
            "changes": [],
        }

    async def close(self) -> None:
        """Close the lifespan, or interrupt its start."""
        if self._start is not None:
            self._start.cancel()
            await asyncio.wait({self._start})
        await self._running.aclose()


class _NamedPeer:
    """A peer that adds the server's name to every question."""

    def __init__(self, peer: Peer, session: Session, server: str) -> None:
        self._peer = peer
        self._session = session
        self._server = server
        self.notify = peer.notify
        self.closed = peer.closed

    async def ask(self, method: str, params: bytes) -> bytes:
        """Send a question under the server's name."""
        return await self._peer.ask(
            method, for_session(self._session, method, params, self._server)
        )

    async def close_stream(self) -> None:
        """Close the stream, if the client can resume it."""
        close_stream = getattr(self._peer, "close_stream", None)
        if close_stream is not None:
            await close_stream()


def in_process_entries(servers: Mapping[str, Server], config: Config) -> dict[str, InProcessEntry]:
    """Return the entries of servers in this process; raises PorticoError."""
    for name in servers:
        if not is_valid_name(name):
            raise PorticoError(f"invalid member name {name!r}; use {valid_name(name)!r}")
        if name in config.entries:
            kind = "server" if name in config.servers else "component"
            raise PorticoError(f"{name} is a member and a {kind} of {config.path}; rename one")
    return {
        name: InProcessEntry(
            name=name,
            server=server,
            title=str(server.identity.more.get("title", "")),
            description=str(server.identity.more.get("description", "")),
        )
        for name, server in servers.items()
    }
