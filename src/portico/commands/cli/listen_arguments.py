"""The options of every command that serves: address, access and shutdown."""

from typing import TYPE_CHECKING

from portico.core.model.defaults import DRAIN_S, NOTICE_S

if TYPE_CHECKING:
    from portico.commands.console.argument_types import Add
    from portico.gateway.app import HttpOptions


class ListenArguments:
    """The values of the options; the defaults are here, so that no options need no parser."""

    def __init__(self) -> None:
        self.http: str | None = None
        self.auth = "token"
        self.token_file: str | None = None
        self.allow_host: list[str] = []
        self.name: str | None = None
        self.drain = DRAIN_S
        self.drain_notice = NOTICE_S

    @property
    def at(self) -> "HttpOptions":
        """The options for serving over HTTP."""
        return {
            "auth": self.auth,
            "hosts": self.allow_host,
            "token_file": self.token_file,
            "drain_s": self.drain,
            "drain_notice_s": self.drain_notice,
        }


def add_listen_arguments(add: "Add", *, http: "Add | None" = None) -> None:
    """Add the options; `http` adds the address, for commands where it excludes another option."""
    from portico.commands.console.argument_types import repeatable, valued

    valued(http or add, "--http", _address, "[HOST:]PORT", "serve HTTP instead of stdio")
    what = "require the bearer token (default) or no token (loopback only)"
    add("--auth", choices=("token", "none"), help=what)
    what = "file with the token to require (default: PORTICO_TOKEN, or Portico's own token)"
    valued(add, "--token-file", str, "FILE", what)
    what = "an additional Host to accept, for example behind a proxy"
    repeatable(add, "--allow-host", _host, "HOST[:PORT]", what)
    what = "how long to wait for running calls after SIGTERM (default 30)"
    valued(add, "--drain", _seconds_or_zero, "S", what)
    what = "how long to keep serving as not ready before that, if /readyz is probed (default 8)"
    valued(add, "--drain-notice", _seconds_or_zero, "S", what)


def _address(text: str) -> str:
    from argparse import ArgumentTypeError

    from portico.gateway.app import UsageError, parse_address

    try:
        parse_address(text)
    except UsageError as error:
        raise ArgumentTypeError(str(error)) from None
    return text


def _host(text: str) -> str:
    from argparse import ArgumentTypeError

    from portico.core.model.errors import RegistrationError
    from portico.edge.transport.guard import Guard
    from portico.edge.transport.http_limits import HttpLimits

    try:
        Guard(HttpLimits(), hosts=[text])
    except RegistrationError as error:
        raise ArgumentTypeError(str(error)) from None
    return text


def _seconds_or_zero(text: str) -> float:
    """A number of seconds that may be 0."""
    from argparse import ArgumentTypeError

    from portico.commands.console.argument_types import seconds

    try:
        return 0.0 if float(text) == 0 else seconds(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds") from None
