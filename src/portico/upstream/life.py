"""The life of a connection to an upstream, as a table: (state, event) to the next state."""

from enum import StrEnum


class State(StrEnum):
    """Where a connection stands."""

    DISCONNECTED = "disconnected"
    CONNECTING = "connecting"
    CONNECTED = "connected"
    ACTIVE = "active"
    IDLE = "idle"
    FAILED = "failed"


class Event(StrEnum):
    """What happens to it."""

    NEEDED = "needed"
    OPENED = "opened"
    CALLED = "called"
    RESTED = "last call answered"
    LOST = "lost"
    REFUSED = "could not start"
    TIRED = "idle for too long"
    CLOSED = "closed"


TABLE: dict[tuple[State, Event], State] = {
    (State.DISCONNECTED, Event.NEEDED): State.CONNECTING,
    (State.FAILED, Event.NEEDED): State.CONNECTING,
    (State.CONNECTING, Event.OPENED): State.CONNECTED,
    (State.CONNECTING, Event.REFUSED): State.FAILED,
    (State.CONNECTING, Event.CLOSED): State.DISCONNECTED,
    (State.CONNECTED, Event.CALLED): State.ACTIVE,
    (State.CONNECTED, Event.LOST): State.FAILED,
    (State.CONNECTED, Event.TIRED): State.DISCONNECTED,
    (State.CONNECTED, Event.CLOSED): State.DISCONNECTED,
    (State.ACTIVE, Event.CALLED): State.ACTIVE,
    (State.ACTIVE, Event.RESTED): State.IDLE,
    (State.ACTIVE, Event.LOST): State.FAILED,
    (State.ACTIVE, Event.CLOSED): State.DISCONNECTED,
    (State.IDLE, Event.CALLED): State.ACTIVE,
    (State.IDLE, Event.LOST): State.FAILED,
    (State.IDLE, Event.TIRED): State.DISCONNECTED,
    (State.IDLE, Event.CLOSED): State.DISCONNECTED,
    (State.FAILED, Event.CLOSED): State.DISCONNECTED,
}
"""What is not in the table does not happen, and is an error of ours."""
