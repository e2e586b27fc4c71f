"""`portico run`: serve components over stdio or HTTP."""

import sys
from typing import TYPE_CHECKING

from portico.cli.door import DoorOptions, add_door
from portico.cli.stderr import keep_stdout, log_to_stderr, report_waiting
from portico.components.load import LoadError
from portico.model.errors import PorticoError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from portico.cli.usage import Parser
    from portico.model.types import Link
    from portico.server import Server


class _Options(DoorOptions):
    def __init__(self, component: list[str]) -> None:
        super().__init__()
        self.component = component
        self.handlers: str | None = None


def main(argv: list[str], links: "Sequence[Link]" = ()) -> int:
    """Serve until the client disconnects or a signal arrives."""
    options = _options(argv)
    out = keep_stdout(options.http)  # before the user's code is imported
    try:
        server, own_links = _load(options.component, options.handlers, options.name)
    except LoadError as error:
        report_failure(error)
        return 1
    links = (*links, *own_links)
    log_to_stderr()
    if options.http is None:
        from portico.app import serve_stdio

        report_waiting(server.name, "portico run --http 8000 ...")
        return serve_stdio(server, links=links, out=out, drain_s=options.drain)
    from portico.app import serve_http

    serve_http(server, options.http, links=links, **options.at)
    return 0


def _load(
    components: list[str], handlers: str | None, name: str | None
) -> "tuple[Server, list[Link]]":
    from portico.components.classify import classify
    from portico.components.load import import_file, load_file
    from portico.server import Server

    functions = None if handlers is None else import_file(handlers)
    loaded = [load_file(classify(component), functions) for component in components]
    servers = [one.server for one in loaded if one.server is not None]
    links = [link for one in loaded for link in one.links]
    if len(servers) > 1:
        return Server.compose(name or "portico", *servers), links
    if name:
        servers[0].rename(name)
    return servers[0], links


def report_failure(error: "LoadError") -> None:
    """Print why a file could not be loaded: the user's own line first, then the traceback."""
    import traceback

    from portico.state.own_line import own_traceback
    from portico.state.report import report

    report(str(error))
    if not isinstance(error.reason, PorticoError | SystemExit):
        lines = traceback.format_exception(own_traceback(error.reason))
        sys.stderr.write("".join(lines))


def _options(argv: list[str]) -> _Options:
    options = _Options(argv)
    if argv and not any(word.startswith("-") for word in argv):
        return options  # clients start it like this, and argparse is slow to import
    parser = _parser()
    parser.parse_args(argv, namespace=options)
    if options.handlers and not any(word.endswith(".json") for word in options.component):
        parser.error("--handlers needs a definitions file (.json); add one or remove the option")
    return options


def _parser() -> "Parser":
    from portico.cli.usage import Parser

    parser = Parser(
        prog="portico run",
        description="Serve a Python file with a Server, or a definitions file, as an MCP server. "
        "Several components become one server.",
    )
    add = parser.add_argument
    what = "server.py, server.py:NAME or tools.json"
    add("component", nargs="+", metavar="COMPONENT", help=what)
    what = "Python file with the functions for a definitions file"
    add("--handlers", metavar="FILE", help=what)
    add_door(add)
    add("--name", help="name of the server (default: its own name)")
    return parser
