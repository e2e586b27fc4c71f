"""A link that sees each call that is over, however it ends, and changes nothing."""

from collections.abc import Callable
from time import perf_counter

import msgspec
from msgspec import Struct

from portico.model.context import Context
from portico.model.message import Request, Response
from portico.model.methods import MethodKind
from portico.model.types import Answer, Handler, Link
from portico.state.pending import observed

CallObserver = Callable[[Request, Context, Response | None, float], None]
"""Told of every call that is over: the request, who asked, the answer (None if it was cancelled)
and how many seconds it took."""
_CALL = MethodKind.CALL  # members of an enum are slow to look up
OK, TOOL_ERROR, ERROR, CANCELLED = "ok", "tool-error", "error", "cancelled"
_IS_ERROR = b'"isError"'


class _Result(Struct):
    isError: bool = False  # noqa: N815  (a field of the wire)


_read_result = msgspec.json.Decoder(_Result).decode


def observing(over: CallObserver) -> Link:
    """A link that tells this function of every call."""

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
    """How a call went: one of the words above, an error with its code."""
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
    # Most servers write it each time. Only a second one, or another spelling, needs reading.
    after = at + len(_IS_ERROR)
    if result.startswith(b":false", after) and result.find(_IS_ERROR, after) < 0:
        return OK
    try:
        return TOOL_ERROR if _read_result(result).isError else OK
    except msgspec.DecodeError:
        return OK  # whatever it is, it is the client's to read
