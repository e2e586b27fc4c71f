"""Tells the operator, never the client: on stderr."""

import sys

from portico.model.message import Request


def report(words: str) -> None:
    """Tell the operator."""
    sys.stderr.write(f"portico: {words}\n")
    sys.stderr.flush()


def failed(request: Request, error: BaseException) -> None:
    """Tell the operator where we failed ourselves."""
    import logging

    logging.getLogger("portico").error("%s failed", request.method, exc_info=error)
