"""`portico logs`: show the gateway's log."""

import contextlib
import os
import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from portico.commands.cli.gateway import warn_broken
from portico.commands.console.argument_types import integer
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen
from portico.commands.console.running import running_statuses, serves
from portico.core.config.paths import config_file, log_file
from portico.core.documents.problems import ConfigError
from portico.core.model.errors import PorticoError
from portico.core.protocol.codec import decoded
from portico.library.observe.log_tail import LogTail, last_lines

_GATEWAY_LABEL = "portico"
_WIDTH = 12


def main(argv: list[str]) -> int:
    """Show the end of the log; with -f, also new lines until Ctrl-C."""
    options = _parser().parse_intermixed_args(argv)
    path = _log_path(options.config)
    if not os.path.exists(path) and not options.follow:
        raise PorticoError(f"there is no log yet at {path}; `portico serve` writes it")
    view = _View(options.server, options.json)
    with LogTail(path) as lines:
        shown = view.show(last_lines(path, options.lines, view.matches, lines.start()))
        if options.follow:
            _follow(lines, view, path)
        elif options.lines and not shown:
            about = f" of {options.server!r}" if options.server else ""
            Screen(sys.stderr).print(f"portico: no lines{about} in {path}")
    return 0


def _follow(lines: LogTail, view: "_View", path: str) -> None:
    if not os.path.exists(path):
        Screen(sys.stderr).print(f"portico: waiting for {path}")
        sys.stderr.flush()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            view.show(line for line in lines.read_new() if view.matches(line))
            view.screen.check_reader()


class _View:
    """Filters and prints lines of the log."""

    def __init__(self, server: str | None, as_json: bool) -> None:
        self._server = server
        self._as_json = as_json
        self.screen = Screen(sys.stdout)

    def matches(self, line: bytes) -> bool:
        """True for a valid line about the selected server, or about any if none is selected."""
        record = _read(line)
        return record is not None and (self._server is None or _is_about(record, self._server))

    def show(self, lines: Iterable[bytes]) -> int:
        """Print the lines and return how many there were."""
        count = 0
        for line in lines:
            count += 1
            record = _read(line)
            if self._as_json:
                self.screen.print(line.decode(errors="replace"))
            elif record is not None:
                self.screen.print(*_format(record))
        self.screen.stream.flush()
        return count


def _read(line: bytes) -> dict[str, Any] | None:
    """The record in a line; None if the line is cut off or not ours."""
    return decoded(line, dict[str, Any]) if line else None


def _is_about(record: dict[str, Any], server: str) -> bool:
    """True for the server's calls and stderr, and for events that begin with its name."""
    if record.get("kind") == "event":
        return str(record.get("text")).startswith(f"{server} ")
    return record.get("server") == server


def _format(record: dict[str, Any]) -> tuple[str, str]:
    """The text of a record, and its style."""
    kind = record.get("kind")
    server = record.get("server") or _GATEWAY_LABEL
    style = ""
    if kind == "call":
        what, style = _call(record)
    elif kind == "stderr":
        what, style = f"| {record.get('text')}", "dim"
    else:
        what = str(record.get("text"))
    # Further lines are indented below the first.
    what = what.rstrip().replace("\n", "\n    ")
    return f"{_local(record.get('time'))}  {str(server).ljust(_WIDTH)}  {what}", style


def _call(record: dict[str, Any]) -> tuple[str, str]:
    outcome = str(record.get("outcome"))
    client = f"  from {record['client']}" if record.get("client") else ""
    what = f"{record.get('tool') or record.get('method')}{record.get('arguments') or ''}"
    style = "" if outcome == "ok" else "yellow" if outcome == "cancelled" else "red"
    return f"{what}  {outcome}  {record.get('ms')} ms{client}", style


def _local(time: Any) -> str:
    try:
        return datetime.fromisoformat(str(time)).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return str(time)


def _log_path(given: str | None) -> str:
    """The path of the log; if the config is invalid, that of the running gateway."""
    from portico.core.config.read import read

    file = given or config_file()
    if given is None and not os.path.lexists(file):
        return log_file()
    try:
        log = read(file, only=()).gateway.log
    except ConfigError as error:
        found = (status for _, status in running_statuses() if serves(status, file))
        log = next((str(status["log"]) for status in found if status.get("log")), None)
        if log is None and given is not None:
            raise
        warn_broken(error, f"showing the log at {log or log_file()}")
    if log == "off":
        raise PorticoError(f'there is no log: gateway.log is "off" in {file}')
    return log or log_file()


def _parser() -> Parser:
    parser = Parser(
        prog="portico logs",
        description="Show the log of `portico serve`: calls without the values of their "
        "arguments, the stderr of servers, and events of the gateway.",
    )
    add = parser.add_argument
    add("server", nargs="?", metavar="SERVER", help="only lines of this server")
    add("-f", "--follow", action="store_true", help="show new lines until Ctrl-C")
    count = integer("a number of lines", 0, 999_999_999)
    what = "show at most N lines (default 50)"
    add("-n", "--lines", type=count, default=50, metavar="N", help=what)
    parser.add_config()
    parser.add_json("print the log's JSON lines")
    return parser
