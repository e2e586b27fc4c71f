"""`Server`, the library's main class: definitions and functions in, one pure `handle` out."""

import logging
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack
from weakref import WeakSet

import msgspec

from portico.core.catalog.catalog import Catalog, Identity
from portico.core.catalog.merge import merge
from portico.core.model.context import LOCAL, Context
from portico.core.model.defaults import DRAIN_S, NOTICE_S
from portico.core.model.errors import INVALID_REQUEST, PARSE_ERROR, RegistrationError
from portico.core.model.message import NOTHING, Request, Response
from portico.core.model.types import Change, Link, Provider
from portico.core.model.version import LATEST_LEGACY
from portico.core.protocol.codec import error_response
from portico.core.protocol.inbound import RefusedMessage, read
from portico.core.state.client_sessions import ClientSessions
from portico.core.state.hub import ChangeHub
from portico.core.state.report import failed
from portico.library.chain.core import SingleCatalog
from portico.library.chain.endpoint import ChainEndpoint
from portico.library.functions.functions import FunctionProvider
from portico.library.functions.prefixed import PrefixedProvider, functions_of, lifespan_of
from portico.library.functions.registration import Registration
from portico.library.functions.rounds import KEY_SIZE, Rounds

if TYPE_CHECKING:
    from portico.core.http1.port import Scope
    from portico.edge.client.memory_answers import Elicit, Roots, Sample
    from portico.edge.client.memory_client import MemoryClient
    from portico.edge.transport.http_app import HttpApp, Page
    from portico.edge.transport.http_limits import HttpLimits
    from portico.library.functions.lifespan import Lifespan, LifespanFunction
    from portico.library.tasks.mcp.server_tasks import ServerPolicy
    from portico.library.tasks.mcp.task_host import TaskHost
    from portico.library.tasks.store.store import TaskStore

log = logging.getLogger("portico")

Message = bytes | bytearray | memoryview | str | dict[str, Any]
"""One message as an embedder has it."""

_is_loading: ContextVar[bool] = ContextVar("is_loading", default=False)
_CANCEL_S = 1.0
"""How long cancelled handlers may take to end."""
_KINDS = ("tools", "resources", "prompts", "completions")


class Server(Registration):
    """An MCP server: tools, resources and prompts, answered by functions."""

    def __init__(
        self,
        name: str,
        version: str = "0.0.0",
        *,
        title: str | None = None,
        description: str | None = None,
        instructions: str = "",
        website: str | None = None,
        icons: Sequence[Mapping[str, Any]] = (),
        extensions: Mapping[str, Any] | None = None,
        capabilities: Iterable[str] = (),
        page_size: int = 0,
        ttl_ms: int = 0,
        cache_scope: str = "private",
        call_timeout_s: float | None = None,
        state_key: bytes | None = None,
        lifespan: "LifespanFunction | None" = None,
        tasks: "TaskStore | str | os.PathLike[str] | None" = None,
        sessions: str | os.PathLike[str] | None = None,
    ) -> None:
        """Name and version are shown to clients; everything else has a sensible default.

        `call_timeout_s` limits how long a handler may run; there is no limit by default.
        `state_key` seals the state of questions that span rounds; replicas of one server must
        share it, and a single process generates its own.
        `lifespan` takes this server and returns an async context manager, which is entered before
        the first request and exited after the last one; its value is `context.lifespan`.
        `tasks` is the store of tasks, or a folder for it; without one, they are kept in memory.
        `sessions` is the folder of the values of `context.store`; without one, `portico run` keeps
        them in the folder of its state, and a program of your own in memory.
        """
        declared = _declared(capabilities)
        _check_paging(page_size, ttl_ms, cache_scope)
        if call_timeout_s is not None and not call_timeout_s > 0:
            why = f"call_timeout_s must be more than 0, not {call_timeout_s}"
            raise RegistrationError(f"{why}; use None for no limit")
        self.identity = Identity(
            name=name,
            version=version,
            more=_descriptive_fields(title, description, website, icons),
            instructions=instructions,
            extensions=extensions or {},
            ttl_ms=ttl_ms,
            cache_scope=cache_scope,
            page_size=page_size,
        )
        self._state_key = os.urandom(KEY_SIZE) if state_key is None else state_key
        rounds = Rounds(self._state_key)
        functions = FunctionProvider(name, rounds=rounds, report=failed)
        functions.capabilities = declared
        functions.call_timeout_s = call_timeout_s
        functions.cache = (ttl_ms, cache_scope)
        if sessions is not None:
            folder = os.path.abspath(sessions)
            functions.sessions = ClientSessions(lambda: folder)
        if lifespan is not None:
            from portico.library.functions.lifespan import Lifespan

            functions.lifespan = Lifespan(name, lifespan, self)
        super().__init__(functions)
        self._providers: list[Provider] = [functions]
        self._task_store = tasks
        self._tasks: ServerPolicy | None = None
        self._endpoints: WeakSet[ChainEndpoint] = WeakSet()
        self._hub = ChangeHub()
        self._source = SingleCatalog(self._build_catalog, self._hub)
        self._included_in = ""
        self._default: ChainEndpoint | None = None
        functions.watch(self._changed)

    @property
    def name(self) -> str:
        """The name shown to clients."""
        return self.identity.name

    def rename(self, name: str) -> None:
        """Show clients another name from now on."""
        self.identity = msgspec.structs.replace(self.identity, name=name)
        self._source.changes += 1

    @classmethod
    def compose(cls, name: str, *servers: "Server | Provider", version: str = "0.0.0") -> "Server":
        """Combine several servers into one, in this order."""
        composed = cls(name, version)
        for server in servers:
            composed.include(server)
        return composed

    def include(self, other: "Server | Provider", *, prefix: str = "") -> None:
        """Add the offer of another server or provider; a name that both own is an error. With a
        prefix such as `calc`, its tools and prompts are named `calc__add`; URIs stay."""
        if self._default is not None:
            raise RegistrationError("cannot include: the chain is frozen; include before serving")
        if self._included_in:
            why = f"{self.name!r} is already included in {self._included_in!r}"
            raise RegistrationError(f"{why}; include servers in it first")
        if not isinstance(other, Server) and not hasattr(other, "provide"):
            raise RegistrationError(f"{other!r} is neither a server nor a provider")
        added = list(other._providers) if isinstance(other, Server) else [other]
        if prefix:
            added = [PrefixedProvider(provider, prefix) for provider in added]
        _, clashes = merge((p.name, p.offer()) for p in (*self._providers, *added))
        if clashes:
            raise RegistrationError("; ".join(map(str, clashes)))
        for provider in added:
            self._keep_sessions_apart(provider)
            self._providers.append(provider)
            provider.watch(self._changed)
        if isinstance(other, Server):
            other._included_in = self.name
        self._source.changes += 1

    def _keep_sessions_apart(self, added: Provider) -> None:
        """Number the scope of a provider whose name another one has: they share no values."""
        functions = functions_of(added)
        if functions is not None:
            others = map(functions_of, self._providers)
            taken = {other.session_scope for other in others if other is not None}
            scopes = (f"{functions.name} {number}" for number in count(2))
            while functions.session_scope in taken:
                functions.session_scope = next(scopes)

    def catalog(self) -> Catalog:
        """Return the current catalog."""
        return self._source.now()

    def _build_catalog(self, number: int) -> Catalog:
        offer, clashes = merge((p.name, p.offer()) for p in self._providers)
        for clash in clashes:
            log.warning("%s; the second is hidden", clash)
        return Catalog(offer, self.identity, number=number)

    def _freeze(self) -> Sequence[Provider]:
        """Return the providers; none can be added from now on."""
        self._default = self._default or self.endpoint()
        return tuple(self._providers)

    def endpoint(self, links: Sequence[Link] = ()) -> ChainEndpoint:
        """Create an endpoint of this server behind its own links; there may be several. Raises
        NameClash if a link adds a name that the server has."""
        endpoint = ChainEndpoint(
            self._source, self._providers, links, failed, state_key=self._state_key
        )
        endpoint.check_names()
        self._endpoints.add(endpoint)
        self._enable_tasks()
        if self._default is None:
            self._default = endpoint if not links else self.endpoint()
        return endpoint

    def _enable_tasks(self) -> None:
        """Let calls become tasks at all endpoints, once a tool supports them."""
        if not any("tasks" in provider.offer().declared for provider in self._providers):
            return
        if self._tasks is None:
            from portico.library.tasks.mcp.server_tasks import ServerPolicy

            self._tasks = ServerPolicy(self.name, self._providers, self._task_store)
        for endpoint in tuple(self._endpoints):
            if not endpoint.has_tasks:
                endpoint.use_tasks(self._tasks.link())
        self._tasks.update_required()

    @property
    def task_host(self) -> "TaskHost":
        """The worker of its tasks; RuntimeError if no tool supports tasks."""
        if self._tasks is None:
            raise RuntimeError("no tool of this server supports tasks; add one with task=True")
        return self._tasks.host

    def supply_result(self, task_id: str, value: Any) -> bool:
        """Pass a result, or an exception, to the handler that waits for it with
        `context.task.supplied_result()`; False if none does. May be called from any thread."""
        from portico.library.tasks.mcp.task_call import RESULT_INBOX

        return RESULT_INBOX.supply(task_id, value)

    async def handle(self, request: Request | Message, context: Context | None = None) -> Response:
        """Answer one message: no I/O, so it fits any web framework, Lambda or test."""
        context = context or Context()
        if context.headers:
            context.headers = {name.lower(): value for name, value in context.headers.items()}
        endpoint = self._default or self.endpoint()
        if not isinstance(request, Request):
            try:
                raw = _bytes_of(request)
            except (TypeError, ValueError, RecursionError) as error:
                why = f"cannot encode the message as JSON: {error}"
                return error_response(b"", PARSE_ERROR, why)
            inbound = read(raw, _assumed_version(context), context.headers)
            if isinstance(inbound, RefusedMessage):
                return NOTHING if inbound.is_notification else inbound.response
            if not isinstance(inbound, Request):
                return (
                    error_response(b"", INVALID_REQUEST, "cannot handle a batch; pass one message")
                    if isinstance(inbound, list)
                    else NOTHING
                )
            request = inbound
        return await endpoint.handle(request, context)

    @property
    def has_lifespan(self) -> bool:
        """True if this server, or one that it includes, has a lifespan."""
        return bool(self._lifespans())

    @property
    def must_run(self) -> bool:
        """True if it has something to start or to end: a lifespan, or tasks."""
        return self.has_lifespan or self._tasks is not None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Server", None]:
        """Enter the lifespans of this server and of those that it includes, in order; on exit,
        close them in reverse order. Raises StartError.

        Each lifespan runs once, even if this is entered several times.
        """
        async with AsyncExitStack() as stack:
            for lifespan in self._lifespans():
                await stack.enter_async_context(lifespan.entered())
            if self._tasks is not None:
                await stack.enter_async_context(self._tasks.running())
            yield self

    def _lifespans(self) -> "list[Lifespan]":
        found = map(lifespan_of, self._providers)
        return [lifespan for lifespan in found if lifespan is not None]

    def run(
        self,
        *,
        http: str | int | None = None,
        links: Sequence[Link] = (),
        auth: str = "token",
        hosts: Sequence[str] = (),
        token_file: str | None = None,
        drain_s: float = DRAIN_S,
        drain_notice_s: float = NOTICE_S,
    ) -> None:
        """Serve over stdio until the client disconnects, or over HTTP at `[HOST:]PORT` until
        SIGTERM arrives, as `portico run` does for a file.

        The other options are those of that command; all but `links` and `drain_s` are for HTTP. A
        failure is printed, and ends the program with its exit code (SystemExit).
        """
        if _is_loading.get():
            how = 'put it under `if __name__ == "__main__":`'
            raise RegistrationError(f"server.run() was called while its file is loaded; {how}")
        options = {
            "auth": auth,
            "hosts": hosts,
            "token_file": token_file,
            "drain_s": drain_s,
            "drain_notice_s": drain_notice_s,
        }
        # By name: the command line imports this module, not the other way round.
        run_server = import_module("portico.commands.cli.serve_server").run_server
        code: int = run_server(self, None if http is None else str(http), tuple(links), options)
        if code:
            raise SystemExit(code)

    @asynccontextmanager
    async def test_client(
        self,
        *,
        era: Literal["modern", "legacy"] = "modern",
        links: Sequence[Link] = (),
        elicit: "Elicit | None" = None,
        sample: "Sample | None" = None,
        roots: "Roots | None" = None,
        log_level: str = "debug",
        principal: str = LOCAL,
        data: Any = None,
    ) -> "AsyncGenerator[MemoryClient, None]":
        """Start the lifespan, and connect a client in this process over the real protocol.

        `elicit`, `sample` and `roots` answer the questions of handlers; `principal` and `data` are
        for their context.
        """
        from portico.edge.client.memory_client import memory_client
        from portico.edge.transport.client_connection import Connection
        from portico.upstream.wires.memory_wire import MemoryAddress

        if era not in ("modern", "legacy"):
            raise ValueError(f"era must be modern or legacy, not {era!r}")
        endpoint = self.endpoint(links)
        connections: list[Connection] = []

        def connect(send: Callable[[bytes], object]) -> Connection:
            connections.append(Connection(endpoint, send, principal=principal, data=data))
            return connections[-1]

        async with self.running():
            address = MemoryAddress(connect, self.name)
            try:
                async with memory_client(
                    address, era=era, elicit=elicit, sample=sample, roots=roots, log_level=log_level
                ) as client:
                    yield client
            finally:
                for connection in connections:
                    await connection.drain(_CANCEL_S)  # cancelled handlers may use the lifespan

    def asgi(self, links: Sequence[Link] = (), **options: Unpack["AsgiOptions"]) -> "HttpApp":
        """Return this server as an ASGI app, to mount in any web framework."""
        from portico.edge.transport.http_app import HttpApp

        return HttpApp(self.endpoint(links), running=self.running, **options)

    def resource_updated(self, uri: str) -> None:
        """Notify the subscribers of a resource that it has changed."""
        self._functions.changed("resources", uri)

    def _changed(self, change: Change) -> None:
        if not change.uri:
            self._source.changes += 1
            if change.kind == "tools" and self._endpoints:
                self._enable_tasks()
        self._hub.publish(change)


class AsgiOptions(TypedDict, total=False):
    """The options of an ASGI app."""

    limits: "HttpLimits | None"
    token: str | None
    """The bearer token that clients must send; None requires none."""
    hosts: Iterable[str] | None
    """The hosts to allow besides loopback; None allows any."""
    origins: Iterable[str] | None
    """The origins to allow besides those of the hosts; None allows any."""
    principal: "str | Callable[[Scope], str]"
    """The principal of all clients, or a function of the ASGI scope."""
    data: Any
    """The `data` of each context, or a function of the ASGI scope."""
    path: str
    sse: bool
    """False leaves out the transport of 2024-11-05."""
    pages: "Mapping[str, Page] | None"
    """Further pages by their paths, which require the token."""


@contextmanager
def loading() -> Iterator[None]:
    """Mark the time in which a component's file is loaded, and no server may run."""
    token = _is_loading.set(True)
    try:
        yield
    finally:
        _is_loading.reset(token)


def freeze(server: Server) -> tuple[Sequence[Provider], SingleCatalog]:
    """Freeze a server; returns its providers and the source of its catalog."""
    return server._freeze(), server._source


def _assumed_version(context: Context) -> Any:
    if context.session is not None:
        return context.session.version
    return context.version or LATEST_LEGACY


def _bytes_of(message: Message) -> bytes:
    if isinstance(message, bytes):
        return message
    if isinstance(message, str):
        # A lone surrogate makes bytes that are not UTF-8, which the parser rejects.
        return message.encode(errors="surrogatepass")
    return msgspec.json.encode(message) if isinstance(message, dict) else bytes(message)


def _descriptive_fields(
    title: str | None,
    description: str | None,
    website: str | None,
    icons: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    fields = {"title": title, "description": description, "websiteUrl": website}
    fields = {key: value for key, value in fields.items() if value is not None}
    return {**fields, "icons": list(icons)} if icons else fields


def _declared(capabilities: Iterable[str]) -> frozenset[str]:
    declared = frozenset([capabilities] if isinstance(capabilities, str) else capabilities)
    if unknown := declared.difference(_KINDS):
        named = ", ".join(sorted(map(repr, unknown)))
        raise RegistrationError(f"capabilities may be {', '.join(_KINDS)}, not {named}")
    return declared


def _check_paging(page_size: int, ttl_ms: int, cache_scope: str) -> None:
    """Reject values that clients could not use."""
    if page_size < 0 or ttl_ms < 0:
        name, value = ("page_size", page_size) if page_size < 0 else ("ttl_ms", ttl_ms)
        raise RegistrationError(f"{name} must be at least 0, not {value}")
    if cache_scope not in ("public", "private"):
        raise RegistrationError(f"cache_scope must be public or private, not {cache_scope!r}")
