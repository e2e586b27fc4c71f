"""The options of `portico run` for a transport of the user's own: --transport and --listen."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from portico.core.model.errors import PorticoError
from portico.core.state.error_location import error_location
from portico.library.components.classify import ComponentError, InvalidArgument, classify
from portico.library.components.load import LoadError, import_file

if TYPE_CHECKING:
    import asyncio

    from portico.commands.console.argument_types import Add
    from portico.commands.console.parser import Parser
    from portico.core.model.types import Endpoint
    from portico.edge.transport.custom_transport import Transport

_NAME = "serve"
_PARAMETERS = "(endpoint, address, stop, drain_s)"
_NOT_LISTENING = "--listen is the address of a --transport; for HTTP use --http"
_ONLY_HTTP = ("--auth", "--token-file", "--allow-host", "--drain-notice")


def check_listen(listen: str | None, transport: str | None) -> None:
    """Raise InvalidArgument for an address that no transport listens on, also none of a bundle."""
    if listen is not None and transport is None:
        raise InvalidArgument(_NOT_LISTENING)


class TransportError(LoadError):
    """A transport that failed; `reason` is the exception that it raised."""


def add_transport(add: "Add") -> None:
    """Add the options."""
    from portico.commands.console.argument_types import valued

    what = "serve over a transport of your own instead of stdio"
    valued(add, "--transport", str, "FILE.py[:NAME]", what)
    what = "where the transport listens (default: the transport's own choice)"
    valued(add, "--listen", str, "ADDRESS", what)


def check_transport(
    parser: "Parser",
    argv: Sequence[str],
    transport: str | None,
    listen: str | None,
    http: str | None,
) -> None:
    """End the command if options exclude each other."""
    if transport is None:
        if listen is not None and http is not None:
            parser.error(_NOT_LISTENING)
        return  # a bundle may have one
    if http is not None:
        parser.error("--transport and --http exclude each other: remove one")
    for option in _ONLY_HTTP:
        if any(word.partition("=")[0] == option for word in argv):
            parser.error(f"{option} is for --http, and --transport does not use it: remove it")


def load_transport(argument: str) -> "Transport":
    """Return the transport in `FILE.py` or `FILE.py:NAME`; raises PorticoError.

    An exception of the transport becomes a TransportError with the user's own line.
    """
    component = classify(argument)
    path, variable = component.path, component.variable or _NAME
    if component.kind != "python":
        raise ComponentError(f"{argument}: not a transport; give a Python file")
    found = vars(import_file(path))
    if variable not in found:
        other = "" if component.variable else ", or give FILE.py:NAME"
        raise ComponentError(
            f"{path}: contains no transport {variable!r}; "
            f"define `async def {variable}{_PARAMETERS}`{other}"
        )
    transport, file = _checked(found, path, variable), os.path.abspath(path)

    async def serve(
        endpoint: "Endpoint", address: str | None, stop: "asyncio.Event", drain_s: float
    ) -> None:
        try:
            await transport(endpoint, address, stop, drain_s)
        except Exception as error:
            where = error_location(error, file) or path
            what = str(error) if isinstance(error, PorticoError) else _named(error)
            raise TransportError(f"{where}: {what}", error) from error

    return serve


def _checked(found: Mapping[str, Any], path: str, variable: str) -> "Transport":
    """Return the variable of a file if it can be a transport; raises ComponentError."""
    from inspect import iscoroutinefunction, signature

    value = found[variable]
    line = getattr(getattr(value, "__code__", None), "co_firstlineno", 0)
    where = f"{path}:{line}" if line else path
    if isinstance(value, type) or not callable(value):
        why = "is not a function"
    elif not (iscoroutinefunction(value) or iscoroutinefunction(type(value).__call__)):
        why = "is not `async def`"
    else:
        try:
            signature(value).bind(None, None, None, None)
        except TypeError as error:
            why = f"has other parameters: {error}"
        else:
            transport: Transport = value
            return transport
    raise ComponentError(
        f"{where}: the transport {variable!r} {why}; define `async def {variable}{_PARAMETERS}`"
    )


def _named(error: Exception) -> str:
    return f"the transport failed: {type(error).__name__}: {error}"
