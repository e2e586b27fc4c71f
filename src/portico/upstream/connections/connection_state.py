"""The states of a connection to an upstream, as a table: (state, event) to the next state."""

from enum import StrEnum


class ConnectionState(StrEnum):
    """The state of a connection."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    ACTIVE = "active"
    IDLE = "idle"
    FAILED = "failed"


class ConnectionEvent(StrEnum):
    """An event that changes the state."""

    NEEDED = "needed"
    OPENED = "opened"
    CALLED = "called"
    DRAINED = "last call answered"
    LOST = "lost"
    START_FAILED = "failed to start"
    IDLE_TIMEOUT = "idle timeout"
    CLOSED = "closed"


TABLE: dict[tuple[ConnectionState, ConnectionEvent], ConnectionState] = {
    (ConnectionState.DISCONNECTED, ConnectionEvent.NEEDED): ConnectionState.CONNECTING,
    (ConnectionState.FAILED, ConnectionEvent.NEEDED): ConnectionState.CONNECTING,
    (ConnectionState.CONNECTING, ConnectionEvent.OPENED): ConnectionState.CONNECTED,
    (ConnectionState.CONNECTING, ConnectionEvent.START_FAILED): ConnectionState.FAILED,
    (ConnectionState.CONNECTING, ConnectionEvent.CLOSED): ConnectionState.DISCONNECTED,
    (ConnectionState.CONNECTED, ConnectionEvent.CALLED): ConnectionState.ACTIVE,
    (ConnectionState.CONNECTED, ConnectionEvent.LOST): ConnectionState.FAILED,
    (ConnectionState.CONNECTED, ConnectionEvent.IDLE_TIMEOUT): ConnectionState.DISCONNECTED,
    (ConnectionState.CONNECTED, ConnectionEvent.CLOSED): ConnectionState.DISCONNECTED,
    (ConnectionState.ACTIVE, ConnectionEvent.CALLED): ConnectionState.ACTIVE,
    (ConnectionState.ACTIVE, ConnectionEvent.DRAINED): ConnectionState.IDLE,
    (ConnectionState.ACTIVE, ConnectionEvent.LOST): ConnectionState.FAILED,
    (ConnectionState.ACTIVE, ConnectionEvent.CLOSED): ConnectionState.DISCONNECTED,
    (ConnectionState.IDLE, ConnectionEvent.CALLED): ConnectionState.ACTIVE,
    (ConnectionState.IDLE, ConnectionEvent.LOST): ConnectionState.FAILED,
    (ConnectionState.IDLE, ConnectionEvent.IDLE_TIMEOUT): ConnectionState.DISCONNECTED,
    (ConnectionState.IDLE, ConnectionEvent.CLOSED): ConnectionState.DISCONNECTED,
    (ConnectionState.FAILED, ConnectionEvent.CLOSED): ConnectionState.DISCONNECTED,
}
"""A pair that is not in the table is a bug."""
