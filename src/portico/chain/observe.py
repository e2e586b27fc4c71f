"""A link that sees each call that is over, however it ends, and changes nothing."""

from collections.abc import Callable
from time import perf_counter

from portico.model.context import Context
from portico.model.message import Request, Response
from portico.model.methods import Kind
from portico.model.types import Answer, Handler, Link
from portico.state.pending import observed

Over = Callable[[Request, Context, Response | None, float], None]
"""Told of every call that is over: the request, who asked, the answer (None if it was cancelled)
and how many seconds it took."""
_CALL = Kind.CALL  # members of an enum are slow to look up


def observing(over: Over) -> Link:
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
