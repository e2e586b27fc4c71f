"""A note to a person who starts a server at a terminal: it waits for a client, not for them."""

import sys

from portico.state.report import report


def tell_waiting(what: str, over_http: str) -> None:
    """Say on stderr what is served and waited for, if standard input is a terminal; and by which
    command it would be served over HTTP."""
    if sys.stdin.isatty():
        report(
            f"serving {what} over stdio; waiting for an MCP client on standard input.\n"
            f"  Press Ctrl-C to stop. For an HTTP endpoint: {over_http}"
        )
