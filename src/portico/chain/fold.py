"""The fold of links around a handler, and the terminus of every chain."""

from collections.abc import Awaitable, Sequence
from inspect import iscoroutine
from typing import Any

from portico.model.context import Context
from portico.model.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    McpError,
    RegistrationError,
)
from portico.model.message import NOTHING, Request, Response
from portico.model.types import Answer, Handler, Link
from portico.protocol.codec import error_response, mcp_error_response

CATALOG_UNKNOWN = "the catalog of this server is not known yet; retry later"


def fold(links: Sequence[Link], innermost: Handler) -> Handler:
    """Wrap a handler in Portico's own links, the first one outermost."""
    handler = innermost
    for link in reversed(links):
        handler = folded(link, handler)
    return handler


def fold_links(links: Sequence[Link], innermost: Handler) -> Handler:
    """Wrap a handler in links of the user; each gets the McpErrors behind it as answers."""
    handler = innermost
    for link in reversed(links):
        handler = folded(link, answering(handler))
    return handler


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
        return _awaited(answer, request) if iscoroutine(answer) else answer

    return answer


async def _awaited(answer: Awaitable[Response], request: Request) -> Response:
    try:
        return await answer
    except McpError as error:
        return _refusal(request, error)


def _refusal(request: Request, error: McpError) -> Response:
    return mcp_error_response(request.id, error) if request.id else NOTHING


def link_name(link: Any) -> str:
    """Return the name of a link for messages: that of its function or class."""
    return str(getattr(link, "__name__", None) or type(link).__name__)


def _place_of(link: Any) -> str:
    """Return `FILE:LINE: ` of a link for messages; empty if it has no code in Python."""
    from portico.state.own_line import shown_path  # only failures need it

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
