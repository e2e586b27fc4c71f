"""Reports for the operator, on stderr."""

from portico.model.message import Request
from portico.model.wording import printable
from portico.state.stderr import STDERR


def report(words: str) -> None:
    """Write a report."""
    # It may quote a server, and a terminal would interpret its control characters.
    lines = "\n".join(map(printable, words.split("\n")))
    STDERR.write_line(f"portico: {lines}")


def failed(request: Request, error: BaseException) -> None:
    """Log an internal error with its traceback."""
    import logging

    logging.getLogger("portico").error("%s failed", request.method, exc_info=error)
