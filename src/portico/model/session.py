"""What a legacy connection agreed on and asked for; a modern request carries its own."""

from collections.abc import Callable
from typing import Any

from portico.model.version import Version

LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class Session:
    """The state of one stdio connection or one legacy `Mcp-Session-Id`."""

    __slots__ = (
        "__weakref__",
        "capabilities",
        "client_info",
        "id",
        "log_level",
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
        self.log_level = "info"
        self.subscriptions: set[str] = set()
