"""The state of one client's session, as the next owner needs it.

A killed owner leaves nothing behind, so the window keeps the client's own bytes and resends them.
Within an owner the same state is a `Session` (`core/model/session.py`); the connections of an
upstream replay the combined state of all its sessions.
"""

from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Raw, Struct

from portico.core.model.methods import CAPABILITIES, LISTEN, LISTS, TABLE, MethodKind
from portico.core.model.version import BY_TEXT, Version
from portico.core.protocol.codec import Envelope, WireParams, decoded
from portico.core.protocol.inbound import Malformed, read_message
from portico.core.protocol.listen import LIST_KINDS, SUBSCRIPTION_KEY

INITIALIZE, PING, SET_LEVEL = "initialize", "ping", "logging/setLevel"
SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"
CANCELLED = "notifications/cancelled"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

_STATIC = frozenset(method for (method, _), how in TABLE.items() if how.kind is MethodKind.STATIC)
_REPEATABLE = _STATIC | {INITIALIZE, LISTEN, PING, "tasks/get", "tasks/result", "tasks/list"}
"""Methods that are safe to send twice, unlike a call. Tasks are stored: the next owner has them."""
_REPLAYED = frozenset((INITIALIZE, SET_LEVEL, SUBSCRIBE, UNSUBSCRIBE))

_envelope = msgspec.json.Decoder(Envelope).decode
_members = msgspec.json.Decoder(list[Raw]).decode


class _Acknowledged(Struct):
    notifications: dict[str, Any] = {}
    meta: dict[str, Raw] = msgspec.field(default_factory=dict, name="_meta")


class _Handshake(Struct):
    protocolVersion: str = ""  # noqa: N815  (a field of the wire)
    capabilities: dict[str, Any] = {}


class TrackedRequest(Struct, gc=False):
    """A pending request, as far as it is kept."""

    id: bytes
    method: str = ""
    line: bytes = b""
    """The whole message, if it may be sent again."""
    params: bytes = b""
    """Its params, if the next owner needs them."""
    acknowledged: bool = False
    """True for a listener that has been acknowledged."""


class ReadList(Struct, frozen=True):
    """A page of a list as the client has read it."""

    kind: str
    """`tools`, `resources` or `prompts`."""
    method: str
    params: bytes
    digest: bytes
    """Of the result; empty if it is not known."""

    def differs(self, envelope: Envelope) -> bool:
        """True unless this is the same result."""
        return _digest(envelope.result) != self.digest


class SessionState:
    """One client's session, ready to be replayed to the next owner."""

    def __init__(self) -> None:
        self.version: Version | None = None
        """None before the handshake, and for a modern client."""
        self.handshake = b""
        self.initialized = b""
        self.level = b""
        self.subscriptions: dict[str, bytes] = {}
        self.kinds: tuple[str, ...] = ()
        """The kinds of lists whose changes a legacy client is notified of."""
        self._lists: dict[str, dict[str, ReadList]] = {}

    def record_result(self, request: TrackedRequest, envelope: Envelope) -> None:
        """Record the effect of a request that succeeded."""
        if request.method in LISTS and envelope.result:
            self._record_list(request, envelope)
        if not (request.params and envelope.result):
            return
        if request.method == INITIALIZE:
            self._record_handshake(request, envelope)
        elif request.method == SET_LEVEL:
            self.level = request.params
        elif request.method == SUBSCRIBE:
            self.subscriptions[_uri(request)] = request.params
        else:
            self.subscriptions.pop(_uri(request), None)

    @property
    def lists(self) -> list[ReadList]:
        """The lists that the client has read."""
        return [page for pages in self._lists.values() for page in pages.values()]

    def _record_list(self, request: TrackedRequest, envelope: Envelope) -> None:
        # One of a batch is not kept: its list counts as changed.
        sent = next(iter(read_messages(request.line)), Envelope())
        cursor = (decoded(sent.params, WireParams) or WireParams()).cursor
        pages = self._lists.setdefault(request.method, {})
        if not cursor:
            pages.clear()
        digest = _digest(envelope.result) if request.line else b""
        kind = CAPABILITIES[request.method]
        params = bytes(sent.params) or b"{}"
        pages[cursor] = ReadList(kind, request.method, params, digest)

    def _record_handshake(self, request: TrackedRequest, envelope: Envelope) -> None:
        result = decoded(envelope.result, _Handshake) or _Handshake()
        self.handshake = request.params
        self.version = BY_TEXT.get(result.protocolVersion)
        self.kinds = tuple(
            kind for kind in LIST_KINDS if _notifies_changes(result.capabilities.get(kind))
        )


def read_messages(line: bytes) -> list[Envelope]:
    """Return the messages of a line: several for a batch, none if it is invalid."""
    try:
        if line.lstrip(b" \t\r").startswith(b"["):
            return [_envelope(member) for member in _members(line)]
        return [_envelope(line)]
    except (msgspec.DecodeError, RecursionError):
        return []


def track(envelope: Envelope, line: bytes) -> TrackedRequest:
    """Return a request as far as it is kept."""
    method = envelope.method
    return TrackedRequest(
        id=bytes(envelope.id),
        method=method,
        line=line if method in _REPEATABLE else b"",
        params=bytes(envelope.params) if method in _REPLAYED else b"",
    )


def salvaged(line: bytes) -> TrackedRequest | None:
    """Return an invalid message by its id, if it has one: the owner will respond to it."""
    try:
        read_message(line)
    except Malformed as bad:
        return TrackedRequest(id=bad.id) if bad.id else None
    return None


def acknowledgement(envelope: Envelope) -> tuple[bytes, list[str]]:
    """Return a listener's id, and the kinds of lists whose changes it is notified of."""
    params = decoded(envelope.params, _Acknowledged) or _Acknowledged()
    id = bytes(params.meta.get(SUBSCRIPTION_KEY, b""))
    return id, [kind for kind in LIST_KINDS if params.notifications.get(f"{kind}ListChanged")]


def _notifies_changes(capability: Any) -> bool:
    return isinstance(capability, dict) and capability.get("listChanged") is True


def _digest(result: bytes) -> bytes:
    return blake2b(result, digest_size=16).digest()


def _uri(request: TrackedRequest) -> str:
    return (decoded(request.params, WireParams) or WireParams()).uri
