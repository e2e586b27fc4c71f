"""The link of a chain that runs now, so that its questions are known as its own."""

from contextvars import ContextVar
from hashlib import blake2b

from portico.core.model.context import Context
from portico.core.model.message import Request
from portico.core.protocol.eras import members


class LinkPlace:
    """A link of the chain while it has a request."""

    __slots__ = ("asked", "context", "name", "position", "request")

    def __init__(self, position: str, name: str, request: Request, context: Context) -> None:
        """`position` is that of the link in the chain."""
        self.position = position
        self.name = name
        self.request = request
        self.context = context
        self.asked: dict[str, object] = {}
        """The words of its questions, by key."""

    @property
    def key(self) -> str:
        """The name of its part: the position of the link, and the call that it got."""
        request = self.request
        arguments = bytes(members(request.params).get("arguments", b""))
        call = f"{request.method}\0{request.name}\0{request.uri}\0".encode()
        digest = blake2b(call + arguments, digest_size=8).hexdigest()
        return f"{self.position}:{self.name}:{digest}"


PLACE: ContextVar[LinkPlace | None] = ContextVar("place", default=None)
"""The link that runs now; each task of the event loop has its own."""
