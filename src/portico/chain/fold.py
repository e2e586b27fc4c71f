"""The fold: one handler out of links and what they guard; and the end of every chain."""

from collections.abc import Sequence

from portico.model.errors import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
)
from portico.model.message import Request, Response
from portico.model.types import Handler, Link
from portico.protocol.codec import error_response


def fold(links: Sequence[Link], innermost: Handler) -> Handler:
    """Wrap a handler in links, the first one outermost."""
    handler = innermost
    for link in reversed(links):
        handler = link(handler)
    return handler


def terminus(request: Request) -> Response:
    """The end of every chain: nobody owns what was asked for."""
    if request.method in ("tools/call", "prompts/get"):
        what = "tool" if request.method == "tools/call" else "prompt"
        message = f"unknown {what}: {request.name[:200]}" if request.name else f"which {what}?"
        return error_response(request.id, INVALID_PARAMS, message)
    if request.method.startswith("resources/"):
        asked = request.uri or request.name
        code = INVALID_PARAMS if request.version.modern else RESOURCE_NOT_FOUND
        return error_response(
            request.id, code, f"unknown resource: {asked[:200]}", {"uri": asked[:2000]}
        )
    if request.method == "completion/complete":
        return error_response(
            request.id, INVALID_PARAMS, "nobody completes arguments of that reference"
        )
    return error_response(request.id, METHOD_NOT_FOUND, f"method not found: {request.method[:200]}")
