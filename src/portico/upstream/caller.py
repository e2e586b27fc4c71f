"""A client, as the calls it has under way at an upstream know it."""

import asyncio
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from time import perf_counter
from typing import Any
from weakref import WeakSet

import msgspec

from portico.model.context import Context, Peer
from portico.model.errors import AskError, MissingCapability
from portico.model.message import Request
from portico.model.session import LOG_LEVELS, Session
from portico.model.version import Version
from portico.process.read_pacing import SLICE_S, SliceBudget
from portico.protocol.codec import encode
from portico.protocol.eras import Sender
from portico.protocol.tasks import without_tasks

_QUESTION_CAPABILITIES = frozenset({"roots", "sampling", "elicitation"})
_MAX_CACHED_BYTES = 1024
MAX_OUTBOX_BYTES = 16 * 1024 * 1024
"""How many bytes may wait for one slow asker; past that, what has waited longest is forgotten."""


class Caller:
    """One client: a session, or a single modern request that belongs to none."""

    def __init__(
        self, session: Session | None, capabilities: Mapping[str, Any], info: Mapping[str, Any]
    ) -> None:
        self.session = session
        self.route: object = None
        """The way its calls took last."""
        self.view: tuple[int, bool, Any] | None = None
        """What it was offered last, in which era, and by which edition of what is known."""
        self.capabilities = capabilities
        self.info = info
        self.accepts_questions = not _QUESTION_CAPABILITIES.isdisjoint(capabilities)
        """True if it can be asked: then its answers must not reach anybody else's child."""

    def update(self, capabilities: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        """Take in what it says of itself."""
        self.capabilities, self.info = capabilities, info
        self.route = self.view = None
        self.accepts_questions = not _QUESTION_CAPABILITIES.isdisjoint(capabilities)

    @property
    def level(self) -> str:
        """The log level it set, if it set one."""
        return "" if self.session is None else self.session.log_level

    def sender(self, version: Version) -> Sender:
        """How a modern server is told of it, where it is legacy itself and follows no tasks of
        that era."""
        declared = without_tasks(self.capabilities)
        return Sender(version, encode(declared), encode(self.info), self.level)


class Callers:
    """Knows the clients by their sessions."""

    def __init__(self, may_ask: bool = True) -> None:
        """`may_ask` is False where clients are to be taken for ones that cannot be asked."""
        self._may_ask = may_ask
        self.sessions: WeakSet[Session] = WeakSet()

    @property
    def level(self) -> str:
        """The lowest log level that any of them set; empty if none did."""
        levels = {session.log_level for session in self.sessions} - {""}
        return min(levels, key=LOG_LEVELS.index, default="")

    def forget(self) -> None:
        """Leave nothing of ours with sessions that go on."""
        for session in self.sessions:
            session.notes.pop(self, None)

    def of(self, request: Request, context: Context) -> Caller:
        """Who asks. A modern request says itself what its client can do."""
        session = context.session
        meta = request.meta
        if not meta.client_capabilities:
            if session is None:
                return Caller(None, {}, {})
            caller: Caller | None = session.notes.get(self)
            if caller is None:
                whose = session.parent or session  # a client outlasts its streams
                caller = session.notes[self] = Caller(whose, {}, {})
                self.sessions.add(whose)
            # Only a handshake tells: a modern client says it with each request.
            if session.client_info and caller.info is not session.client_info:
                can = session.capabilities
                can = can if self._may_ask else without_questions(can)
                caller.update(can, session.client_info)
            return caller
        # What is short is read once, since a client says it with every request.
        raw, named = meta.client_capabilities, meta.client_info
        capabilities = _cached_object(raw) if len(raw) <= _MAX_CACHED_BYTES else _object(raw)
        info = _cached_object(named) if len(named) <= _MAX_CACHED_BYTES else _object(named)
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
    """The capabilities of a client that cannot be asked anything."""
    return {key: value for key, value in capabilities.items() if key not in _QUESTION_CAPABILITIES}


_fields = msgspec.json.Decoder(dict[str, Any]).decode


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        return _fields(raw or b"{}")
    except msgspec.DecodeError:
        return {}


_cached_object = lru_cache(256)(_object)


class Outbox:
    """What is to reach an asker before its answer does, in order."""

    def __init__(self, peer: Peer | None) -> None:
        self.peer = peer
        self._waiting: deque[bytes] = deque()  # an empty one hangs up
        self._size = 0
        self._sending: asyncio.Task[None] | None = None
        self._turns = SliceBudget()

    @property
    def is_empty(self) -> bool:
        """True if nothing is on its way."""
        return self._sending is None

    def send(self, message: bytes) -> None:
        """Send a notification as soon as the reader lets us."""
        if self.peer is None:
            return
        self._waiting.append(message)
        self._size += len(message)
        while self._size > MAX_OUTBOX_BYTES and len(self._waiting) > 1:
            # To have the upstream wait would stop everybody else who shares it.
            self._size -= len(self._waiting.popleft())
        if self._sending is None:
            self._sending = asyncio.create_task(self._pump(self.peer))

    def close_stream(self) -> None:
        """Close the asker's stream, if it can come back for the rest."""
        self.send(b"")

    async def flush(self) -> None:
        """Wait until all is sent."""
        while self._sending is not None:
            await asyncio.wait({self._sending})

    async def _pump(self, peer: Peer) -> None:
        began = perf_counter()
        try:
            while self._waiting:
                if perf_counter() - began > SLICE_S:
                    # A peer that never has us wait for it must not keep the loop.
                    await asyncio.sleep(self._turns.rest_s(SLICE_S))
                    began = perf_counter()
                message = self._waiting.popleft()
                self._size -= len(message)
                if message:
                    await peer.notify(message)
                elif (close := getattr(peer, "close_stream", None)) is not None:
                    await close()
        except OSError:
            self._waiting.clear()  # the client is gone
            self._size = 0
        finally:
            self._sending = None


class Call:
    """One request of a client's, under way at an upstream."""

    def __init__(self, caller: Caller, request: Request, context: Context) -> None:
        request.arguments = None  # the upstream reads its own, and they may be large
        self.caller = caller
        self.request = request
        self.context = context
        self.missing: MissingCapability | None = None
        """What the client would have had to declare; that is then its answer."""
        self.sending: Outbox | None = None
        """The outbox, if there ever was anything to put in it."""

    @property
    def outbox(self) -> Outbox:
        """What is to reach the client before its answer does."""
        if self.sending is None:
            self.sending = Outbox(self.context.peer)
        return self.sending

    async def ask(self, method: str, params: bytes) -> bytes:
        """Put a question of the upstream's to the client; raises AskError."""
        peer = self.context.peer
        if peer is None:
            return await ask_session(self.caller, method, params)
        return await peer.ask(method, params)

    def require_capability(self, capability: str, part: str) -> None:
        """The upstream asked what this client cannot be asked, which a modern one is told."""
        if self.request.version.modern:
            detail: dict[str, Any] | None = {part: {}} if part and part != "form" else None
            self.missing = MissingCapability(capability, detail)


async def ask_session(caller: Caller, method: str, params: bytes) -> bytes:
    """Put a question that belongs to no call; raises AskError."""
    ask = caller.session.ask if caller.session is not None else None
    if ask is None:
        raise AskError("the client cannot receive questions now")
    return await ask(method, params)
