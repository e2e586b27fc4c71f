"""The stderr of commands that serve: log records, and a note for a user at a terminal."""

import logging
import sys
from typing import TYPE_CHECKING

from portico.core.model.errors import PorticoError
from portico.core.state.report import report
from portico.core.state.stderr import STDERR

if TYPE_CHECKING:
    from portico.core.config.schema import Config


class StderrLog(logging.Handler):
    """Writes log records to stderr without blocking, even if stderr is not read."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write each line of a record."""
        for line in self.format(record).splitlines():
            STDERR.write_line(line)

    def flush(self) -> None:
        """Wait briefly for unwritten lines."""
        STDERR.flush()


def log_to_stderr() -> None:
    """Log warnings to stderr, unless imported code has configured logging."""
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(StderrLog(logging.WARNING))


def keep_stdout(other: str | None) -> int | None:
    """Reserve standard output for a client over stdio, so that imports cannot print to it; do
    nothing if another transport serves the clients."""
    if other is not None:
        return None
    from portico.core.state.stdout import take_stdout

    return take_stdout()


def report_waiting(what: str, over_http: str, program: str = "") -> None:
    """If standard input is a terminal, report that Portico waits for a client, how to serve over
    HTTP, and whether `program`, which is started later, is missing."""
    if sys.stdin.isatty():
        import shutil  # slow to import, and clients wait

        if program and shutil.which(program) is None:
            report(f"command {program!r} not found; clients will get an error")
        report(
            f"serving {what} over stdio; waiting for an MCP client on standard input.\n"
            f"  Press Ctrl-C to stop. For an HTTP endpoint: {over_http}"
        )


def report_no_servers(config: "Config", path: str | None, group: str | None) -> None:
    """Report how to add or enable a server, which is then served without a restart; not if there
    are agents."""
    import shlex

    from portico.gateway.serve.gateway_agents import has_agents

    if has_agents(config):
        return
    which = f" --config {shlex.quote(path)}" if path else ""
    if config.entries:
        members = f"group {group} of " if group else ""
        report(
            f"all servers of {members}{config.path} are disabled; "
            f"enable one with `portico servers enable NAME{which}`"
        )
    else:
        report(
            f"{config.path} has no servers; "
            f"add one with `portico servers add NAME{which} COMMAND ARGS...`; no restart is needed"
        )


def print_own_traceback(error: BaseException) -> None:
    """Print the traceback of the user's code, unless the error explains itself."""
    if isinstance(error, PorticoError | SystemExit):
        return
    import traceback

    from portico.core.state.error_location import own_traceback

    sys.stderr.write("".join(traceback.format_exception(type(error), error, own_traceback(error))))
