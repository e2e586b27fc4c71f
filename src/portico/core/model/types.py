"""The signature of handlers, and the types that compose because of it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.offer import Offer

Answer = Response | Awaitable[Response]
"""The return value of a handler. Any answer can be awaited; a `Response` is complete."""

Handler = Callable[[Request, Context], Answer]
"""Answers one request. The core, every link and the whole chain have this signature."""

Link = Callable[[Handler], Handler]
"""Takes the next handler and returns one that changes or guards the requests to it."""

Report = Callable[[Request, BaseException], None]
"""Reports a failure in a request to the operator."""


class LinkedEndpoint(NamedTuple):
    """An endpoint behind its link of tasks: all links of the user, and its providers."""

    handle: Handler
    """Makes the call of a task, which the observers of the endpoint see."""
    pass_links: Handler
    """The same, unobserved: for a result that passes the links later than the answer."""
    hides: Callable[[Request, Context], Awaitable[bool]] | None
    """True if the tool of a call is hidden from clients; None if nothing is."""
    identify: Callable[[Request, Context], bytes]
    """Returns the identity of the server as JSON, for a call that is stored before it is made."""
    has_links: bool


class Endpoint(Protocol):
    """The handler of requests that a transport serves."""

    def handle(self, request: Request, context: Context) -> Answer:
        """Return the answer; this and awaiting it raise nothing but CancelledError."""
        ...


@runtime_checkable
class LimitedEndpoint(Endpoint, Protocol):
    """The endpoint of a client whose access is limited, and ends by itself."""

    principal: str
    """The principal of all its requests."""

    def on_end(self, callback: Callable[[], object]) -> None:
        """Call a function when the access ends, or now if it has ended."""
        ...


@runtime_checkable
class EndpointByClient(Endpoint, Protocol):
    """An endpoint that passes requests to others, by their clients."""

    @property
    def by_client(self) -> Mapping[tuple[str, bytes], Endpoint]:
        """The endpoints of modern clients that are known, by principal and raw `clientInfo`."""
        ...


class Change:
    """A change of a list (`tools`, `resources`, `prompts`), or of the resource with a URI."""

    __slots__ = ("kind", "params", "uri")

    def __init__(self, kind: str, uri: str = "", params: bytes = b"") -> None:
        self.kind = kind
        self.uri = uri
        self.params = params
        """The raw params of the upstream's notification, which may have further fields."""


@runtime_checkable
class Notified(Protocol):
    """A provider that receives the notifications of clients."""

    def on_notification(self, request: Request, context: Context) -> None:
        """Receive a notification from a client."""
        ...


@runtime_checkable
class LogLevelAware(Protocol):
    """A provider that sends log messages."""

    async def set_level(self, request: Request, context: Context) -> None:
        """Apply the log level that the client's session has now."""
        ...


class Provider(Protocol):
    """Owns tools, resources, prompts or completions, and answers requests for them."""

    name: str

    def offer(self) -> Offer:
        """Return an immutable snapshot of all it offers."""
        ...

    def provide(self, request: Request, context: Context) -> Answer | None:
        """Answer a request for something it owns; return None immediately if it does not own it."""
        ...

    def watch(self, changed: Callable[[Change], None]) -> None:
        """Call a function on every later change of its offer or of a resource."""
        ...
