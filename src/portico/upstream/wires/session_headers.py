"""The session and version headers of messages to a server at a URL."""

from collections.abc import Mapping

from portico.core.http1.response import Http1Response
from portico.core.model.version import Version
from portico.core.protocol.ladder import VERSION_HEADER
from portico.upstream.wires.wire import Outgoing

SESSION_HEADER = "mcp-session-id"
ACCEPT = {"accept": "application/json, text/event-stream"}
_JSON = {**ACCEPT, "content-type": "application/json"}


class SessionHeaders:
    """The headers so far: the handshake adds a session, then a version."""

    def __init__(self) -> None:
        self.session = ""
        self.version: Version | None = None
        self._usual: Mapping[str, str] | None = None  # of a message without headers of its own

    @property
    def is_modern(self) -> bool:
        """True once the modern era is settled."""
        return self.version is not None and self.version.modern

    def settle(self, version: Version) -> None:
        """Send this version from now on."""
        self.version = version
        self._usual = None

    def common(self) -> dict[str, str]:
        """Return the headers of every request."""
        headers = {SESSION_HEADER: self.session} if self.session else {}
        if self.version is not None:
            headers[VERSION_HEADER] = self.version.text
        return headers

    def of(self, message: Outgoing) -> Mapping[str, str]:
        """Return the headers of a message."""
        if self._usual is None:
            self._usual = {**self.common(), **_JSON}
        return {**self._usual, **message.headers} if message.headers else self._usual

    def remember(self, response: Http1Response) -> bool:
        """Keep the session id of a legacy server; False if a header cannot contain it."""
        session = response.headers.get(SESSION_HEADER, self.session)
        if session == self.session or self.is_modern:
            return True
        # "The session ID MUST only contain visible ASCII characters."
        if not (session.isascii() and session.isprintable()):
            return False
        self.session = session
        self._usual = None
        return True
