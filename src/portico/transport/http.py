"""The HTTP edge as one ASGI app: both eras on one endpoint, the old SSE transport beside it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from portico.model.context import LOCAL, Context
from portico.model.errors import PARSE_ERROR
from portico.model.message import Request
from portico.model.version import BY_TEXT
from portico.protocol.inbound import Answer, Inbound, Refused, read
from portico.protocol.ladder import VERSION_HEADER
from portico.transport.asgi import (
    JSON,
    Receive,
    Reply,
    Scope,
    Send,
    declared_too_large,
    read_body,
    refusal,
    send_reply,
    send_response,
)
from portico.transport.connection import Endpoint
from portico.transport.guard import Guard, Head, accepts, is_json
from portico.transport.legacy import SESSION_HEADER, Legacy, missing_or_gone
from portico.transport.limits import Limits, Load
from portico.transport.modern import Modern
from portico.transport.sessions import HttpSession
from portico.transport.sse import OldSse

_Route = Callable[[Scope, Head, Receive, Send], Awaitable[None]]

_STREAM = (b"text/event-stream",)
_EITHER = (b"application/json", b"text/event-stream")
_SESSION = SESSION_HEADER.decode()
_NOT_FOUND = Reply(404, b'{"error":"not found"}', (JSON,))
_HEALTHY = Reply(200, b'{"status":"ok"}', (JSON,))
_READY = Reply(200, b'{"status":"ready"}', (JSON,))
_DRAINING = Reply(503, b'{"status":"draining"}', (JSON,))
_BARE_400 = Reply(400)
_ANSWERS_NOTHING = refusal(400, "there is no session whose questions this could answer")


class HttpApp:
    """A bare ASGI callable: mount it in any framework, under any prefix, as often as you like."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        limits: Limits | None = None,
        token: str | None = None,
        hosts: Iterable[str] | None = (),
        origins: Iterable[str] | None = (),
        principal: str | Callable[[Scope], str] = LOCAL,
        data: Any = None,
        path: str = "/mcp",
        sse: bool = True,
    ) -> None:
        """Serve an endpoint.

        `hosts` are allowed besides loopback, None allows any; `origins` besides those of the
        hosts, None allows any. `principal` and `data` are values, or functions of the ASGI scope.
        """
        self.limits = limits or Limits()
        self._guard = Guard(self.limits, token=token, hosts=hosts, origins=origins)
        self._principal = principal
        self._data = data
        self._load = Load(self.limits)
        self._modern = Modern(endpoint, self.limits, self._load)
        self._legacy = Legacy(endpoint, self.limits, self._load)
        self._sse = OldSse(endpoint, self.limits, self._load)
        self._open_routes: dict[str, _Route] = {"/healthz": self._health, "/readyz": self._ready}
        self._routes: dict[str, _Route] = {path: self._mcp}
        if path == "/":
            self._routes[""] = self._mcp  # a mount asked for by its very prefix
        if sse:
            self._routes |= {"/sse": self._sse_stream, "/messages": self._sse_message}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await _not_http(scope, receive, send)
            return
        head = self._guard.admit(scope)
        if isinstance(head, Reply):
            await send_reply(send, head)
            return
        path = _path_in(scope)
        route = self._routes.get(path)
        if route is not None:
            refused = self._guard.unlock(head)
            if refused is None:
                await route(scope, head, receive, send)
            else:
                await send_reply(send, refused)
            return
        route = self._open_routes.get(path)
        if route is not None:
            await route(scope, head, receive, send)
        else:
            await send_reply(send, _NOT_FOUND)

    def begin_drain(self) -> None:
        """Take no new work: not ready, new requests refused, open-ended streams ended."""
        self._load.begin_drain()
        self._legacy.sessions.drain()

    async def drain(self, within_s: float) -> None:
        """Let what is under way finish for so long, then cancel it and tell its askers so."""
        self.begin_drain()
        if not await self._load.idle(within_s):
            self._load.gave_up = True
            for task in tuple(self._load.tasks):
                task.cancel()
            self._legacy.cancel_all()
            self._sse.cancel_all()
            await self._load.idle(_GRACE_S)
        self._legacy.sessions.close()

    async def _mcp(self, scope: Scope, head: Head, receive: Receive, send: Send) -> None:
        method = scope["method"]
        if method == "POST":
            await self._post(scope, head, receive, send)
        elif method in ("GET", "DELETE"):
            await self._legacy_only(scope, head, receive, send)
        else:
            await send_reply(send, _not_allowed(b"GET, POST, DELETE"))

    async def _post(self, scope: Scope, head: Head, receive: Receive, send: Send) -> None:
        body = await self._body(head, receive)
        if not isinstance(body, bytes):
            if body is not None:
                await send_reply(send, body, receive)
            return
        principal = self._principal_of(scope)
        mirrored = head.mirrored
        id = mirrored.get(_SESSION)
        session = None
        if id is not None:
            session = self._legacy.sessions.find(id.encode("ascii", "replace"), principal)
        inbound = read(body, None if session is None else session.version, mirrored)
        if type(inbound) is Request:
            if inbound.id and not accepts(head.known.get(b"accept", b""), _EITHER):
                await send_reply(send, _not_acceptable(_EITHER))
                return
            context = Context(principal=principal, data=self._data_of(scope), headers=mirrored)
            if inbound.version.modern:
                await self._modern.serve(inbound, context, receive, send)
                return
            if inbound.method == "initialize" and session is None:
                await self._legacy.initialize(inbound, context, send)
                return
        refused = self._refused(inbound, session, mirrored)
        if refused is not None:
            await send_reply(send, refused)
            return
        ...

    async def _legacy_only(self, scope: Scope, head: Head, receive: Receive, send: Send) -> None: ...
