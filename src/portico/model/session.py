"""What a legacy connection agreed on and asked for; a modern request carries its own.

It is the one record of the log level: upstreams read it here, including one that replaces another.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from portico.model.version import Version

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class Session:
    """The state of one stdio connection or one legacy `Mcp-Session-Id`."""

    __slots__ = (
        "__weakref__",
        "_parting",
        "ask",
        "capabilities",
        "client_info",
        "id",
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
        self.principal = principal
        self.send = send
        """Delivers one unsolicited notification; the transport bounds what waits."""
        self.version: Version | None = None
        """None until `initialize` was answered."""
        self.capabilities: dict[str, Any] = {}
        self.client_info: dict[str, Any] = {}
        self.log_level = ""
        """Empty until the client sets one."""
        self.subscriptions: set[str] = set()
        self.ask: Callable[[str, bytes], Awaitable[bytes]] | None = None
        """Puts a question that belongs to no call, where the transport can carry one."""
        self.names_servers = False
        """True if its client reaches many servers, and is told which of them asks something."""
        self.notes: dict[object, Any] = {}
        """What those who serve it know of it, each under a key of its own."""
        self.parent: Session | None = None
        """Whose client it is, if it only lasts as long as one of that client's streams."""
        self._parting: dict[object, Callable[[], None]] | None = {}

    def on_end(self, who: object, act: Callable[[], None]) -> None:
        """Have this done for someone when the session ends; at once if it has ended."""
        if self._parting is None:
            act()
        else:
            self._parting[who] = act

    def cancel_on_end(self, who: object) -> None:
        """Whoever wanted something done when the session ends wants it no longer."""
        if self._parting is not None:
            self._parting.pop(who, None)

    def end(self) -> None:
        """The transport says that the client is gone for good."""
        parting, self._parting = self._parting or {}, None
        for act in parting.values():
            act()
