"""`portico wrap`: a caching, supervising endpoint in front of one server."""

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from portico.commands.cli.listen_arguments import ListenArguments, add_listen_arguments
from portico.commands.console.stderr import keep_stdout, log_to_stderr, report_waiting
from portico.core.model.defaults import (
    CALL_S,
    IDLE_S,
    INIT_S,
    LIST_S,
    MAX_CONNECTIONS,
    MAX_IN_FLIGHT,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from portico.commands.console.argument_types import Add
    from portico.commands.console.parser import Parser
    from portico.core.config.schema import ServerEntry
    from portico.core.model.types import Link
    from portico.gateway.wrap_app import WrapOptions
    from portico.library.components.classify import Component
    from portico.upstream.wires.wire import Address

_URLS = ("http://", "https://")
_LAUNCHERS = {"bun", "bunx", "deno", "node", "npx", "pipx", "python", "uv", "uvx"}
_PROGRAM = re.compile(r"\.{0,2}/[^\s:]+|[^\s:/=-][^\s:/=]*")
"""A command that cannot be a mistyped URL or option."""
_NOT_A_NAME = re.compile(r"^-|://|[\s=]")
"""Options, URLs, settings and code."""
_FLAGS = {
    "--warm": ("warm", True),
    "--no-cache": ("cache", False),
    "--refresh": ("refresh", True),
    "--clean-env": ("clean_env", True),
}


class _Options(ListenArguments):
    def __init__(self) -> None:
        super().__init__()
        self.target: list[str] = []
        self.init_timeout = INIT_S
        self.install_timeout: float | None = None
        self.list_timeout = LIST_S
        self.call_timeout = CALL_S
        self.idle_timeout: float | None = None
        self.instances = 1
        self.max_in_flight = MAX_IN_FLIGHT
        self.max_connections = MAX_CONNECTIONS
        self.queue = 1024
        self.sharing = "auto"
        self.era = "auto"
        self.warm = False
        self.cache = True
        self.refresh = False
        self.clean_env = False
        self.cwd: str | None = None
        self.env: list[tuple[str, str]] = []
        self.header: list[tuple[str, str]] = []
        self.entry: ServerEntry | None = None
        """The configured server whose login is used; None for that of the URL."""
        self.log: str | None = None
        self.watchdog_ms = 250


def main(argv: list[str], links: "tuple[Link, ...]" = ()) -> int:
    """Serve until the client disconnects or a signal arrives."""
    options = _options(argv)
    log_to_stderr()
    out = keep_stdout(options.http)
    from portico.gateway.app import app_http, app_stdio, wrap_app

    if options.http is None:
        wrap_options = _wrap_options(options, links)
        program = "" if options.target[0].startswith(_URLS) else options.target[0]
        report_waiting(wrap_options.address.name, "portico wrap --http 8000 ...", program)
        return app_stdio(wrap_app(wrap_options), out=out, drain_s=options.drain)
    return app_http(wrap_app(_wrap_options(options, links)), options.http, **options.at)


def _wrap_options(options: _Options, links: "tuple[Link, ...]") -> "WrapOptions":
    from portico import __version__
    from portico.gateway.wrap_app import WrapOptions
    from portico.upstream.connections.handshake import HandshakeLimits
    from portico.upstream.connections.policy import UpstreamPolicy
    from portico.upstream.process.install_commands import install_of

    address, key, history = _address(options)
    is_url = options.target[0].startswith(_URLS)
    idle = options.idle_timeout
    if idle is None and options.http is not None:
        idle = IDLE_S  # over stdio, the server runs as long as the client that started us
    policy = UpstreamPolicy(
        limits=HandshakeLimits(
            init_s=options.init_timeout,
            list_s=options.list_timeout,
            call_s=options.call_timeout,
            install=None if is_url else install_of(options.target, options.install_timeout),
        ),
        idle_s=idle or None,
        instances=options.instances,
        max_in_flight=options.max_in_flight,
        max_queue=options.queue,
        sharing=options.sharing,
        era=options.era,
        is_process=not is_url,
        info={"name": "portico", "title": "Portico", "version": __version__},
    )
    return WrapOptions(
        address,
        policy,
        key,
        history,
        cache=options.cache,
        warm=options.warm,
        refresh=options.refresh,
        log=options.log,
        links=links,
        watchdog_ms=options.watchdog_ms,
        drain_s=options.drain,
        component=options.entry.name if options.entry and options.entry.is_sandboxed else "",
    )


def _address(options: _Options) -> "tuple[Address, Callable[[str], str], str]":
    """The server's address, and the keys of its catalogs and history on disk."""
    from portico.core.catalog.upstream_key import upstream_key
    from portico.core.config.paths import state_folder
    from portico.core.state.user_secret import user_secret

    secret = user_secret(state_folder())
    target = options.target
    if target[0].startswith(_URLS):
        from portico.upstream.auth.configured_login import login_credentials
        from portico.upstream.wires.credentials import NO_CREDENTIALS
        from portico.upstream.wires.streamable_http import Url

        url, headers = target[0], dict(options.header)
        entry = options.entry
        named = () if entry is None else (entry.name, entry.auth)
        login = login_credentials(url, headers, *named)

        def key_at_url(view: str) -> str:
            account = "" if login is None else login.account
            return upstream_key(secret, url=f"{url}#{view}", headers=headers, account=account)

        address = Url(
            url,
            title=options.name or "",
            headers=headers,
            credentials=login or NO_CREDENTIALS,
            max_connections=options.max_connections,
        )
        return address, key_at_url, upstream_key(secret, url=f"{url}#history")
    from portico.core.state.stderr import STDERR
    from portico.upstream.process.environment import clean, meaningful
    from portico.upstream.process.install_commands import install_seconds
    from portico.upstream.wires.child_wire import Command

    given = dict(options.env)
    environment = clean(os.environ) if options.clean_env else dict(os.environ)
    if options.entry is not None and options.entry.is_sandboxed:
        environment = {}
    matters = {**meaningful(environment), **given}
    cwd = options.cwd or ""
    with suppress(FileNotFoundError):  # it was deleted, and the command may not need it
        cwd = cwd or os.getcwd()

    def key(view: str) -> str:
        return upstream_key(secret, argv=(*target, f"#{view}"), cwd=cwd, env=matters)

    command = Command(
        tuple(target),
        install_s=install_seconds(target, options.install_timeout),
        title=options.name or title(target),
        env=given,
        cwd=options.cwd,
        environment=environment,
        on_stderr=STDERR.write_line,
    )
    return command, key, upstream_key(secret, argv=(*target, "#history"), cwd=cwd)


def options_of(
    component: "Component", door: ListenArguments, links: "tuple[Link, ...]"
) -> "WrapOptions":
    """Return the options that wrap a component: a command, a URL or an alias of either."""
    from portico.core.config.paths import working_folder

    options = _Options()
    options.target = [component.url] if component.url else list(component.argv)
    options.http, options.name = door.http, door.name
    options.init_timeout = max(options.init_timeout, component.start_s)
    options.list_timeout = max(options.list_timeout, component.start_s)
    entry = component.entry
    if entry is not None:
        options.clean_env = not entry.url
        options.env, options.header = list(entry.env.items()), list(entry.headers.items())
        options.entry = entry
        options.name = door.name or (component.name if entry.is_sandboxed else None)
        options.cwd = entry.placed_in(working_folder()).cwd
        times = entry.timeouts
        options.init_timeout, options.list_timeout = times.init, times.list
        options.install_timeout = times.install
        options.call_timeout, options.idle_timeout = times.call, times.idle
        options.instances, options.sharing, options.era = entry.instances, entry.sharing, entry.era
        options.max_in_flight, options.max_connections = entry.max_in_flight, entry.max_connections
    return _wrap_options(options, links)


def title(argv: list[str]) -> str:
    """A command's name for messages: the program, and what a launcher starts. Other arguments are
    left out, since they may be secrets."""
    name = os.path.basename(argv[0])
    if name.rstrip("0123456789.") in _LAUNCHERS:
        plain = (word for word in argv[1:] if not _NOT_A_NAME.search(word))
        name = f"{name} {os.path.basename(next(plain, ''))}".rstrip()
    return name if len(name) <= 60 else f"{name[:57]}..."


def _options(argv: list[str]) -> _Options:
    options = _Options()
    words = iter(argv)
    for word in words:
        if word == "--" and not options.target:
            options.target = list(words)
        elif word in _FLAGS:
            setattr(options, *_FLAGS[word])
        elif word.startswith(_URLS) and not options.target:
            options.target = [word]
        elif not options.target and _PROGRAM.fullmatch(word):
            options.target = [word, *words]
        else:
            break  # only argparse, which is slow to import, knows the rest
    else:
        target = options.target[0] if options.target else ""
        if target.strip() and not (options.clean_env and target.startswith(_URLS)):
            return options
    return _parsed(argv)


def _parsed(argv: list[str]) -> _Options:
    parser = _parser()
    before, command = parser.split_command(argv)
    options: _Options = parser.parse_args(before, namespace=_Options())
    if command and options.target:
        parser.error("give either a URL or a COMMAND, not both")
    if not command and not options.target:
        parser.error("nothing to wrap: give COMMAND ARGS... or a URL")
    if command and not command[0].strip():
        parser.error("the command is empty; check that its variables are set")
    if len(options.target) > 1:
        parser.error("give one URL")
    if options.target and (options.env or options.clean_env):
        parser.error("--env and --clean-env are for commands; a URL takes --header")
    if command and options.header:
        parser.error("--header is for URLs; a command takes --env")
    least_one = ("instances", "max_in_flight", "max_connections")
    for name, minimum in (*((name, 1) for name in least_one), ("queue", 0)):
        if not getattr(options, name) >= minimum:
            parser.error(f"--{name.replace('_', '-')} must be at least {minimum}")
    options.target = options.target or list(command or ())
    return options


def _parser() -> "Parser":
    from portico.commands.console.parser import Parser

    parser = Parser(
        prog="portico wrap",
        usage="portico wrap [options] COMMAND [ARGS...]\n       portico wrap [options] URL",
        description="Serve one MCP server: its lists come from a cached catalog, the server is "
        "started when needed and restarted when it fails, and all other messages pass through. "
        "Options come before COMMAND; every word after it belongs to the command.",
    )
    add = parser.add_argument
    add("target", nargs="*", metavar="URL", help="a server at a URL, instead of a COMMAND")
    add_listen_arguments(add)
    add("--name", help="name of the server in messages")
    _add_limits(add)
    _add_server(add)
    return parser


def _add_limits(add: "Add") -> None:
    """Add the timeouts and limits."""
    from portico.commands.console.argument_types import seconds, valued

    valued(add, "--init-timeout", seconds, "S", "timeout for the server to start (default 30)")
    what = "the same for a command that installs its server, such as npx (default 600)"
    valued(add, "--install-timeout", seconds, "S", what)
    valued(add, "--list-timeout", seconds, "S", "timeout for a list (default 30)")
    what = "timeout for a call, restarted by each progress notification (default 120)"
    valued(add, "--call-timeout", seconds, "S", what)
    what = "stop the server after this idle time (default 300 with --http, else never)"
    valued(add, "--idle-timeout", seconds, "S", what)
    what = "processes to run, for a server that handles one call at a time (default 1)"
    valued(add, "--instances", int, "N", what)
    valued(add, "--max-in-flight", int, "N", "limit of concurrent calls (default 256)")
    valued(add, "--max-connections", int, "N", "limit of busy connections to a URL (default 128)")
    valued(add, "--queue", int, "N", "limit of queued calls (default 1024)")
    what = (
        "whether clients share one process; auto gives a separate one to each client that "
        "accepts requests (roots, sampling, elicitation)"
    )
    add("--sharing", choices=("auto", "shared", "per-client"), help=what)
    what = "protocol to use: modern (2026-07-28) or legacy; auto detects it"
    add("--era", choices=("auto", "modern", "legacy"), help=what)


def _add_server(add: "Add") -> None:
    """Add the options for starting the server, caching its lists and logging its calls."""
    from portico.commands.console.argument_types import header, integer, pair, repeatable, valued

    add("--warm", action="store_true", help="start the server as soon as a client connects")
    what = "do not read or store the server's lists on disk"
    add("--no-cache", dest="cache", action="store_false", help=what)
    add("--refresh", action="store_true", help="fetch the server's lists at startup")
    what = "give the server a minimal environment instead of yours"
    add("--clean-env", action="store_true", help=what)
    repeatable(add, "--env", pair, "K=V", "a variable for a command")
    what = "a header to send to a URL with every request"
    repeatable(add, "--header", header, "'K: V'", what)
    add("--log", metavar="FILE", help="log each call on one line, without argument values")
    what = "report messages that block all clients for longer; 0 disables this (default 250)"
    milliseconds = integer("a whole number of milliseconds", 0, 9_999_999)
    valued(add, "--watchdog-ms", milliseconds, "MS", what)
