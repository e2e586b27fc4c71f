"""A link that observes every finished call, however it ends, and changes nothing."""

from collections.abc import Callable
from time import perf_counter

import msgspec
from msgspec import Struct

from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.methods import MethodKind
from portico.core.model.types import Answer, Handler, Link
from portico.core.state.pending import observed

CallObserver = Callable[[Request, Context, Response | None, float], None]
"""Called for every finished call with the request, its context, the response (None if it was
cancelled) and the duration in seconds."""
_CALL = MethodKind.CALL  # members of an enum are slow to look up
OK, TOOL_ERROR, ERROR, CANCELLED = "ok", "tool-error", "error", "cancelled"
_IS_ERROR = b'"isError"'


class _Result(Struct):
    isError: bool = False  # noqa: N815  (a field of the wire)


_read_result = msgspec.json.Decoder(_Result).decode


def observing(over: CallObserver) -> Link:
    """Return a link that calls this function for every finished call."""

    def link(next: Handler) -> Handler:
        def handle(request: Request, context: Context) -> Answer:
            meaning = request.meaning
            if meaning is None or meaning.kind is not _CALL:
                return next(request, context)
            began = perf_counter()

            def done(response: Response | None) -> None:
                over(request, context, response, perf_counter() - began)

            return observed(next(request, context), done)

        return handle

    return link


def outcome(request: Request, response: Response | None) -> str:
    """Return the outcome of a call: one of the words above, an error with its code."""
    if response is None:
        return CANCELLED
    if response.error:
        return f"{ERROR} {response.code}"
    if request.method != "tools/call":
        return OK
    result = response.result
    at = result.find(_IS_ERROR)
    if at < 0:
        return OK
    # Most servers always send it. Only a second one, or another spelling, needs parsing.
    after = at + len(_IS_ERROR)
    if result.startswith(b":false", after) and result.find(_IS_ERROR, after) < 0:
        return OK
    try:
        return TOOL_ERROR if _read_result(result).isError else OK
    except msgspec.DecodeError:
        return OK  # the client reports a result that it cannot parse
