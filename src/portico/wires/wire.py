"""The seam to an upstream: bytes out, messages in, and how it ended.

An adapter (`child`, `http`, `http_sse`, `memory`) only carries. What a message means, who waits
for which answer and for how long is the business of `Exchange`, the same over every wire.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from portico.model.errors import TargetError
from portico.model.version import Version

MAX_MESSAGE = 16 * 1024 * 1024
"""The longest message taken from an upstream, in bytes."""

NO_HEADERS: Mapping[str, str] = {}

Data = bytes | Callable[[], bytes]
"""Bytes, or a function that makes them when they are sent: large ones are not kept twice while they
wait."""


def made(data: Data) -> bytes:
    """The bytes themselves."""
    return data if isinstance(data, bytes) else data()


class Outgoing(Struct, frozen=True):
    """One message on its way out."""

    data: Data
    id: bytes = b""
    """The raw id of a request; empty for what nobody answers."""
    headers: Mapping[str, str] = NO_HEADERS
    """What HTTP mirrors of the body; other wires have no use for it."""


class Failure(Struct, frozen=True, kw_only=True):
    """How a wire, or one request on it, came to its end."""

    server: str
    why: str
    kind: str = "failed"
    """`exited`, `closed`, `http`, `network`, `too_large`, `garbage` or `start`."""
    exit_code: int | None = None
    status: int | None = None
    body: bytes = b""
    """What an HTTP server sent with its status."""
    stderr: str = ""
    """The last words of a child process."""
    retry_after_s: int | None = None
    """How long an HTTP server wants to be left alone."""

    def error(self) -> TargetError:
        """The failure as an error of its own for each who waited."""
        details: dict[str, Any] = {
            "exit_code": self.exit_code,
            "status": self.status,
            "retry_after_s": self.retry_after_s,
        }
        if self.stderr:
            details["stderr"] = self.stderr
        return TargetError(
            f"{self.server} {self.why}{_quoted(self.stderr)}",
            kind=self.kind,
            server=self.server,
            **{key: value for key, value in details.items() if value is not None},
        )


def _quoted(stderr: str) -> str:
    if not stderr:
        return ""
    return "; its last words:\n" + "\n".join(f"  {line}" for line in stderr.splitlines())


class Receiver(Protocol):
    """Who gets what comes in. All calls are made on the event loop, in order of arrival."""

    answered: int
    """How many answers came that somebody waited for."""

    def received(self, message: bytes, about: bytes = b"") -> None:
        """One message came; `about` is the request on whose own stream it came, if it did."""
        ...

    def spoiled(self, remains: bytes, why: str) -> None:
        """A message came that cannot be taken; its id may be among what remains of it."""
        ...

    def failed(self, id: bytes, failure: Failure) -> None:
        """One request will get no answer; the wire lives on."""
        ...

    def lost(self, failure: Failure) -> None:
        """The wire has ended by itself: nothing more will come."""
        ...

    def hung_up(self, id: bytes) -> None:
        """The upstream closed a request's stream, and is to be polled for the rest of it."""
        ...

    def waits(self, id: bytes) -> bool:
        """True while somebody waits for the answer to this request."""
        ...


class Wire(Protocol):
    """One connection to an upstream. It is opened once and closed once.

    The defaults are those of a pipe that all requests share, and that takes its time.
    """

    transport: str
    """`stdio`, `http`, `sse` or `memory`, for people."""
    mirrors: bool = False
    """True if headers mirror the body and each request has a stream, whose closing cancels it."""

    async def open(self, receiver: Receiver) -> None:
        """Get ready to send; raises TargetError."""
        ...

    async def send(self, message: Outgoing) -> None:
        """Send one message, waiting while the upstream is slow to read; raises TargetError."""
        ...

    def send_now(self, message: Outgoing) -> bool:
        """Send one message if that needs no waiting; False if it was not sent."""
        return False

    def abandon(self, id: bytes) -> None:
        """Nobody waits for this request any more."""
        return

    def settle(self, version: Version) -> None:
        """The two sides have agreed on a version."""
        return

    async def close(self) -> None:
        """End the connection in an orderly way; whatever it started is gone afterwards."""
        ...


class Address(Protocol):
    """Where an upstream is, and how to get there."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def wire(self) -> Wire:
        """A new connection, not yet open."""
        ...

    def older(self) -> Wire | None:
        """A connection by the transport that came before, if there is one."""
        ...
