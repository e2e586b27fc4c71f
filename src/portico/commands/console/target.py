"""A TARGET on the command line (a component of any kind), and a client for it."""

import argparse
import asyncio
import signal
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from portico.commands.console.argument_types import (
    add_grant,
    header,
    pair,
    repeatable,
    seconds,
    valued,
)
from portico.core.model.errors import TargetError
from portico.core.model.release import __version__
from portico.library.components.classify import Component, InvalidArgument, classify

if TYPE_CHECKING:
    from portico.core.config.schema import ServerEntry
    from portico.edge.client.client import Client, Log
    from portico.edge.client.client_answers import ClientAnswers
    from portico.upstream.connections.handshake import HandshakeLimits
    from portico.upstream.wires.wire import Address


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the commands with a target."""
    add = parser.add_argument
    repeatable(add, "--header", header, "'K: V'", "a header to send to a URL")
    add("--token", default="", help="a bearer token to send to a URL")
    what = "file with the token (default: PORTICO_TOKEN, if the server requires a token)"
    valued(add, "--token-file", str, "FILE", what)
    add_grant(add)
    what = "a variable for a command, added to your environment"
    repeatable(add, "--env", pair, "K=V", what)
    what = "timeout for the server to start, list and respond (default 30, 30 and 120)"
    valued(add, "--timeout", seconds, "SECONDS", what)
    what = "protocol to use: modern (2026-07-28) or legacy; auto detects it"
    add("--era", choices=("auto", "modern", "legacy"), default="auto", help=what)
    add("--json", action="store_true", help="print JSON")


def component_of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Component:
    """The target as a component; wrong usage ends the command."""
    from portico.library.components.aliases import ConfigAliases
    from portico.library.components.granted import granted

    try:
        component = classify(options.target, ConfigAliases(options.config))
    except InvalidArgument as error:
        parser.error(f"TARGET: {error}")
    check_options(parser, options, component)
    return granted([component], options.grant)[0]


def check_options(
    parser: argparse.ArgumentParser, options: argparse.Namespace, *components: Component
) -> None:
    """End the command if an option applies to none of these components."""
    if options.env and not any(_takes_env(one) for one in components):
        if any(one.entry is not None for one in components):
            parser.error("--env is for commands; for a configured server, set it in the config")
        parser.error("--env is for commands; a URL takes --header and --token")
    if options.token and options.token_file is not None:
        parser.error("give either --token or --token-file, not both")
    credentials = options.header or options.token or options.token_file is not None
    if credentials and not any(one.url and one.entry is None for one in components):
        parser.error("--header, --token and --token-file are for URLs; a command takes --env")


def _takes_env(component: Component) -> bool:
    return not component.url and component.entry is None


def address_of(component: Component, options: argparse.Namespace) -> "Address":
    """The address of a component; a file runs in a process of its own."""
    if component.entry is not None:
        from portico.upstream.connections.configured_address import address

        return address(component.entry)
    if component.url:
        return _url(component.url, options)
    from portico.library.components.command_name import title_of_command
    from portico.upstream.wires.child_wire import Command

    env = dict(options.env)
    if not component.is_file:
        return Command(component.argv, title=title_of_command(component.argv), env=env)
    path = component.path
    file = f"{path}:{component.variable}" if component.variable else path
    from portico.library.components.file_python import command_of

    argv = command_of(file)
    return Command(argv, title=file, env=env)


def limits_of(
    options: argparse.Namespace, entry: "ServerEntry | None" = None, argv: Sequence[str] = ()
) -> "HandshakeLimits":
    """The timeouts of the handshake, lists and calls; by default, the configured ones."""
    from portico.upstream.connections.handshake import HandshakeLimits

    if options.timeout is None:
        if entry is None:
            from portico.upstream.process.install_commands import install_of

            return HandshakeLimits(install=install_of(argv))
        from portico.upstream.connections.configured_address import configured_limits

        return configured_limits(entry)
    return HandshakeLimits(init_s=options.timeout, list_s=options.timeout, call_s=options.timeout)


async def open_client(
    address: "Address",
    options: argparse.Namespace,
    entry: "ServerEntry | None" = None,
    *,
    answers: "ClientAnswers | None" = None,
    log: "Log | None" = None,
) -> "Client":
    """Connect to the target; `entry` is that of a configured server."""
    from portico.edge.client.client_answers import NO_ANSWERS
    from portico.edge.client.connect import connect

    try:
        return await connect(
            address,
            era=entry.era if entry is not None and options.era == "auto" else options.era,
            answers=answers or NO_ANSWERS,
            limits=limits_of(options, entry, getattr(address, "argv", ())),
            log=log,
            info={"name": "portico", "title": "Portico", "version": __version__},
        )
    except TargetError as error:
        url = getattr(address, "url", "")
        is_login = error.kind == "login"
        status = 401 if is_login else error.details.get("status")
        hint = _hint(status, url, options) if entry is None else ""
        if not hint:
            raise
        joint = ", or" if is_login else ":"
        raise TargetError(f"{error}{joint} {hint}", kind=error.kind) from None


def _hint(status: object, url: str, options: argparse.Namespace) -> str:
    """How to fix an HTTP error; empty if unknown."""
    if status == 401:
        is_given = options.token or options.token_file is not None
        # Raises the reason if the token cannot be read.
        if is_given or _spare_token(url)[0] or url.startswith("https://"):
            right = "the right one" if is_given else "a token"
            return f"give {right} with --token, --token-file or PORTICO_TOKEN"
        from portico.upstream.wires.http_client import is_loopback

        why = ": no running Portico of yours listens there" if is_loopback(url) else ""
        return f"give a token with --token or --token-file{why}"
    if status == 404 and not urlsplit(url).path.strip("/"):
        return "most servers are at /mcp, not at the bare host"
    return ""


def run(work: Coroutine[Any, Any, int]) -> int:
    """Run a command; on a signal, shut it down cleanly, so that no server keeps running."""
    caught: list[int] = []

    async def guarded() -> int:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            caught.append(number)
            task.cancel()

        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop, number)
        return await work

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        if not caught:
            raise
        return 128 + caught[0]


def _url(url: str, options: argparse.Namespace) -> "Address":
    from portico.upstream.auth.configured_login import login_credentials
    from portico.upstream.auth.token import TokenError, given_token
    from portico.upstream.wires.credentials import NO_CREDENTIALS, StaticToken
    from portico.upstream.wires.streamable_http import Url

    def spare_token(url: str) -> tuple[str, str]:
        try:
            return _spare_token(url)
        except TokenError:  # reported later, if the server requires a token
            return "", ""

    headers = dict(options.header)
    if options.token_file is not None:
        given = given_token(options.token_file)
        assert given is not None
        return Url(url, headers=headers, credentials=StaticToken(given.token))
    if options.token:
        return Url(url, headers=headers, credentials=StaticToken(options.token))
    login = login_credentials(url, headers) or NO_CREDENTIALS
    return Url(url, headers=headers, credentials=login, spare_token=spare_token)


def _spare_token(url: str) -> tuple[str, str]:
    """Where to send a token if the server requires one, and the token: PORTICO_TOKEN over https;
    to a Portico of this user the same, or else its own. TokenError if it cannot be trusted."""
    from portico.core.config.paths import state_dir
    from portico.upstream.auth.own_listeners import own_listener
    from portico.upstream.auth.token import given_token, read_token

    given = given_token(None)
    if given is not None and url.startswith("https://"):
        return url, given.token
    where = own_listener(state_dir(), url)
    return where, (given.token if given else read_token(state_dir()) or "") if where else ""
