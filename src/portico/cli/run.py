"""`portico run`: serve components as one server, over stdio, HTTP or another transport."""

from typing import TYPE_CHECKING

from portico.cli.door import DoorOptions, add_door
from portico.cli.serve_server import serve_server
from portico.cli.stderr import keep_stdout, log_to_stderr, print_own_traceback, report_waiting
from portico.components.load import LoadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from portico.app import TransportOptions
    from portico.cli.usage import Parser
    from portico.components.classify import Component
    from portico.components.composition import Composer, Composition
    from portico.model.types import Link
    from portico.server import Server
    from portico.transport.custom_transport import Transport


class _Options(DoorOptions):
    def __init__(self, component: list[str]) -> None:
        super().__init__()
        self.component = component
        self.handlers: str | None = None
        self.prefix = False
        self.shadow: list[str] = []
        self.override: list[str] = []
        self.config: str | None = None
        self.watch = False
        self.transport: str | None = None
        self.listen: str | None = None

    @property
    def has_one_client(self) -> bool:
        """True for stdio, the default."""
        return self.http is None and self.transport is None

    @property
    def loaded_transport(self) -> "Transport":
        """The transport of the user's own file."""
        from portico.cli.transport_option import load_transport

        return load_transport(self.transport or "")

    @property
    def over(self) -> "TransportOptions":
        """The options for serving over a transport of the user's own."""
        return {"address": self.listen, "drain_s": self.drain}


def main(argv: list[str], links: "Sequence[Link]" = ()) -> int:
    """Serve until the client disconnects or a signal arrives."""
    options = _options(argv)
    out = keep_stdout(options.http or options.transport)  # before the user's code is imported
    try:
        return _serve(options, _composer(options), links, out)
    except LoadError as error:
        report_failure(error)
        return 1


def _serve(
    options: _Options, composer: "Composer", links: "Sequence[Link]", out: int | None
) -> int:
    composition = composer.load()
    log_to_stderr()
    part = composition.parts[0]
    if len(composition.parts) > 1 or options.prefix or options.watch:
        return _serve_composition(options, composition, composer, tuple(links), out)
    links = (*links, *composition.links)
    if part.server is None:
        return _serve_wrapped(options, part.component, links, out)
    return _serve_server(options, part.server, links, out)


def _composer(options: _Options) -> "Composer":
    from portico.cli.aliases import ConfigAliases
    from portico.components.classify import InvalidArgument
    from portico.components.composition import Composer, named_components
    from portico.components.cycles import enter

    aliases = ConfigAliases(options.config)
    components = named_components(options.component, options.override, aliases)
    if options.handlers and all(one.kind != "definitions" for one in components):
        how = "add one or remove the option"
        raise InvalidArgument(f"--handlers needs a definitions file (.json); {how}")
    enter(components)
    return Composer(components, options.handlers)


def _serve_server(
    options: _Options, server: "Server", links: "Sequence[Link]", out: int | None
) -> int:
    if options.name:
        server.rename(options.name)
    if options.transport is not None:
        from portico.app import serve_transport

        return serve_transport(server, options.loaded_transport, links=links, **options.over)
    return serve_server(server, options.http, links, out, options.at, "portico run --http 8000 ...")


def _serve_wrapped(
    options: _Options, component: "Component", links: "Sequence[Link]", out: int | None
) -> int:
    """Serve a single command or URL as `wrap` does."""
    from portico.cli.wrap import options_of

    wrap_options = options_of(component, options, tuple(links))
    if options.transport is not None:
        from portico.app import wrap_transport

        return wrap_transport(wrap_options, options.loaded_transport, **options.over)
    if options.http is None:
        from portico.app import wrap_stdio

        report_waiting(wrap_options.address.name, "portico run --http 8000 ...")
        return wrap_stdio(wrap_options, out=out, drain_s=options.drain)
    from portico.app import wrap_http

    return wrap_http(wrap_options, options.http, **options.at)


def _serve_composition(
    options: _Options,
    composition: "Composition",
    composer: "Composer",
    links: "tuple[Link, ...]",
    out: int | None,
) -> int:
    import shlex

    from portico import __version__
    from portico.gateway.composition_app import CompositionOptions
    from portico.model.wording import counted

    served = CompositionOptions(
        composition=composition,
        label=f"portico run {shlex.join(options.component)}",
        version=__version__,
        name=options.name or "",
        prefixed=options.prefix,
        shadows=tuple(options.shadow),
        links=links,
        composer=composer if options.watch else None,
        idle_s=0.0 if options.has_one_client else 300.0,
    )
    if options.transport is not None:
        from portico.app import composition_transport

        return composition_transport(served, options.loaded_transport, **options.over)
    if options.http is None:
        from portico.app import composition_stdio

        what = counted(len(composition.parts), "component")
        report_waiting(what, "portico run --http 8000 ...")
        return composition_stdio(served, out=out, drain_s=options.drain)
    from portico.app import composition_http

    return composition_http(served, options.http, **options.at)


def report_failure(error: LoadError) -> None:
    """Print why a file could not be loaded: the user's own line first, then the traceback."""
    from portico.state.report import report

    report(str(error))
    print_own_traceback(error.reason)


def _options(argv: list[str]) -> _Options:
    options = _Options(argv)
    if argv and not any(word.startswith("-") for word in argv):
        return options  # clients start it like this, and argparse is slow to import
    from portico.cli.transport_option import check_transport

    parser = _parser()
    parser.parse_intermixed_args(argv, namespace=options)
    check_transport(parser, argv, options.transport, options.listen, options.http)
    return options


def _parser() -> "Parser":
    from portico.cli.argument_types import repeatable
    from portico.cli.transport_option import add_transport
    from portico.cli.usage import Parser

    parser = Parser(
        prog="portico run",
        description="Serve components as one MCP server: Python files with a Server, definitions "
        "files, quoted commands and URLs of other servers. A Python file with a `link` is "
        "middleware in front of the components after it.",
        epilog="example: portico run log.py calc.py 'npx -y @modelcontextprotocol/server-memory'",
    )
    add = parser.add_argument
    what = (
        "server.py, server.py:NAME, tools.json, a quoted command, a URL or the name of a "
        "configured server; NAME=... names it"
    )
    add("component", nargs="+", metavar="COMPONENT", help=what)
    what = "Python file with the functions for a definitions file"
    add("--handlers", metavar="FILE", help=what)
    what = "name each tool after its component, such as calc__add"
    add("--prefix", action="store_true", help=what)
    what = "a tool, prompt or resource of one component that hides that of a later one"
    repeatable(add, "--shadow", str, "NAME", what)
    what = "use another component in place of the one with this name"
    repeatable(add, "--override", str, "NAME=COMPONENT", what)
    what = "reload a component when its file or a module beside it is saved"
    add("--watch", action="store_true", help=what)
    parser.add_config()
    add_door(add)
    add_transport(add)
    add("--name", help="name of the server (default: its own name)")
    return parser
