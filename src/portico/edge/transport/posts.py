"""POSTs to `/mcp`: `admit` checks them, and `Posts.accept` begins the calls of both eras."""

from typing import Any

from msgspec import Struct

from portico.core.http1.port import JSON_TYPE, ResponseWriter
from portico.core.model.context import Context
from portico.core.model.errors import PARSE_ERROR
from portico.core.model.message import Request, Response
from portico.core.model.methods import LISTEN, MethodKind
from portico.core.model.types import Answer, Endpoint, EndpointByClient
from portico.core.model.version import BY_TEXT
from portico.core.protocol.inbound import ClientAnswer, Inbound, RefusedMessage, read
from portico.core.protocol.ladder import VERSION_HEADER
from portico.core.state.pending import discard
from portico.edge.transport.batch import BatchMembers
from portico.edge.transport.bodies import IncomingBody
from portico.edge.transport.events import Keepalive
from portico.edge.transport.guard import EVENT_STREAM, JSON, Head, answer_type
from portico.edge.transport.http_limits import HttpLoad
from portico.edge.transport.legacy_http import SESSION_HEADER, LegacyHttp
from portico.edge.transport.modern_call import STATUS, ModernCall
from portico.edge.transport.reply import Reply, overloaded, refusal, shutting_down
from portico.edge.transport.session_call import SessionCall
from portico.edge.transport.session_call import status as legacy_status
from portico.edge.transport.sessions import HttpSession

_STATIC = MethodKind.STATIC  # members of an enum are slow to look up
_SESSION = SESSION_HEADER.decode()
_BARE_400 = Reply(400)
_UNKNOWN_SESSION = refusal(404, "unknown or ended session: start again with initialize")
_MISSING_SESSION = refusal(400, "Mcp-Session-Id is missing: start with initialize")


class Posted(Struct, frozen=True, gc=False):
    """The message of an admitted POST."""

    message: Request | ClientAnswer | BatchMembers
    session: HttpSession | None
    """Its session; None for a modern message, and for one that begins a session."""
    call: Request | None = None
    """The message if it is a call: not a notification, and not the handshake."""
    streams: bool = False
    """True if the client prefers its response as events."""


def admit(head: Head, body: bytes, session: HttpSession | None, draining: bool) -> Posted | Reply:
    """Return the message of a POST, or a refusal; `session` is the one that its headers name.

    `Guard` has already checked the headers.
    """
    # The version of the session applies only to a body that does not declare a modern one.
    message = read(body, None if session is None else session.version, head)
    if type(message) is not Request or not message.id:
        return _admit_other(head, message, session)
    preferred = answer_type(head.raw.get(b"accept", b""))
    if not preferred:
        return not_acceptable(JSON, EVENT_STREAM)
    modern = message.version.modern
    if session is None and not modern and message.method != "initialize":
        return session_refusal(head)  # a stale id may begin a new session
    if draining:
        return shutting_down(message.id)
    if modern:
        return Posted(message, None, message, preferred == EVENT_STREAM)
    if session is None:
        return Posted(message, None)
    calls = session.calls
    if calls.running and (duplicate := calls.check_duplicate(message)) is not None:
        return Reply(400, duplicate.encode(), (JSON_TYPE,))
    return Posted(message, session, message, preferred == EVENT_STREAM)


def _admit_other(head: Head, message: Inbound, session: HttpSession | None) -> Posted | Reply:
    """Return a message that is not a request with an id, or a refusal."""
    if isinstance(message, RefusedMessage):
        return _refusal(message, session is None, head)
    if isinstance(message, list) and not answer_type(head.raw.get(b"accept", b"")):
        return not_acceptable(JSON, EVENT_STREAM)
    if isinstance(message, Request) and message.version.modern:
        return Posted(message, None)
    if session is None and not (isinstance(message, Request) and message.method == "initialize"):
        return session_refusal(head)
    return Posted(message, session)


def session_refusal(head: Head) -> Reply:
    """Return the refusal of a message that needs a session and has none."""
    return _UNKNOWN_SESSION if _SESSION in head else _MISSING_SESSION


def not_acceptable(*types: bytes) -> Reply:
    """Return the refusal of a client that does not accept these types."""
    return refusal(406, f"Accept must list {b' and '.join(types).decode()}")


def _refusal(refused: RefusedMessage, has_no_session: bool, head: Head) -> Reply:
    version = BY_TEXT.get(head.get(VERSION_HEADER, ""))
    modern = refused.version.modern or (version is not None and version.modern)
    if refused.bare:
        return _BARE_400
    if has_no_session and _SESSION in head and not modern and refused.response.code != PARSE_ERROR:
        return _UNKNOWN_SESSION
    return Reply(400, refused.response.encode(), (JSON_TYPE,))


class Posts:
    """Begins the calls of one app."""

    def __init__(
        self, endpoint: Endpoint, load: HttpLoad, keepalive: Keepalive, legacy: LegacyHttp
    ) -> None:
        self._endpoint = endpoint
        self._by_client = endpoint.by_client if isinstance(endpoint, EndpointByClient) else {}
        self._load = load
        self._keepalive = keepalive
        self._legacy = legacy

    def accept(self, body: IncomingBody, principal: str, data: Any) -> Posted | Reply | None:
        """Begin the call of a POST, which releases the body at its end.

        Returns a refusal, or the message if it is not a call.
        """
        head, writer = body.head, body.writer
        id = head.raw.get(SESSION_HEADER)
        session = None
        if id is not None:
            session = self._legacy.sessions.find(id.strip(b" \t"), principal)
        posted = admit(head, body.take(), session, self._load.draining)
        if isinstance(posted, Reply) or posted.call is None:
            return posted
        request, session = posted.call, posted.session
        context = Context(principal=principal, data=data, headers=head)
        endpoint = self._endpoint
        if session is not None:
            session.is_used = True
            context.session = session.session
        else:
            endpoint = self._by_client.get((principal, request.meta.client_info), endpoint)
        answer: Answer | None = None
        if request.meaning is not None and request.meaning.kind is _STATIC:
            answer = endpoint.handle(request, context)
            if type(answer) is Response and not (posted.streams and answer.result):
                writer.answer(200 if answer.result else _status(answer, session), answer.parts)
                body.release()
                return None
        load = self._load
        call: ModernCall | SessionCall | None = None
        if session is not None:
            call = self._legacy.begin(session, request.id, writer)
        elif request.method == LISTEN:
            call = self._listen(request, writer)
        elif load.begin_call():
            call = ModernCall(writer, request.id, load, self._keepalive)
        if call is None:
            discard(answer)
            what = "streams are open" if request.method == LISTEN else "calls are running"
            return overloaded(f"too many {what}", request.id)
        writer.call = call  # before it runs: it may end at once
        call.body = body
        context.peer = call
        try:
            if posted.streams:
                call.open()
            answer = answer or endpoint.handle(request, context)
        except BaseException:
            call.release()
            raise
        if type(answer) is Response:
            call.reply(answer)
        else:
            call.run(answer)
        return None

    def _listen(self, request: Request, writer: ResponseWriter) -> ModernCall | None:
        if not self._load.begin_stream():
            return None
        call = ModernCall(writer, request.id, self._load, self._keepalive)
        call.listens = True
        return call


def _status(answer: Response, session: HttpSession | None) -> int:
    return STATUS.get(answer.code, 200) if session is None else legacy_status(answer)
