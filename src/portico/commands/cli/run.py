"""`portico run`: serve components as one server, over stdio, HTTP or another transport."""

from typing import TYPE_CHECKING

from portico.commands.cli.listen_arguments import ListenArguments, add_listen_arguments
from portico.commands.console.stderr import (
    keep_stdout,
    log_to_stderr,
    print_own_traceback,
    report_waiting,
)
from portico.core.model.defaults import IDLE_S
from portico.library.components.load import LoadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from portico.commands.console.parser import Parser
    from portico.core.model.types import Link
    from portico.edge.transport.custom_transport import Transport
    from portico.gateway.app import AppFactory, EndpointApp, TransportOptions
    from portico.gateway.composition_app import CompositionOptions
    from portico.library.components.composition import Composer, Composition
    from portico.library.components.project_builds import ProjectBuilds


class RunOptions(ListenArguments):
    """The options of the command; a bundle may set some."""

    def __init__(self, component: list[str]) -> None:
        super().__init__()
        self.component = component
        self.handlers: str | None = None
        self.prefix = False
        self.shadow: list[str] = []
        self.override: list[str] = []
        self.grant: list[str] = []
        self.config: str | None = None
        self.watch = self.pull = False
        self.agents = False
        self.transport: str | None = None
        self.listen: str | None = None
        self.stdio = False
        self.builds: ProjectBuilds | None = None

    @property
    def has_one_client(self) -> bool:
        """True for stdio, the default."""
        return self.http is None and self.transport is None

    @property
    def loaded_transport(self) -> "Transport":
        """The transport of the user's own file."""
        from portico.commands.console.transport_option import load_transport

        return load_transport(self.transport or "")

    @property
    def over(self) -> "TransportOptions":
        """The options for serving over a transport of the user's own."""
        return {"address": self.listen, "drain_s": self.drain}


def main(argv: list[str], links: "Sequence[Link]" = ()) -> int:
    """Serve until the client disconnects or a signal arrives."""
    options = _options(argv)
    if len(options.component) == 1:
        from portico.library.components.file_python import run_in_own_environment

        run_in_own_environment(options.component[0], argv)
    out = keep_stdout(options.http or options.transport)  # before the user's code is imported
    if options.agents:
        return _serve(options, agents_factory(options.config, tuple(links)), out)
    try:
        from portico.commands.cli.run_components import composer_of

        return _serve(options, _app(options, composer_of(options), tuple(links)), out)
    except LoadError as error:
        report_failure(error)
        return 1


def _serve(options: RunOptions, named: "tuple[str, AppFactory]", out: int | None) -> int:
    from portico.gateway.app import app_http, app_stdio, app_transport

    what, make = named
    log_to_stderr()
    if options.transport is not None:
        return app_transport(make, options.loaded_transport, **options.over)
    if options.http is None:
        report_waiting(what, "portico run --http 8000 ...")
        return app_stdio(make, out=out, drain_s=options.drain)
    return app_http(make, options.http, **options.at)


def _app(
    options: RunOptions, composer: "Composer", links: "tuple[Link, ...]"
) -> "tuple[str, AppFactory]":
    """Load the components; return their name for people, and the factory that serves them."""
    from portico.gateway.app import composition_app, server_app, wrap_app

    composition = composer.load()
    part = composition.parts[0]
    if len(composition.parts) > 1 or options.prefix or options.watch:
        from portico.core.model.wording import counted

        what = counted(len(composition.parts), "component")
        return what, composition_app(_composed(options, composition, composer, links))
    links = (*links, *composition.links)
    if part.server is None:  # a single command or URL is served as `wrap` does
        from portico.commands.cli.wrap import options_of

        wrap_options = options_of(part.component, options, links)
        return wrap_options.address.name, wrap_app(wrap_options)
    if options.name:
        part.server.rename(options.name)
    return part.server.name, server_app(part.server, links)


def agents_factory(path: str | None, links: "tuple[Link, ...]") -> "tuple[str, AppFactory]":
    """Return the configured agents' name for people, and the factory that serves them."""
    from portico.commands.cli.agents import configured_agents
    from portico.core.config.paths import config_file, state_folder
    from portico.core.model.wording import counted
    from portico.core.state.report import report
    from portico.upstream.process.family import refuse_below_agent

    refuse_below_agent("portico run --agents")
    config = configured_agents(path or config_file())
    for entry in config.entries.values():
        if entry.enabled and (entry.tools or entry.max_depth):
            report(
                f"{entry.id}: `tools` and `max_depth` have no effect here: "
                "`portico run --agents` has no other tools; use `portico serve`"
            )

    def make(_: str | None) -> "EndpointApp":
        from portico.agents.delegation.agents_app import AgentsApp

        return AgentsApp(config, state_folder(), links)

    return counted(len(config.entries), "agent"), make


def _composed(
    options: RunOptions,
    composition: "Composition",
    composer: "Composer",
    links: "tuple[Link, ...]",
) -> "CompositionOptions":
    import shlex

    from portico import __version__
    from portico.gateway.composition_app import CompositionOptions

    return CompositionOptions(
        composition=composition,
        label=f"portico run {shlex.join(options.component)}",
        version=__version__,
        name=options.name or "",
        prefixed=options.prefix,
        shadows=tuple(options.shadow),
        links=links,
        composer=composer if options.watch else None,
        builds=options.builds,
        idle_s=0.0 if options.has_one_client else IDLE_S,
    )


def report_failure(error: LoadError) -> None:
    """Print why a file could not be loaded: the user's own line first, then the traceback."""
    from portico.core.state.report import report

    report(str(error))
    print_own_traceback(error.reason)


def _options(argv: list[str]) -> RunOptions:
    options = RunOptions(argv)
    if argv and not any(word.startswith("-") for word in argv):
        return options  # clients start it like this, and argparse is slow to import
    from portico.commands.console.transport_option import check_transport

    parser = _parser()
    if "--agents" in argv:
        options.component = ["agents"]  # the parser requires one, and takes no other
        parser.parse_intermixed_args([*argv, "agents"], namespace=options)
        if options.component != ["agents"]:
            parser.error("--agents takes no COMPONENT")
    else:
        parser.parse_intermixed_args(argv, namespace=options)
    check_transport(parser, argv, options.transport, options.listen, options.http)
    return options


def _parser() -> "Parser":
    from portico.commands.console.argument_types import add_grant, repeatable
    from portico.commands.console.parser import Parser
    from portico.commands.console.transport_option import add_transport

    parser = Parser(
        prog="portico run",
        description="Serve components as one MCP server: Python files with a Server, definitions "
        "files, quoted commands and URLs of other servers. A Python file with a `link` is "
        "middleware in front of the components after it.",
        epilog="example: portico run log.py calc.py 'npx -y @modelcontextprotocol/server-memory'",
    )
    add = parser.add_argument
    what = (
        "server.py, server.py:NAME, tools.json, a bundle, a quoted command, a URL or the name of "
        "a configured server, component or profile; NAME=... names it"
    )
    add("component", nargs="+", metavar="COMPONENT", help=what)
    parser.add_flag("--agents", "serve the agents of the config, and nothing else")
    what = "Python file with the functions for a definitions file"
    add("--handlers", metavar="FILE", help=what)
    parser.add_flag("--prefix", "name each tool after its component, such as calc__add")
    what = "a tool, prompt or resource of one component that hides that of a later one"
    repeatable(add, "--shadow", str, "NAME", what)
    what = "use another component in place of the one with this name"
    repeatable(add, "--override", str, "NAME=COMPONENT", what)
    add_grant(add)
    parser.add_flag("--watch", "reload a component when its file or a module beside it is saved")
    parser.add_config()
    parser.add_pull()
    add_listen_arguments(add)
    parser.add_flag("--stdio", "serve stdio, also a bundle made for another transport")
    add_transport(add)
    add("--name", help="name of the server (default: its own name)")
    return parser
