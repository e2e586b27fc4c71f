"""Reports for the operator, on stderr."""

from portico.core.model.message import Request
from portico.core.model.wording import printable
from portico.core.state.stderr import STDERR


def report(words: str) -> None:
    """Write a report."""
    # It may quote a server, and a terminal would interpret its control characters.
    lines = "\n".join(map(printable, words.split("\n")))
    STDERR.write_line(f"portico: {lines}")


def failed(request: Request, error: BaseException) -> None:
    """Log the exception of a handler or link: the user's own line first, then the traceback. The
    client only gets an internal error."""
    import logging

    from portico.core.state.error_location import error_location, own_traceback

    what = f"{request.method} {request.name or request.uri}".rstrip()
    where = error_location(error)
    at, trace = f" at {where}" if where else "", own_traceback(error)
    exc_info = (type(error), error, trace)
    logging.getLogger("portico").error("%s failed%s", what, at, exc_info=exc_info)
