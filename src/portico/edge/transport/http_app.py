"""The HTTP transport: both eras at one path, and the old SSE transport.

It is written once against the port of `core/http1/port.py`, and served by our own server or by
ASGI.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from inspect import iscoroutinefunction
from time import monotonic
from typing import Any

from portico.core.http1.connection_cap import ConnectionCap
from portico.core.http1.memory_budget import MemoryBudget
from portico.core.http1.port import JSON_TYPE, BodyReceiver, ResponseWriter, Scope
from portico.core.model.context import LOCAL, Context
from portico.core.model.errors import PorticoError, RegistrationError
from portico.core.model.message import Request
from portico.core.model.types import Endpoint
from portico.core.model.version import BY_TEXT
from portico.core.protocol.ladder import VERSION_HEADER
from portico.core.state.background import Background
from portico.core.state.watchdog import ACTIVITY
from portico.edge.transport.asgi import AsgiResponseWriter, Receive, Send
from portico.edge.transport.bodies import IncomingBody
from portico.edge.transport.events import Keepalive
from portico.edge.transport.guard import EVENT_STREAM, Guard, Head, accepts_stream
from portico.edge.transport.http_limits import HttpLimits, HttpLoad
from portico.edge.transport.legacy_http import SESSION_HEADER, LegacyHttp
from portico.edge.transport.posts import Posts, not_acceptable, session_refusal
from portico.edge.transport.reply import Reply, refusal, send_response
from portico.edge.transport.sse_endpoint import OldSse

_Route = Callable[[Scope, Head, ResponseWriter], BodyReceiver | None]

Page = Callable[[], Awaitable[tuple[bytes, bytes]]]
"""Returns the content type and the body of a page."""

_NOT_FOUND = Reply(404, b'{"error":"not found"}', (JSON_TYPE,))
_HEALTHY = Reply(200, b'{"status":"ok"}', (JSON_TYPE,))
_READY = Reply(200, b'{"status":"ready"}', (JSON_TYPE,))
_DRAINING = Reply(503, b'{"status":"draining"}', (JSON_TYPE,))
_GRACE_S = 1.0  # for cancelled calls to send their responses
_PROBE_S = 60.0
"""A load balancer that probes does so at least this often."""


class HttpApp:
    """A bare ASGI callable: mount it in any framework, under any prefix, as often as you like."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        limits: HttpLimits | None = None,
        token: str | None = None,
        token_place: str = "",
        hosts: Iterable[str] | None = (),
        origins: Iterable[str] | None = (),
        principal: str | Callable[[Scope], str] = LOCAL,
        data: Any = None,
        path: str = "/mcp",
        sse: bool = True,
        pages: Mapping[str, Page] | None = None,
        bodies: MemoryBudget | None = None,
        running: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
    ) -> None:
        """Serve an endpoint.

        `hosts` are allowed besides loopback, None allows any; `origins` besides those of the
        hosts, None allows any. `principal` and `data` are values, or functions of the ASGI scope.
        `pages`, by path, require the token, and `token_place` is where to find it.
        `bodies` is the memory budget for bodies, if several apps share it. `running` returns a
        context that is entered when the ASGI server starts, and exited when it has stopped.
        """
        self.limits = limits or HttpLimits()
        self._guard = Guard(
            self.limits, token=token, token_place=token_place, hosts=hosts, origins=origins
        )
        self._endpoint = endpoint
        self._running = running
        for name, given in (("principal", principal), ("data", data)):
            if iscoroutinefunction(given):
                raise RegistrationError(f"{name} must be a plain function of the scope, not async")
        self._principal = principal
        self._data = data
        self.path = path
        self._probed: float | None = None  # when `/readyz` was last requested
        self.bodies = bodies or MemoryBudget(self.limits.bodies_bytes)
        self._tasks = Background()
        self._serve_post, self._serve_sse_post = self._post, self._sse_post  # bound once
        self.unread = MemoryBudget(self.limits.unread_bytes)
        """The memory budget of unread responses, which only our own server tracks."""
        self.cap = ConnectionCap(self.limits)
        """The connections of our own server."""
        self.load = HttpLoad(self.limits)
        keepalive = Keepalive(self.limits.quiet_s)
        self._legacy = LegacyHttp(endpoint, self.limits, self.load, keepalive)
        self.posts = Posts(endpoint, self.load, keepalive, self._legacy)
        self._sse = OldSse(endpoint, self.limits, self.load, keepalive)
        self._open_routes: dict[str, _Route] = {"/healthz": self._health, "/readyz": self._ready}
        # With and without a trailing slash; for "/", the latter is a request for the mount prefix.
        self._routes: dict[str, _Route] = {path: self._mcp, path.rstrip("/"): self._mcp}
        self._routes[f"{path.rstrip('/')}/"] = self._mcp
        if sse:
            self._routes |= {"/sse": self._sse_stream, "/messages": self._sse_message}
        for place, page in (pages or {}).items():
            self._routes[place] = self._page_route(page)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "http":
            await AsgiResponseWriter(scope, receive, send).serve(self, self.limits.body_s)
        else:
            await self._not_http(scope, receive, send)

    def respond(self, scope: Scope, writer: ResponseWriter) -> BodyReceiver | None:
        """Respond to a request, or return what receives its body first."""
        if ACTIVITY.is_quiet:
            ACTIVITY.note()
        path = _path_in(scope)
        head = self._guard.admit(scope, is_probe=path in self._open_routes)
        if isinstance(head, Reply):
            head.send(writer)
            return None
        route = self._open_routes.get(path)
        if route is None and not self._guard.is_authorized(head):
            # First of all: without the token, a client must not learn which paths exist.
            other = self._guard.other_token(head)
            app = self.app_of(other, path) if other else None
            if app is not None:
                return app.respond(scope, writer)
            self._guard.challenge(scope, head).send(writer)
            return None
        route = route or self._routes.get(path)
        if route is not None:
            return route(scope, head, writer)
        _NOT_FOUND.send(writer)
        return None

    def set_other_tokens(self, prefix: str) -> None:
        """Leave tokens that begin with this to `app_of`, even if no token is required."""
        self._guard.other_tokens = prefix.encode()

    def app_of(self, token: str, path: str) -> "HttpApp | None":
        """Return the app for the client with this token; None if there is none."""
        return None

    @property
    def is_probed(self) -> bool:
        """True if `/readyz` was requested within the last minute: a load balancer uses it."""
        return self._probed is not None and monotonic() - self._probed < _PROBE_S

    def begin_notice(self) -> None:
        """Report not ready and keep serving, so that load balancers send new requests elsewhere."""
        self.load.has_notice = True

    def begin_drain(self) -> None:
        """Report not ready, refuse new requests and end open-ended streams."""
        self.load.begin_drain()
        self._legacy.sessions.drain()

    async def drain(self, within_s: float) -> None:
        """Let calls finish within this time, then cancel the rest and answer them with an error."""
        self.begin_drain()
        if not await self.load.wait_idle(within_s):
            self.load.timed_out = True
            for task in tuple(self.load.tasks):
                task.cancel()
            self._legacy.cancel_all()
            self._sse.cancel_all()
            await self.load.wait_idle(_GRACE_S)
        self._legacy.sessions.close()

    async def close(self) -> None:
        """Cancel the requests that are left."""
        await self._tasks.close()

    def _mcp(self, scope: Scope, head: Head, writer: ResponseWriter) -> BodyReceiver | None:
        method = scope["method"]
        if method == "POST":
            return self._receive(scope, head, writer, self._serve_post)
        if method in ("GET", "DELETE"):
            self._legacy_only(scope, head, writer)
        else:
            _not_allowed(b"GET, POST, DELETE").send(writer)
        return None

    def _receive(
        self,
        scope: Scope,
        head: Head,
        writer: ResponseWriter,
        serve: Callable[[IncomingBody], None],
    ) -> BodyReceiver | None:
        """Return what receives the body, unless the headers rule it out."""
        refused = self._guard.refuse_body(head)
        if refused is None:
            return IncomingBody(scope, head, writer, serve, self.limits, self.bodies)
        refused.send(writer)
        return None

    def _post(self, body: IncomingBody) -> None:
        principal, data = self._principal_of(body.scope), self._data_of(body.scope)
        posted = self.posts.accept(body, principal, data)
        if posted is None:
            return
        if isinstance(posted, Reply):
            posted.send(body.writer)
            body.release()
            return
        message, session = posted.message, posted.session
        context = Context(principal=principal, data=data, headers=body.head)
        if session is not None:
            work = self._legacy.post(session, message, context, body)
        else:
            assert isinstance(message, Request)
            respond = self._notify if message.version.modern else self._legacy.initialize
            work = respond(message, context, body.writer)
        if work is not None:
            self._run(work, body.writer, body)

    async def _notify(self, message: Request, context: Context, writer: ResponseWriter) -> None:
        send_response(writer, await self._endpoint.handle(message, context), 200)

    def _run(
        self,
        work: Coroutine[Any, Any, None],
        writer: ResponseWriter,
        body: IncomingBody | None = None,
    ) -> None:
        """Let a task respond."""

        def ended(task: "asyncio.Task[None]") -> None:
            if body is not None:
                body.release()
            if not task.cancelled() and (error := task.exception()) is not None:
                writer.fail(error)

        self._tasks.start(work).add_done_callback(ended)

    def _legacy_only(self, scope: Scope, head: Head, writer: ResponseWriter) -> None:
        """Serve GET and DELETE, which the modern era does not have."""
        text = head.get(VERSION_HEADER)
        version = None if text is None else BY_TEXT.get(text)
        id = head.raw.get(SESSION_HEADER, b"").strip(b" \t")
        session = self._legacy.sessions.find(id, self._principal_of(scope))
        if version is not None and version.modern:
            _not_allowed(b"POST").send(writer)
        elif text is not None and version is None:
            Reply(400).send(writer)
        elif session is None:
            session_refusal(head).send(writer)
        elif scope["method"] == "DELETE":
            self._legacy.delete(session, writer)
        elif not accepts_stream(head.raw.get(b"accept", b"")):
            not_acceptable(EVENT_STREAM).send(writer)
        else:
            self._run(self._legacy.get(session, head.raw.get(b"last-event-id"), writer), writer)

    def _sse_stream(self, scope: Scope, head: Head, writer: ResponseWriter) -> None:
        if scope["method"] != "GET":
            _not_allowed(b"GET").send(writer)
        elif not accepts_stream(head.raw.get(b"accept", b"")):
            not_acceptable(EVENT_STREAM).send(writer)
        else:
            url = f"{scope.get('root_path', '')}/messages"
            self._run(self._sse.get(url, self._principal_of(scope), writer), writer)

    def _sse_message(self, scope: Scope, head: Head, writer: ResponseWriter) -> BodyReceiver | None:
        if scope["method"] == "POST":
            return self._receive(scope, head, writer, self._serve_sse_post)
        _not_allowed(b"POST").send(writer)
        return None

    def _sse_post(self, body: IncomingBody) -> None:
        scope, writer = body.scope, body.writer
        principal = self._principal_of(scope)
        peer = self._sse.find(scope.get("query_string", b""), principal)
        if isinstance(peer, Reply):
            peer.send(writer)
            body.release()
            return
        context = Context(principal=principal, data=self._data_of(scope))
        self._run(self._sse.post(peer, body.take(), context, writer), writer, body)

    def _health(self, scope: Scope, head: Head, writer: ResponseWriter) -> None:
        _HEALTHY.send(writer)

    def _ready(self, scope: Scope, head: Head, writer: ResponseWriter) -> None:
        self._probed = monotonic()
        (_DRAINING if self.load.has_notice else _READY).send(writer)

    def _page_route(self, page: Page) -> _Route:
        async def respond(writer: ResponseWriter) -> None:
            content_type, body = await page()
            Reply(200, body, ((b"content-type", content_type),)).send(writer)

        def route(scope: Scope, head: Head, writer: ResponseWriter) -> None:
            if scope["method"] == "GET":
                self._run(respond(writer), writer)
            else:
                _not_allowed(b"GET").send(writer)

        return route

    async def _not_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close"})
        else:
            raise ValueError(f"unsupported ASGI scope type: {scope['type']!r}")

    async def _live(self, receive: Receive, send: Send) -> None:
        """Start, wait for the shutdown of the ASGI server, and drain."""
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._running())
            except PorticoError as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            if self.load.draining:
                self.load.reopen()  # a test client, or a reload, starts the same app again
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self.drain(0)
            await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _principal_of(self, scope: Scope) -> str:
        principal = self._principal
        value = principal if isinstance(principal, str) else principal(scope)
        if not isinstance(value, str):
            raise TypeError(f"principal must be a string, not {type(value).__name__}")
        return value

    def _data_of(self, scope: Scope) -> Any:
        return self._data(scope) if callable(self._data) else self._data


def _path_in(scope: Scope) -> str:
    """Return the path below our mount prefix."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
        return path[len(root) :]
    return path  # not all frameworks repeat the prefix


def _not_allowed(methods: bytes) -> Reply:
    return refusal(405, f"method not allowed: use {methods.decode()}", (b"allow", methods))
