"""The HTTP transport as one ASGI app: both eras at one path, and the old SSE transport."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from inspect import iscoroutinefunction
from time import monotonic
from typing import Any

from portico.http1.connection_cap import ConnectionCap
from portico.http1.memory_budget import MemoryBudget
from portico.model.context import LOCAL, Context
from portico.model.errors import PorticoError, RegistrationError
from portico.model.message import Request
from portico.model.types import Endpoint
from portico.model.version import BY_TEXT
from portico.protocol.ladder import VERSION_HEADER
from portico.transport.asgi import (
    JSON_TYPE,
    ClientPresence,
    Receive,
    Reply,
    Scope,
    Send,
    refusal,
    send_reply,
    send_response,
)
from portico.transport.bodies import BodyReader
from portico.transport.events import Keepalive
from portico.transport.guard import (
    EVENT_STREAM,
    JSON,
    Guard,
    Head,
    accepts_stream,
    answer_type,
)
from portico.transport.http_limits import HttpLimits, HttpLoad
from portico.transport.legacy_http import SESSION_HEADER, LegacyHttp
from portico.transport.posts import Entry, Posts, not_acceptable, session_refusal
from portico.transport.response_writer import AsgiResponseWriter
from portico.transport.sse_endpoint import OldSse

_Route = Callable[[Scope, Head, Receive, Send], Awaitable[None]]

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
        self.target = path.encode()
        """The request target of the endpoint, unless the app is mounted under a prefix."""
        self._probed: float | None = None  # when `/readyz` was last requested
        self.bodies = bodies or MemoryBudget(self.limits.bodies_bytes)
        self.unread = MemoryBudget(self.limits.unread_bytes)
        """The memory budget of unread responses, which only our own server tracks."""
        self.cap = ConnectionCap(self.limits)
        """The connections of our own server."""
        self._bodies = BodyReader(self.limits, self.bodies)
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
            self._routes[place] = _page_route(page)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._not_http(scope, receive, send)
            return
        path = _path_in(scope)
        head = self._guard.admit(scope, is_probe=path in self._open_routes)
        if isinstance(head, Reply):
            await send_reply(send, head)
            return
        route = self._open_routes.get(path)
        if route is None and not self._guard.is_authorized(head):
            # First of all: without the token, a client must not learn which paths exist.
            other = self._guard.other_token(head)
            app = self.app_of(other, path) if other else None
            if app is not None:
                await app(scope, receive, send)
            else:
                await send_reply(send, self._guard.challenge(scope, head))
            return
        route = route or self._routes.get(path)
        if route is not None:
            await route(scope, head, receive, send)
        else:
            await send_reply(send, _NOT_FOUND)

    def set_other_tokens(self, prefix: str) -> None:
        """Leave tokens that begin with this to `app_of`, even if no token is required."""
        self._guard.other_tokens = prefix.encode()

    def app_of(self, token: str, path: str) -> "HttpApp | None":
        """Return the app for the client with this token; None if there is none."""
        return None

    def entry(self, scope: Scope) -> Entry | None:
        """Return what the headers of a POST decide, for a server that starts no task for it; None
        unless all of them are plain."""
        principal, data = self._principal, self._data
        if not isinstance(principal, str) or callable(data):
            return None  # a function of the scope may fail, which only the app reports
        guard = self._guard
        head = guard.admit(scope)
        if isinstance(head, Reply) or not guard.is_authorized(head) or guard.refuse_body(head):
            return None
        length = head.raw.get(b"content-length")
        if length is None or answer_type(head.raw.get(b"accept", b"")) != JSON:
            return None
        return Entry(head, int(length), principal, data)

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

    def _mcp(self, scope: Scope, head: Head, receive: Receive, send: Send) -> Awaitable[None]:
        method = scope["method"]
        if method == "POST":
            return self._release_after(self._post, scope, head, receive, send)
        if method in ("GET", "DELETE"):
            return self._legacy_only(scope, head, receive, send)
        return send_reply(send, _not_allowed(b"GET, POST, DELETE"))

    async def _release_after(
        self, route: _Route, scope: Scope, head: Head, receive: Receive, send: Send
    ) -> None:
        """Serve a request, then release the memory of its body."""
        try:
            await route(scope, head, receive, send)
        finally:
            self._bodies.release(scope)

    async def _post(self, scope: Scope, head: Head, receive: Receive, send: Send) -> None:
        body = self._guard.refuse_body(head) or await self._bodies.read(scope, receive)
        if not isinstance(body, bytes):
            if body is not None:
                await send_reply(send, body, receive)
            return
        principal, data = self._principal_of(scope), self._data_of(scope)
        writer = AsgiResponseWriter(scope, receive, send)
        posted = self.posts.accept(head, body, principal, data, writer)
        del body  # it may be large, and the request has copied its parts
        if posted is None:
            await writer.send_all()
            return
        if isinstance(posted, Reply):
            await send_reply(send, posted)
            return
        message, session = posted.message, posted.session
        context = Context(principal=principal, data=data, headers=head)
        if session is not None:
            await self._legacy.post(session, message, context, writer, send)
        elif isinstance(message, Request) and message.version.modern:
            await send_response(send, await self._endpoint.handle(message, context), 200)
        elif isinstance(message, Request):
            await self._legacy.initialize(message, context, send)

    async def _legacy_only(self, scope: Scope, head: Head, receive: Receive, send: Send) -> None:
        """Serve GET and DELETE, which the modern era does not have."""
        text = head.get(VERSION_HEADER)
        version = None if text is None else BY_TEXT.get(text)
        id = head.raw.get(SESSION_HEADER, b"").strip(b" \t")
        session = self._legacy.sessions.find(id, self._principal_of(scope))
        if version is not None and version.modern:
            await send_reply(send, _not_allowed(b"POST"))
        elif text is not None and version is None:
            await send_reply(send, Reply(400))
        elif session is None:
            await send_reply(send, session_refusal(head))
        elif scope["method"] == "DELETE":
            await self._legacy.delete(session, send)
        elif not accepts_stream(head.raw.get(b"accept", b"")):
            await send_reply(send, not_acceptable(EVENT_STREAM))
        else:
            last_event = head.raw.get(b"last-event-id")
            await self._legacy.get(session, last_event, ClientPresence(scope, receive), send)

    async def _sse_stream(self, scope: Scope, head: Head, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            await send_reply(send, _not_allowed(b"GET"))
        elif not accepts_stream(head.raw.get(b"accept", b"")):
            await send_reply(send, not_acceptable(EVENT_STREAM))
        else:
            url = f"{scope.get('root_path', '')}/messages"
            await self._sse.get(
                url, self._principal_of(scope), ClientPresence(scope, receive), send
            )

    def _sse_message(
        self, scope: Scope, head: Head, receive: Receive, send: Send
    ) -> Awaitable[None]:
        if scope["method"] != "POST":
            return send_reply(send, _not_allowed(b"POST"))
        return self._release_after(self._sse_post, scope, head, receive, send)

    async def _sse_post(self, scope: Scope, head: Head, receive: Receive, send: Send) -> None:
        body = self._guard.refuse_body(head) or await self._bodies.read(scope, receive)
        if not isinstance(body, bytes):
            if body is not None:
                await send_reply(send, body, receive)
            return
        principal = self._principal_of(scope)
        peer = self._sse.find(scope.get("query_string", b""), principal)
        if isinstance(peer, Reply):
            await send_reply(send, peer)
            return
        context = Context(principal=principal, data=self._data_of(scope))
        await self._sse.post(peer, body, context, send)

    async def _health(self, scope: Scope, head: Head, receive: Receive, send: Send) -> None:
        await send_reply(send, _HEALTHY)

    async def _ready(self, scope: Scope, head: Head, receive: Receive, send: Send) -> None:
        self._probed = monotonic()
        await send_reply(send, _DRAINING if self.load.has_notice else _READY)

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
        await send({"type": "lifespan.shutdown.complete"})

    def _principal_of(self, scope: Scope) -> str:
        principal = self._principal
        value = principal if isinstance(principal, str) else principal(scope)
        if not isinstance(value, str):
            raise TypeError(f"principal must be a string, not {type(value).__name__}")
        return value

    def _data_of(self, scope: Scope) -> Any:
        return self._data(scope) if callable(self._data) else self._data


def _page_route(page: Page) -> _Route:
    async def route(scope: Scope, head: Head, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            await send_reply(send, _not_allowed(b"GET"))
            return
        content_type, body = await page()
        await send_reply(send, Reply(200, body, ((b"content-type", content_type),)))

    return route


def _path_in(scope: Scope) -> str:
    """Return the path below our mount prefix."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root) and path[len(root) : len(root) + 1] in ("", "/"):
        return path[len(root) :]
    return path  # not all frameworks repeat the prefix


def _not_allowed(methods: bytes) -> Reply:
    return refusal(405, f"method not allowed: use {methods.decode()}", (b"allow", methods))
