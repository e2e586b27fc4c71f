"""The seam to an upstream: bytes out, messages in, and how it ended.

A wire only carries messages. `Exchange` interprets them, pairs requests with responses and keeps
the timeouts, the same over every wire.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import Struct

from portico.core.model.errors import TargetError
from portico.core.model.version import Version

if TYPE_CHECKING:
    from portico.upstream.process.process_work import ProcessWork

MAX_MESSAGE = 16 * 1024 * 1024
"""The longest message that is accepted from an upstream, in bytes."""

LOGIN = "login"
"""The kind of a failure that a person ends by logging in; the server itself is fine."""

_QUOTE = "; last output:\n"

NO_HEADERS: Mapping[str, str] = {}

Data = bytes | Callable[[], bytes]
"""Bytes, or a function that makes them when they are sent, so that large ones exist once."""


def to_bytes(data: Data) -> bytes:
    """Return the bytes themselves."""
    return data if isinstance(data, bytes) else data()


class Outgoing(Struct, frozen=True):
    """A message to send."""

    data: Data
    id: bytes = b""
    """The raw id of a request; empty for other messages."""
    headers: Mapping[str, str] = NO_HEADERS
    """The part of the body that HTTP repeats in headers; other wires ignore it."""


class Failure(Struct, frozen=True, kw_only=True):
    """Why a wire, or one request on it, failed. `why` follows the name of the server."""

    server: str
    why: str
    kind: str = "failed"
    """`exited`, `closed`, `http`, `network`, `too_large`, `garbage`, `start` or `login`."""
    exit_code: int | None = None
    status: int | None = None
    body: bytes = b""
    """The body of an HTTP error."""
    stderr: str = ""
    """The last lines of a child's stderr."""
    retry_after_s: int | None = None
    """The pause that an HTTP server requests."""
    command: str = ""
    """The command with which a person logs in."""
    scopes: tuple[str, ...] = ()
    """The scopes that a login lacks."""

    def error(self) -> TargetError:
        """Return a new error for one caller."""
        details: dict[str, Any] = {
            "exit_code": self.exit_code,
            "status": self.status,
            "retry_after_s": self.retry_after_s,
        }
        if self.stderr:
            details["stderr"] = self.stderr
        if self.command:
            details["command"] = self.command
        if self.scopes:
            details["scopes"] = list(self.scopes)
        return TargetError(
            f"{self.server} {self.why}{quoted_stderr(self.stderr)}",
            kind=self.kind,
            server=self.server,
            **{key: value for key, value in details.items() if value is not None},
        )


def quoted_stderr(stderr: str) -> str:
    """Return the end of a message that quotes the last lines of stderr; empty without any."""
    if not stderr:
        return ""
    return _QUOTE + "\n".join(f"  {line}" for line in stderr.splitlines())


def in_one_line(error: str) -> str:
    """Return an error with the last line of the stderr that it quotes, if any."""
    why, quotes, stderr = error.partition(_QUOTE)
    lines = stderr.split("\n")
    return f"{why}: {lines[-1].strip()}" if quotes else error


class Receiver(Protocol):
    """The receiver of messages. All calls are made on the event loop, in order of arrival."""

    answered: int
    """The number of responses to pending requests so far."""

    def received(self, message: bytes, about: bytes = b"") -> None:
        """A message arrived; `about` is the request on whose stream it did, if any."""
        ...

    def malformed(self, remains: bytes, why: str) -> None:
        """A message was rejected; `remains` is a part of it that may contain its id."""
        ...

    def failed(self, id: bytes, failure: Failure) -> None:
        """A request will get no response; the wire stays open."""
        ...

    def lost(self, failure: Failure) -> None:
        """The wire has ended: no more messages will arrive."""
        ...

    def stream_closed(self, id: bytes) -> None:
        """The upstream closed a request's stream, whose rest is polled."""
        ...

    def is_pending(self, id: bytes) -> bool:
        """True while this request has no response."""
        ...


class Wire(Protocol):
    """One connection to an upstream. It is opened once and closed once.

    The defaults are those of a slow pipe that all requests share.
    """

    transport: str
    """`stdio`, `http`, `sse` or `memory`, for people."""
    has_headers: bool = False
    """True if headers repeat parts of the body, and closing a request's stream cancels it."""

    async def open(self, receiver: Receiver) -> None:
        """Prepare to send; raises TargetError."""
        ...

    async def send(self, message: Outgoing) -> None:
        """Send one message, and wait while the upstream is slow to read; raises TargetError."""
        ...

    def send_now(self, message: Outgoing) -> bool:
        """Send one message if that does not block; False if it was not sent."""
        return False

    def abandon(self, id: bytes) -> None:
        """Cancel a request, as far as the wire can."""
        return

    def settle(self, version: Version) -> None:
        """Use the version that the handshake agreed on."""
        return

    def last_output(self) -> str:
        """Return the last lines of a child's stderr."""
        return ""

    async def close(self) -> None:
        """Close the connection in order, and end the processes it started."""
        ...


@runtime_checkable
class ChildWork(Protocol):
    """A wire to a child process whose work can be seen."""

    async def child_work(self) -> "ProcessWork | None":
        """Return what the child and its descendants have done so far; None if unknown."""
        ...


class Address(Protocol):
    """Where an upstream is, and how to connect to it."""

    @property
    def name(self) -> str:
        """The name of the server."""
        ...

    def wire(self) -> Wire:
        """Return a new wire, not yet open."""
        ...

    def older(self) -> Wire | None:
        """Return a wire over the older transport, if there is one."""
        ...
