"""What commands that serve tell on stderr: what is logged, and whom they wait for."""

import logging
import sys

from portico.state.report import report
from portico.state.stderr import STDERR


class StderrLog(logging.Handler):
    """Has each line of a record written; one who does not read it stops nobody."""

    def emit(self, record: logging.LogRecord) -> None:
        """Have a record written."""
        for line in self.format(record).splitlines():
            STDERR.say(line)

    def flush(self) -> None:
        """Wait a moment for what is not written yet."""
        STDERR.flush()


def log_to_stderr() -> None:
    """Log there, unless whoever was imported has arranged for something else."""
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(StderrLog(logging.WARNING))


def keep_stdout(http: str | None) -> int | None:
    """Keep standard output for a client over stdio, whatever an import might print there."""
    if http is not None:
        return None
    from portico.transport.pipes import take_stdout

    return take_stdout()


def report_waiting(what: str, over_http: str, program: str = "") -> None:
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
