"""A TARGET on the command line: a URL, a component or a quoted command; and how to talk to it."""

import argparse
import asyncio
import shlex
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from portico.upstream.client import Limits
    from portico.upstream.wire import Address

_COMPONENTS = (".py", ".json")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that all commands with a target share."""
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        type=_header,
        metavar="'K: V'",
        help="a header to send to a URL; repeatable",
    )
    parser.add_argument("--token", default="", help="a bearer token to send to a URL")
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        type=_pair,
        metavar="K=V",
        help="a variable for a command, beside our own environment; repeatable",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help="how long the server may take to start, to list and to answer (30, 30 and 120)",
    )
    parser.add_argument(
        "--era",
        choices=("auto", "modern", "legacy"),
        default="auto",
        help="speak only the modern (2026-07-28) or the legacy protocol; auto finds out",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def address_of(parser: argparse.ArgumentParser, options: argparse.Namespace) -> "Address":
    """Where the target is; wrong usage ends the command."""
    target: str = options.target
    if target.startswith(("http://", "https://")):
        if options.env:
            parser.error("--env is for commands; a URL takes --header and --token")
        return _url(target, options)
    if options.header or options.token:
        parser.error("--header and --token are for URLs; a command takes --env")
    argv = _component(target)
    if argv is None:
        try:
            argv = shlex.split(target)
        except ValueError as error:
            parser.error(f"TARGET is no command that can be split: {error}")
    if not argv:
        parser.error("TARGET is empty; give a URL, a file or a quoted command")
    from portico.upstream.child import Command

    return Command(tuple(argv), title=_title(target), env=dict(options.env))


def limits_of(options: argparse.Namespace) -> "Limits":
    """How long things may take."""
    from portico.upstream.client import Limits

    if options.timeout is None:
        return Limits()
    return Limits(init_s=options.timeout, list_s=options.timeout, call_s=options.timeout)


def run(work: Coroutine[Any, Any, int]) -> int:
    """Run a command to its end; a signal ends it in order, so that no server stays behind."""
    caught: list[int] = []

    async def guarded() -> int:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, lambda n=number: (caught.append(n), task.cancel()))
        return await work

    try:
        return asyncio.run(guarded())
    except asyncio.CancelledError:
        if not caught:
            raise
        return 128 + caught[0]


def _url(url: str, options: argparse.Namespace) -> "Address":
    from portico.upstream.http import Url
    from portico.upstream.web import is_loopback

    return Url(
        url,
        headers=dict(options.header),
        token=options.token,
        spare_token=_door_token() if not options.token and is_loopback(url) else "",
    )


def _door_token() -> str:
    """The token of our own door, if one was ever made here."""
    return ""


def _component(target: str) -> list[str] | None:
    """The command that serves a component; None if the target is none."""
    file = target
    if ".py:" in target:  # server.py:NAME names one of several servers
        file = target[: target.rindex(".py:") + 3]
    path = Path(file)
    if path.suffix not in _COMPONENTS or any(c.isspace() for c in file) and not path.is_file():
        return None
    # -P: what lies in the working folder is not ours to import.
    return [sys.executable, "-P", "-m", "portico", "run", target]


def _title(target: str) -> str:
    return target if len(target) <= 60 else f"{target[:57]}..."


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form 'NAME: VALUE'")
    return name.strip(), value.strip()


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds
