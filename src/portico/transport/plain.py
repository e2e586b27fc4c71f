"""Plain requests over HTTP, served straight from and to their connection without ASGI's messages.

What the headers decide is decided once for all requests that have the very same ones. Whatever is
not plain goes the usual way, where every refusal has its place.
"""

from typing import Any

from msgspec import Struct

from portico.model.context import Context
from portico.model.message import Request
from portico.protocol.inbound import read
from portico.protocol.ladder import METHOD_HEADER
from portico.protocol.methods import TABLE, Kind
from portico.transport.asgi import Reply, Scope
from portico.transport.connection import Endpoint, Express
from portico.transport.events import Pulse
from portico.transport.guard import JSON, Guard, Head, answer_type
from portico.transport.legacy import SESSION_HEADER, Legacy
from portico.transport.limits import Load
from portico.transport.sessioncall import SessionCall
from portico.transport.sessions import HttpSession
from portico.transport.swift import Line, Swift

_METHOD = METHOD_HEADER.encode()
_LIST = b'/list"'


class Entry(Struct, frozen=True):
    """The headers of a plain request, and what they decide."""

    head: Head
    length: int
    """How long its body is."""
    session: bytes
    """The id of its session; empty if it names none."""


Asked = tuple[Request, HttpSession | None]
"""A request, and its session if it is a legacy one."""


class Plain:
    """Knows plain requests of one app, and serves them."""

    def __init__(
        self,
        endpoint: Endpoint,
        guard: Guard,
        load: Load,
        pulse: Pulse,
        legacy: Legacy,
        principal: object,
        data: Any,
    ) -> None:
        self._endpoint = endpoint
        self._express: Express | None = getattr(endpoint, "express", None)
        self._guard = guard
        self._load = load
        self._pulse = pulse
        self._legacy = legacy
        # A function of the scope is for the app to call, which can say that it failed.
        self._principal = principal if isinstance(principal, str) and not callable(data) else None
        self._data = data
        kinds = (Kind.STATIC,) if self._express is None else (Kind.STATIC, Kind.CALL)
        self._methods = frozenset(
            method.encode()
            for (method, version), meaning in TABLE.items()
            if version.modern and meaning.kind in kinds
        )

    def entry(self, scope: Scope) -> Entry | None:
        """What a POST's headers decide; None unless all of them are plain."""
        head = self._guard.admit(scope) if self._principal is not None else None
        if head is None or isinstance(head, Reply) or not self._guard.unlocks(head):
            return None
        raw = head.raw
        length = raw.get(b"content-length")
        session = head.get(SESSION_HEADER.decode(), "")
        if length is None or (not session and raw.get(_METHOD) not in self._methods):
            return None
        if self._guard.unwanted(head) or answer_type(raw.get(b"accept", b"")) != JSON:
            return None
        return Entry(head, int(length), session.encode("ascii", "replace"))

    def read(self, entry: Entry, body: bytes) -> Asked | None:
        """What is asked, unless something is wrong with it."""
        session = None
        version = None
        if entry.session:
            if self._express is None and body.find(_LIST) < 0:
                return None
            assert self._principal is not None
            session = self._legacy.sessions.find(entry.session, self._principal)
            if session is None:
                return None
            version = session.version
        request = read(body, version, entry.head)
        if not isinstance(request, Request) or not request.id or self._load.draining:
            return None
        if request.version.modern:
            return request, None
        if session is None or session.connection.clash(request) is not None:
            return None
        session.is_used = True
        return request, session

    def answer(self, asked: Asked, entry: Entry) -> tuple[bytes, ...] | None:
        """The answer to what is static, in pieces, ready to be sent; None for anything else."""
        request = asked[0]
        meaning = TABLE.get((request.method, request.version))
        if meaning is None or meaning.kind is not Kind.STATIC:
            return None
        response = self._endpoint.quick(request, self._context(asked, entry))
        return None if response is None or not response.result else response.parts

    def begin(self, asked: Asked, entry: Entry, line: Line) -> Swift | SessionCall | None:
        """Begin a call that needs no task of its own; its answer goes to the line."""
        express = self._express
        if express is None:
            return None
        request, session = asked
        context = self._context(asked, entry)
        if session is not None:
            return self._legacy.begin(session, request, context, line, express)
        if not self._load.begin_call():
            return None
        swift = Swift(line, request.id, self._load, self._pulse)
        context.peer = swift
        try:
            swift.running = express(request, context, swift.reply)
        finally:
            if swift.running is None:
                swift.gone()  # also if that failed: it takes no place any more
        if swift.running is None:
            return None
        self._load.tasks.add(swift)
        return swift

    def _context(self, asked: Asked, entry: Entry) -> Context:
        session = asked[1]
        assert self._principal is not None
        return Context(
            principal=self._principal,
            data=self._data,
            session=None if session is None else session.session,
            headers=entry.head,
        )
