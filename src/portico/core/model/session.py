"""The session of a client: the outcome of its handshake, and the settings it sent since.

The session alone holds the log level, so that a replaced upstream's successor finds it here.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from portico.core.model.version import Version

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class Session:
    """The state of one stdio connection or one legacy `Mcp-Session-Id`."""

    __slots__ = (
        "__weakref__",
        "_end_callbacks",
        "ask",
        "capabilities",
        "client_info",
        "client_name",
        "folder",
        "id",
        "key",
        "log_level",
        "names_servers",
        "notes",
        "parent",
        "principal",
        "send",
        "subscriptions",
        "version",
    )

    def __init__(self, send: Callable[[bytes], None], *, id: str = "", principal: str = "") -> None:
        self.id = id
        self.key: str | None = None
        """Names the session in the store of values; None until it is needed, empty for none."""
        self.principal = principal
        self.send = send
        """Sends one notification that belongs to no request; the transport limits its queue."""
        self.version: Version | None = None
        """None until the handshake."""
        self.capabilities: dict[str, Any] = {}
        self.client_info: dict[str, Any] = {}
        self.client_name = ""
        """The name of the client in the command line of its window; empty if it has none."""
        self.folder = ""
        """The folder in which the client's window was started; empty if unknown."""
        self.log_level = ""
        """Empty until the client sets a level."""
        self.subscriptions: set[str] = set()
        self.ask: Callable[[str, bytes], Awaitable[bytes]] | None = None
        """Sends a question that belongs to no call; None if the transport cannot."""
        self.names_servers = False
        """True if a question must name the server it comes from: the client reaches several."""
        self.notes: dict[object, Any] = {}
        """Data that other parts keep with the session, each under its own key."""
        self.parent: Session | None = None
        """The client's own session, if this one only serves one of its streams."""
        self._end_callbacks: dict[object, Callable[[], None]] | None = {}

    def on_end(self, key: object, callback: Callable[[], None]) -> None:
        """Call a function when the session ends, or now if it has ended."""
        if self._end_callbacks is None:
            callback()
        else:
            self._end_callbacks[key] = callback

    def cancel_on_end(self, key: object) -> None:
        """Remove the callback that was added under this key."""
        if self._end_callbacks is not None:
            self._end_callbacks.pop(key, None)

    def end(self) -> None:
        """End the session: its client will not return."""
        callbacks, self._end_callbacks = self._end_callbacks or {}, None
        for callback in callbacks.values():
            callback()
