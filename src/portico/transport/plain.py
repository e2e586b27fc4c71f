"""Plain requests over HTTP, served straight from and to their connection without ASGI's messages.

What the headers decide is decided once for all requests that have the very same ones. Whatever is
not plain goes the usual way, where every refusal has its place.
"""

from typing import Any

from msgspec import Struct

from portico.model.context import Context
from portico.model.message import Request, Response
from portico.model.methods import TABLE, Kind
from portico.model.types import Answer
from portico.protocol.inbound import read
from portico.protocol.ladder import METHOD_HEADER
from portico.state.pending import discard
from portico.transport.asgi import Reply, Scope
from portico.transport.connection import Endpoint
from portico.transport.events import Pulse
from portico.transport.guard import JSON, Guard, Head, answer_type
from portico.transport.legacy import SESSION_HEADER, Legacy
from portico.transport.limits import Load
from portico.transport.modern import STATUS
from portico.transport.sessioncall import SessionCall
from portico.transport.sessioncall import status as legacy_status
from portico.transport.sessions import HttpSession
from portico.transport.swift import Line, Swift

_METHOD = METHOD_HEADER.encode()
_STATIC, _CALL = Kind.STATIC, Kind.CALL  # members of an enum are slow to look up


class Entry(Struct, frozen=True):
    """The headers of a plain request, and what they decide."""

    head: Head
    length: int
    """How long its body is."""
    session: bytes
    """The id of its session; empty if it names none."""


class PlainRequest(Struct):
    """A plain request, and what has come of it so far."""

    request: Request
    session: HttpSession | None
    """Its session, if it is a legacy one."""
    context: Context
    is_static: bool
    answer: Answer | None = None
    """The answer to what is static, if that has to be waited for."""

    def status(self, response: Response) -> int:
        """The HTTP status of its answer."""
        if self.session is not None:
            return legacy_status(response)
        return STATUS.get(response.code, 200)


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
        self._guard = guard
        self._load = load
        self._pulse = pulse
        self._legacy = legacy
        # A function of the scope is for the app to call, which can say that it failed.
        self._principal = principal if isinstance(principal, str) and not callable(data) else None
        self._data = data
        self._methods = frozenset(
            method.encode()
            for (method, version), meaning in TABLE.items()
            if version.modern and meaning.kind in (Kind.STATIC, Kind.CALL)
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

    def read(self, entry: Entry, body: bytes) -> PlainRequest | None:
        """What is asked, unless something is wrong with it."""
        session = None
        version = None
        assert self._principal is not None
        if entry.session:
            session = self._legacy.sessions.find(entry.session, self._principal)
            if session is None:
                return None
            version = session.version
        request = read(body, version, entry.head)
        if not isinstance(request, Request) or not request.id or self._load.draining:
            return None
        if request.version.modern:
            session = None
        elif session is None or session.connection.clash(request) is not None:
            return None
        if session is not None:
            session.is_used = True
        meaning = request.meaning
        if meaning is None or meaning.kind not in (_STATIC, _CALL):
            return None
        context = Context(
            principal=self._principal,
            data=self._data,
            session=None if session is None else session.session,
            headers=entry.head,
        )
        return PlainRequest(request, session, context, meaning.kind is _STATIC)

    def answer(self, asked: PlainRequest) -> Response | None:
        """The answer to what is static, unless it has to be waited for."""
        answer = self._endpoint.handle(asked.request, asked.context)
        if type(answer) is Response:
            return answer
        asked.answer = answer
        return None

    def begin(self, asked: PlainRequest, line: Line) -> bool:
        """Begin a call whose answer goes to the line; False if there is no room for it."""
        request, session = asked.request, asked.session
        call: Swift | SessionCall | None
        if session is not None:
            call = self._legacy.begin(session, request, line)
        else:
            load = self._load
            call = None
            if load.calls < load.most_calls:
                load.calls += 1
                call = Swift(line, request.id, load, self._pulse)
        if call is None:
            discard(asked.answer)
            return False
        line.call = call  # before it runs: it may be over at once
        asked.context.peer = call
        try:
            answer = asked.answer or self._endpoint.handle(asked.request, asked.context)
        except BaseException:
            call.drop()
            raise
        if type(answer) is Response:
            call.reply(answer)
        else:
            call.run(answer)
        return True
