"""The clients of an upstream, and their running calls."""

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from time import perf_counter
from typing import Any
from weakref import WeakSet

import msgspec

from portico.core.model.context import Context, Peer
from portico.core.model.errors import AskError, MissingCapability
from portico.core.model.message import Request
from portico.core.model.session import LOG_LEVELS, Session
from portico.core.model.task_control import CreatedTask
from portico.core.model.version import Version
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import Sender
from portico.core.protocol.tasks import EXTENSION, without_tasks
from portico.upstream.process.read_pacing import SLICE_S, SliceBudget

_QUESTION_CAPABILITIES = frozenset({"roots", "sampling", "elicitation"})
_MAX_CACHED_BYTES = 1024
MAX_OUTBOX_BYTES = 16 * 1024 * 1024
"""The bytes that may wait for one slow client; past that, the oldest messages are dropped."""


class Caller:
    """One client: a session, or a single modern request without one."""

    def __init__(
        self, session: Session | None, capabilities: Mapping[str, Any], info: Mapping[str, Any]
    ) -> None:
        self.session = session
        self.route: object = None
        """The last route of its calls."""
        self.view: tuple[int, bool, Any] | None = None
        """The generation of the pool, the era, and the view that was found for both."""
        self.capabilities = capabilities
        self.info = info
        self.accepts_questions = not _QUESTION_CAPABILITIES.isdisjoint(capabilities)
        """True if servers may send it questions; its answers must reach no other client's child."""

    def update(self, capabilities: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        """Replace the capabilities and the info."""
        self.capabilities, self.info = capabilities, info
        self.route = self.view = None
        self.accepts_questions = not _QUESTION_CAPABILITIES.isdisjoint(capabilities)

    @property
    def has_tasks(self) -> bool:
        """True if it can have tasks, in the way of either era."""
        extensions = self.capabilities.get("extensions")
        is_modern = isinstance(extensions, dict) and EXTENSION in extensions
        return is_modern or "tasks" in self.capabilities

    @property
    def level(self) -> str:
        """The log level that the client set, or an empty text."""
        return "" if self.session is None else self.session.log_level

    def sender(self, version: Version) -> Sender:
        """Return how a modern server sees this legacy client, which cannot follow modern tasks."""
        declared = without_tasks(self.capabilities)
        return Sender(version, encode(declared), encode(self.info), self.level)


class Callers:
    """The clients of one upstream, by session."""

    def __init__(self, may_ask: bool = True) -> None:
        """`may_ask` is False to treat all clients as not accepting questions."""
        self._may_ask = may_ask
        self.sessions: WeakSet[Session] = WeakSet()

    @property
    def level(self) -> str:
        """The lowest log level that a client set; empty if none did."""
        levels = {session.log_level for session in self.sessions} - {""}
        return min(levels, key=LOG_LEVELS.index, default="")

    def forget(self) -> None:
        """Remove our notes from sessions that outlive the upstream."""
        for session in self.sessions:
            session.notes.pop(self, None)

    def of(self, request: Request, context: Context) -> Caller:
        """Return the client of a request. A modern request carries its client's capabilities."""
        session = context.session
        meta = request.meta
        if not meta.client_capabilities:
            if session is None:
                return Caller(None, {}, {})
            caller: Caller | None = session.notes.get(self)
            if caller is None:
                client_session = session.parent or session  # a client outlasts its streams
                caller = session.notes[self] = Caller(client_session, {}, {})
                self.sessions.add(client_session)
            # Only a handshake sets these: a modern client sends them with each request.
            if session.client_info and caller.info is not session.client_info:
                declared = session.capabilities
                declared = declared if self._may_ask else without_questions(declared)
                caller.update(declared, session.client_info)
            return caller
        # Short ones are parsed once, since a client sends them with every request.
        raw, raw_info = meta.client_capabilities, meta.client_info
        capabilities = _cached_object(raw) if len(raw) <= _MAX_CACHED_BYTES else _object(raw)
        info = _cached_object(raw_info) if len(raw_info) <= _MAX_CACHED_BYTES else _object(raw_info)
        if not self._may_ask:
            capabilities = without_questions(capabilities)
        if session is None:
            return Caller(None, capabilities, info)
        caller = session.notes.get(self)
        if caller is None or caller.capabilities != capabilities:
            caller = session.notes[self] = Caller(session, capabilities, info)
            self.sessions.add(session)
        return caller


def without_questions(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the capabilities without those for questions."""
    return {key: value for key, value in capabilities.items() if key not in _QUESTION_CAPABILITIES}


_fields = msgspec.json.Decoder(dict[str, Any]).decode


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        return _fields(raw or b"{}")
    except msgspec.DecodeError:
        return {}


_cached_object = lru_cache(256)(_object)


class Outbox:
    """The messages that must reach a client before its response, in order."""

    def __init__(self, peer: Peer | None) -> None:
        self.peer = peer
        self._waiting: deque[bytes] = deque()  # an empty one closes the stream
        self._size = 0
        self._sending: asyncio.Task[None] | None = None
        self._turns = SliceBudget()

    @property
    def is_empty(self) -> bool:
        """True if no message is waiting."""
        return self._sending is None

    def send(self, message: bytes) -> None:
        """Send a notification as soon as the client reads."""
        if self.peer is None:
            return
        self._waiting.append(message)
        self._size += len(message)
        while self._size > MAX_OUTBOX_BYTES and len(self._waiting) > 1:
            # Backpressure on the upstream would stop all other clients that share it.
            self._size -= len(self._waiting.popleft())
        if self._sending is None:
            self._sending = asyncio.create_task(self._pump(self.peer))

    def close_stream(self) -> None:
        """Close the client's stream, if it can resume later."""
        self.send(b"")

    async def flush(self) -> None:
        """Wait until all messages are sent."""
        while self._sending is not None:
            await asyncio.wait({self._sending})

    async def _pump(self, peer: Peer) -> None:
        began = perf_counter()
        try:
            while self._waiting:
                if perf_counter() - began > SLICE_S:
                    # A peer that never blocks must not monopolize the loop.
                    await asyncio.sleep(self._turns.rest_s(SLICE_S))
                    began = perf_counter()
                message = self._waiting.popleft()
                self._size -= len(message)
                if message:
                    await peer.notify(message)
                elif (close := getattr(peer, "close_stream", None)) is not None:
                    await close()
        except OSError:
            self._waiting.clear()  # the client disconnected
            self._size = 0
        finally:
            self._sending = None


class Call:
    """One request of a client, running at an upstream."""

    def __init__(self, caller: Caller, request: Request, context: Context) -> None:
        request.arguments = None  # the upstream reads its own, and they may be large
        self.caller = caller
        self.request = request
        self.context = context
        self.missing: MissingCapability | None = None
        """The capability that the client failed to declare; it becomes the response."""
        self.sent_id = b""
        """The id of its last request to the upstream."""
        self.sending: Outbox | None = None
        """The outbox, once a message was put in it."""
        self.is_limited = False
        """True if its client has set its timeout, which holds for a task too."""
        self.unasked: CreatedTask | None = None
        """The task that the upstream sent in place of the result, though none was requested."""

    @property
    def outbox(self) -> Outbox:
        """The messages that must reach the client before the response."""
        if self.sending is None:
            self.sending = Outbox(self.context.peer)
        return self.sending

    def is_task(self) -> bool:
        """True if it is a task by now, and the timeout of calls does not end it."""
        return self.context.task is not None and not self.is_limited

    async def ask(self, method: str, params: bytes) -> bytes:
        """Send a question of the upstream to the client; raises AskError."""
        peer = self.context.peer
        if peer is None:
            return await ask_session(self.caller, method, params)
        return await peer.ask(method, params)

    def require_capability(self, capability: str, part: str) -> None:
        """Record a question that the client does not support; a modern one gets an error."""
        if self.request.version.modern:
            detail: dict[str, Any] | None = {part: {}} if part and part != "form" else None
            self.missing = MissingCapability(capability, detail)


async def ask_session(caller: Caller, method: str, params: bytes) -> bytes:
    """Send a question that does not belong to a call; raises AskError."""
    ask = caller.session.ask if caller.session is not None else None
    if ask is None:
        raise AskError("the client cannot receive questions now")
    return await ask(method, params)
