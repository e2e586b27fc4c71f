"""A note to a person who starts a server at a terminal: it waits for a client, not for them."""

import sys

from portico.state.report import report


def tell_waiting(what: str, over_http: str, program: str = "") -> None:
    """Say on stderr what is served and waited for, if standard input is a terminal; by which
    command it would be served over HTTP; and that `program`, to be started later, is missing."""
    if sys.stdin.isatty():
        import shutil  # slow to import, and clients wait

        if program and shutil.which(program) is None:
            report(f"there is no command {program!r}; clients will get an error")
        report(
            f"serving {what} over stdio; waiting for an MCP client on standard input.\n"
            f"  Press Ctrl-C to stop. For an HTTP endpoint: {over_http}"
        )
