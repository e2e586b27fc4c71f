"""Tells the operator, never the client: on stderr."""

from portico.model.message import Request
from portico.model.wording import printable
from portico.state.stderr import STDERR


def report(words: str) -> None:
    """Tell the operator."""
    # Some of the words may be a server's, and a terminal would obey them.
    lines = "\n".join(map(printable, words.split("\n")))
    STDERR.say(f"portico: {lines}")


def failed(request: Request, error: BaseException) -> None:
    """Tell the operator where we failed ourselves."""
    import logging

    logging.getLogger("portico").error("%s failed", request.method, exc_info=error)
