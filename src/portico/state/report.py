"""Tells the operator, never the client: on stderr."""

from portico.model.message import Request
from portico.state.stderr import STDERR


def report(words: str) -> None:
    """Tell the operator."""
    # Some of the words may be a server's, and a terminal would obey them.
    lines = "\n".join(map(printable, words.split("\n")))
    STDERR.say(f"portico: {lines}")


def printable(line: str) -> str:
    """A line with all that is not to be seen written out."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in line)


def failed(request: Request, error: BaseException) -> None:
    """Tell the operator where we failed ourselves."""
    import logging

    logging.getLogger("portico").error("%s failed", request.method, exc_info=error)
