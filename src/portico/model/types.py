"""The one signature, and the few shapes that compose because of it."""

from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

from portico.model.context import Context
from portico.model.message import Request, Response
from portico.model.offer import Offer

Answer = Response | Awaitable[Response]
"""What a handler returns. Any answer can be awaited; a `Response` is ready to be written."""

Handler = Callable[[Request, Context], Answer]
"""Answers one request. The core, every link and the whole chain have this signature."""

Link = Callable[[Handler], Handler]
"""Given the next handler, a handler that changes or guards requests on their way to it."""

Report = Callable[[Request, BaseException], None]
"""Tells the operator what failed, and in which request."""


class Change:
    """What changed: a list (`tools`, `resources`, `prompts`), or one resource if a URI is given."""

    __slots__ = ("kind", "params", "uri")

    def __init__(self, kind: str, uri: str = "", params: bytes = b"") -> None:
        self.kind = kind
        self.uri = uri
        self.params = params
        """The raw params in which an upstream said so, which may say more."""


@runtime_checkable
class Notified(Protocol):
    """A provider that hears the notifications of clients."""

    def on_notification(self, request: Request, context: Context) -> None:
        """Take in what a client says without waiting for an answer."""
        ...


@runtime_checkable
class LogLevelAware(Protocol):
    """A provider that hears which log messages a client wants."""

    async def set_level(self, request: Request, context: Context) -> None:
        """A client wants log messages from the level on that its session has now."""
        ...


class Provider(Protocol):
    """Something that owns tools, resources, prompts or completions, and answers for them."""

    name: str

    def offer(self) -> Offer:
        """All it offers now, as an immutable snapshot."""
        ...

    def provide(self, request: Request, context: Context) -> Answer | None:
        """Answer a request for something it owns; None, without waiting, says "not mine"."""
        ...

    def watch(self, changed: Callable[[Change], None]) -> None:
        """Have every later change of its offer, or of a resource, told to this function."""
        ...
