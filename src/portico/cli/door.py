"""The options of every command that serves: where, who may come in, and how it ends."""

import argparse
from collections.abc import Callable

Add = Callable[..., object]
"""The `add_argument` of a parser, or of a group in one."""


def add_door(add: Add, *, http: Add | None = None) -> None:
    """Add them; `http` adds the address, where that excludes something else."""
    (http or add)(
        "--http", type=_address, metavar="[HOST:]PORT", help="serve HTTP instead of stdio"
    )
    add(
        "--auth",
        choices=("token", "none"),
        help="want the bearer token (default), or none: on loopback only",
    )
    add(
        "--token-file",
        metavar="FILE",
        help="a file with the token to want, instead of Portico's own; else PORTICO_TOKEN",
    )
    add(
        "--allow-host",
        type=_host,
        action="append",
        default=[],
        metavar="HOST[:PORT]",
        help="a further Host to answer to, for example behind a proxy; repeatable",
    )
    add(
        "--drain",
        type=_patience,
        metavar="S",
        help="how long running calls may take after SIGTERM (default 30)",
    )
    add(
        "--drain-notice",
        type=_patience,
        metavar="S",
        help="how long to serve on as not ready before that, if something probes /readyz "
        "(default 8)",
    )


def _address(text: str) -> str:
    from portico.app import UsageError, parse_address

    try:
        parse_address(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _host(text: str) -> str:
    from portico.model.errors import RegistrationError
    from portico.transport.guard import Guard
    from portico.transport.limits import Limits

    try:
        Guard(Limits(), hosts=[text])
    except RegistrationError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _patience(text: str) -> float:
    """A time that may be none."""
    from portico.cli.words import seconds

    try:
        return 0.0 if float(text) == 0 else seconds(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
