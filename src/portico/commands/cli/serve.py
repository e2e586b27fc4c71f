"""`portico serve`: every configured server behind one endpoint."""

import argparse
from typing import TYPE_CHECKING

from portico.commands.cli.listen_arguments import add_listen_arguments
from portico.commands.console.parser import Parser
from portico.commands.console.stderr import (
    keep_stdout,
    log_to_stderr,
    report_no_servers,
    report_waiting,
)
from portico.core.model.errors import PorticoError
from portico.core.model.wording import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portico.core.config.schema import Config
    from portico.core.model.types import Link
    from portico.edge.windows.owner import SharedGateway
    from portico.gateway.serve.gateway_app import GatewayApp
    from portico.gateway.serve.serve_options import ServeOptions
    from portico.library.server import Server


def main(
    argv: list[str],
    links: "tuple[Link, ...]" = (),
    members: "Mapping[str, Server] | None" = None,
) -> int:
    """Serve until the client disconnects or a signal arrives."""
    options = _parser().parse_args(argv)
    # Another window does not have these links and would bypass them.
    options.alone = options.alone or bool(links or members)
    out = keep_stdout(options.http)
    log_to_stderr()
    serve_options = _with_members(_serve_options(options), links, members or {})
    config = serve_options.config
    gateway = config.gateway
    http = options.http or (None if options.stdio else gateway.http or None)
    if options.server is not None:
        _check_server(config, options.server, http)
    drain_s = gateway.drain if options.drain is None else options.drain
    count = len(config.entries) - len(config.disabled) + len(serve_options.local)
    if not count:
        report_no_servers(config, options.config, options.group)
    if http is None:
        from portico.edge.windows.owner_start import start_early

        owner = (serve_options.version, "portico.commands.cli.serve:owned_gateway", *argv)
        key, account = serve_options.key, serve_options.account
        started = None if options.alone else start_early(key, account, owner)
        from portico.gateway.app import gateway_stdio  # it takes longer

        servers = f"{counted(count, 'server')} of {config.path}"
        report_waiting(servers, "portico serve --http 8000")
        return gateway_stdio(
            serve_options,
            out=out,
            drain_s=drain_s,
            alone=options.alone,
            owner=owner,
            started=started,
        )
    from portico.gateway.app import gateway_http

    notice_s = gateway.drain_notice_s if options.drain_notice is None else options.drain_notice
    return gateway_http(
        serve_options,
        http,
        auth=options.auth or gateway.auth,
        hosts=options.allow_host,
        token_file=options.token_file,
        drain_s=drain_s,
        drain_notice_s=notice_s,
        alone=options.alone,
    )


def owned_gateway(argv: list[str]) -> "SharedGateway[GatewayApp]":
    """Return the gateway of a window with these options, for the owner that it has started."""
    from portico.gateway.app import shared_gateway

    options = _parser().parse_args(argv)
    options.pull = False  # the window has pulled
    log_to_stderr()
    serve_options = _serve_options(options)
    drain_s = serve_options.config.gateway.drain if options.drain is None else options.drain
    return shared_gateway(serve_options, drain_s)


def _with_members(
    serve_options: "ServeOptions", links: "tuple[Link, ...]", members: "Mapping[str, Server]"
) -> "ServeOptions":
    if not links and not members:
        return serve_options
    from msgspec.structs import replace

    from portico.gateway.members.in_process_server import in_process_entries

    return replace(
        serve_options, links=links, local=in_process_entries(members, serve_options.config)
    )


def _serve_options(options: argparse.Namespace) -> "ServeOptions":
    from portico import __version__
    from portico.core.config.paths import config_file
    from portico.core.config.read import read
    from portico.core.state.files import stamp
    from portico.gateway.serve.serve_options import ServeOptions, restricted_to

    def load(path: str) -> "Config":
        if options.group is None:
            return read(path)
        # Servers outside the group do not need their variables.
        there = restricted_to(read(path, only=()), options.group).aliases
        chosen = [name for name, entry in there.items() if entry.enabled]
        return restricted_to(read(path, only=chosen), options.group)

    path = options.config or config_file()
    if options.pull:
        from portico.library.components.registry_resolver import pull_configured

        pull_configured(path)
    seen = stamp(path)
    return ServeOptions(
        load(path),
        __version__,
        group=options.group,
        expose=options.expose,
        client=options.client or "",
        server=options.server or "",
        refresh=options.refresh,
        read=load,
        stamp=seen,
    )


def _check_server(config: "Config", name: str, http: str | None) -> None:
    """Raise PorticoError if this server cannot be served alone."""
    if http is not None:
        raise PorticoError(f"--server is for stdio; over HTTP the server is at /servers/{name}/mcp")
    entry = config.entries.get(name)
    if entry is None:
        from portico.core.documents.problems import suggestion

        hint = suggestion(name, config.entries) or "add it first"
        raise PorticoError(f"{config.path}: there is no server {name!r}; {hint}")
    if not entry.enabled:
        raise PorticoError(
            f"{config.path}: {name} is disabled; enable it with `portico servers enable {name}`"
        )


def _client_name(text: str) -> str:
    from portico.core.documents.names import is_valid_name

    if not is_valid_name(text):
        raise argparse.ArgumentTypeError("is not a valid name: use letters, digits, - and _")
    return text


def _parser() -> Parser:
    parser = Parser(
        prog="portico serve",
        description="Serve all configured MCP servers as one, with a few tools that search, "
        "describe and execute the servers' tools, or with all of those. Lists come from a cached "
        "catalog; servers are started when needed and restarted when they fail.",
    )
    add = parser.add_argument
    parser.add_config()
    parser.add_pull()
    one = parser.add_mutually_exclusive_group().add_argument
    one("--group", metavar="NAME", help="serve only this group of the config")
    one("--server", metavar="NAME", help="serve only this server, under its own names; over stdio")
    what = "the client's name, in status, logs and metrics, and in [clients.NAME] of the config"
    add("--client", type=_client_name, metavar="NAME", help=what)
    what = "list the search tools or all tools; auto chooses what fits the client"
    add("--expose", choices=("auto", "search", "all"), help=what)
    over = parser.add_mutually_exclusive_group().add_argument
    over("--stdio", action="store_true", help="serve stdio, even if the config sets HTTP")
    add_listen_arguments(add, http=over)
    parser.add_flag("--alone", "start separate servers, even if another window already runs them")
    what = "connect to servers only when they are used, not at startup"
    add("--no-refresh", dest="refresh", action="store_false", help=what)
    return parser
