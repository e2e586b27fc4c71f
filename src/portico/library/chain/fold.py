"""The fold of links around a handler, and the terminus of every chain."""

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from hashlib import blake2b
from types import CoroutineType
from typing import Any, TypeGuard

from portico.core.model.context import Context
from portico.core.model.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    McpError,
    RegistrationError,
)
from portico.core.model.message import NOTHING, Request, Response
from portico.core.model.types import Answer, Handler, Link
from portico.core.protocol.codec import error_response, mcp_error_response
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


Bind = Callable[[Handler], Handler]
"""Binds the contexts that links get."""
COMPONENT = "portico_component"
"""The attribute of a link that was loaded from a file: the name of its component."""
CATALOG_UNKNOWN = "the catalog of this server is not known yet; retry later"


def fold(links: Sequence[Link], innermost: Handler) -> Handler:
    """Wrap a handler in Portico's own links, the first one outermost."""
    handler = innermost
    for link in reversed(links):
        handler = folded(link, handler)
    return handler


def fold_links(
    links: Sequence[Link], innermost: Handler, rounds: Bind | None = None, position: str = ""
) -> Handler:
    """Wrap a handler in links of the user; each gets the McpErrors behind it as answers. `rounds`
    binds the contexts of an endpoint, so that links can ask; links that are part of another one
    have its `position` instead."""
    if not links:
        return innermost
    handler = answering(innermost if rounds is None else reached(innermost))
    for number, link in reversed(list(enumerate(links))):
        handler = placed(folded(link, handler), f"{position}{number}", link)
    return handler if rounds is None else rounds(handler)


def reached(handler: Handler) -> Handler:
    """Note in the context that a request has passed all links."""

    def handle(request: Request, context: Context) -> Answer:
        context.is_reached = True
        return handler(request, context)

    return handle


def placed(handler: Handler, position: str, link: Link) -> Handler:
    """Return McpErrors of a link as answers, and let its questions be its own."""
    name = component_name(link)

    def answer(request: Request, context: Context) -> Answer:
        try:
            answer = handler(request, context)
        except McpError as error:
            return _refusal(request, error)
        # The coroutines of links are of this type; `iscoroutine` would be one more call for each.
        if type(answer) is not CoroutineType or answer.cr_code in _AWAITED:
            return answer
        # The link itself waits, and may ask.
        return _linked(answer, LinkPlace(position, name, request, context))

    return answer


async def _linked(answer: Awaitable[Response], place: LinkPlace) -> Response:
    token = PLACE.set(place)
    try:
        return await answer
    except McpError as error:
        return _refusal(place.request, error)
    finally:
        PLACE.reset(token)


def folded(link: Link, next: Handler) -> Handler:
    """Return a link's own handler; raises RegistrationError if it returned none."""
    made: object = link(next)
    if not callable(made):
        what = f"the link {link_name(link)!r} returned {type(made).__name__}, not a handler"
        how = "return a function that takes a request and a context"
        raise RegistrationError(f"{_place_of(link)}{what}; {how}")
    return made


def answering(handler: Handler) -> Handler:
    """Return McpErrors of a handler as answers, so that the link before it sees all of them."""

    def answer(request: Request, context: Context) -> Answer:
        try:
            answer = handler(request, context)
        except McpError as error:
            return _refusal(request, error)
        return _passed_on(answer, request) if type(answer) is CoroutineType else answer

    return answer


async def _passed_on(answer: Awaitable[Response], request: Request) -> Response:
    try:
        return await answer
    except McpError as error:
        return _refusal(request, error)


def is_waiting(answer: Answer) -> TypeGuard[Awaitable[Response]]:
    """True for the answer of a link that waits itself, and does not only pass one on."""
    return type(answer) is CoroutineType and answer.cr_code is _linked.__code__


_AWAITED = (_linked.__code__, _passed_on.__code__)
"""Answers that a link has only passed on."""


def _refusal(request: Request, error: McpError) -> Response:
    return mcp_error_response(request.id, error) if request.id else NOTHING


def link_name(link: Any) -> str:
    """Return the name of a link for messages: that of its function or class."""
    return str(getattr(link, "__name__", None) or type(link).__name__)


def component_name(link: Any) -> str:
    """Return the name of a link for people: that of its component, or of its function or class."""
    return str(getattr(link, COMPONENT, "") or link_name(link))


def _place_of(link: Any) -> str:
    """Return `FILE:LINE: ` of a link for messages; empty if it has no code in Python."""
    from portico.core.state.error_location import shown_path  # only failures need it

    code = getattr(link, "__code__", None) or getattr(type(link).__call__, "__code__", None)
    return f"{shown_path(code.co_filename)}:{code.co_firstlineno}: " if code else ""


def terminus(request: Request) -> Response:
    """Return the error that no provider owns the requested name."""
    if request.method in ("tools/call", "prompts/get"):
        what = "tool" if request.method == "tools/call" else "prompt"
        message = f"unknown {what}: {request.name[:200]}" if request.name else f"no {what} named"
        return error_response(request.id, INVALID_PARAMS, message)
    if request.method.startswith("resources/"):
        uri = request.uri or request.name
        code = INVALID_PARAMS if request.version.modern else RESOURCE_NOT_FOUND
        message = f"unknown resource: {uri[:200]}"
        return error_response(request.id, code, message, {"uri": uri[:2000]})
    if request.method == "completion/complete":
        return error_response(request.id, INVALID_PARAMS, "no completions for that reference")
    return error_response(request.id, METHOD_NOT_FOUND, f"method not found: {request.method[:200]}")
