"""The state of one client's session, as far as the next owner must learn it.

A window passes lines on as they are, and an owner that dies leaves nothing behind, so the window
keeps the client's own bytes and sends them again. Within an owner the same state is a `Session`
(`model/session.py`); the connections of an upstream replay what all its sessions want together.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from portico.model.methods import LISTEN, TABLE, MethodKind
from portico.model.types import Change
from portico.model.version import BY_TEXT, Version
from portico.protocol.codec import Envelope, WireParams, decoded
from portico.protocol.inbound import Malformed, read_message
from portico.protocol.listen import LIST_KINDS, SUBSCRIPTION_KEY, change_message

INITIALIZE, PING, SET_LEVEL = "initialize", "ping", "logging/setLevel"
SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"
CANCELLED = "notifications/cancelled"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

_STATIC = frozenset(method for (method, _), how in TABLE.items() if how.kind is MethodKind.STATIC)
_REPEATABLE = _STATIC | {INITIALIZE, LISTEN, PING}
"""What may be asked a second time without harm. A call may not."""
_TOLD = frozenset((INITIALIZE, SET_LEVEL, SUBSCRIBE, UNSUBSCRIBE))

_envelope = msgspec.json.Decoder(Envelope).decode
_members = msgspec.json.Decoder(list[Raw]).decode


class _Acknowledged(Struct):
    notifications: dict[str, Any] = {}
    meta: dict[str, Raw] = msgspec.field(default_factory=dict, name="_meta")


class _Handshake(Struct):
    protocolVersion: str = ""  # noqa: N815  (a field of the wire)
    capabilities: dict[str, Any] = {}


class Asked(Struct, gc=False):
    """A request under way, with what is kept of it."""

    id: bytes
    method: str = ""
    line: bytes = b""
    """The whole of it, if it may be sent again."""
    params: bytes = b""
    """Its params, if the next server must know them."""
    acknowledged: bool = False
    """True of a listener that has heard that it is one."""


class SessionState:
    """One client's session, ready to be told to the next owner."""

    def __init__(self) -> None:
        self.version: Version | None = None
        """None of a client that has not, or never, shaken hands."""
        self.handshake = b""
        self.initialized = b""
        self.level = b""
        self.subscriptions: dict[str, bytes] = {}
        self._kinds: tuple[str, ...] = ()

    def answered(self, asked: Asked, envelope: Envelope) -> None:
        """Note what a request has changed, if it was granted."""
        if not (asked.params and envelope.result):
            return
        if asked.method == INITIALIZE:
            self._shaken(asked, envelope)
        elif asked.method == SET_LEVEL:
            self.level = asked.params
        elif asked.method == SUBSCRIBE:
            self.subscriptions[_uri(asked)] = asked.params
        else:
            self.subscriptions.pop(_uri(asked), None)

    def changes(self) -> list[bytes]:
        """What tells a legacy client that its lists may be others now."""
        return [change_message(Change(kind)) for kind in self._kinds]

    def _shaken(self, asked: Asked, envelope: Envelope) -> None:
        said = decoded(envelope.result, _Handshake) or _Handshake()
        self.handshake = asked.params
        self.version = BY_TEXT.get(said.protocolVersion)
        self._kinds = tuple(kind for kind in LIST_KINDS if _tells(said.capabilities.get(kind)))


def read(line: bytes) -> list[Envelope]:
    """The messages of a line, which are several in a batch, and none if it is no message."""
    try:
        if line.lstrip(b" \t\r").startswith(b"["):
            return [_envelope(member) for member in _members(line)]
        return [_envelope(line)]
    except (msgspec.DecodeError, RecursionError):
        return []


def kept(envelope: Envelope, line: bytes) -> Asked:
    """What to keep of a request."""
    method = envelope.method
    return Asked(
        id=bytes(envelope.id),
        method=method,
        line=line if method in _REPEATABLE else b"",
        params=bytes(envelope.params) if method in _TOLD else b"",
    )


def salvaged(line: bytes) -> Asked | None:
    """What is no message may have an id, by which it will be answered."""
    try:
        read_message(line)
    except Malformed as bad:
        return Asked(id=bad.id) if bad.id else None
    return None


def acknowledgement(envelope: Envelope) -> tuple[bytes, list[bytes]]:
    """Whose it is, and what tells that listener that its lists may be others now."""
    said = decoded(envelope.params, _Acknowledged) or _Acknowledged()
    id = bytes(said.meta.get(SUBSCRIPTION_KEY, b""))
    kinds = [kind for kind in LIST_KINDS if said.notifications.get(f"{kind}ListChanged")]
    return id, [change_message(Change(kind), id) for kind in kinds]


def _tells(capability: Any) -> bool:
    return isinstance(capability, dict) and capability.get("listChanged") is True


def _uri(asked: Asked) -> str:
    return (decoded(asked.params, WireParams) or WireParams()).uri
