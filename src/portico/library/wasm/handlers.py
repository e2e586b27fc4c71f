"""The exports of middleware components: a whole request in, a whole response out."""

from collections.abc import Collection
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from portico.core.model.errors import INTERNAL_ERROR
from portico.library.wasm.guest import Guest, GuestError
from portico.library.wasm.own_wit import VERSION

OWN_HANDLER = f"portico:mcp/handler@{VERSION}"


class HandlerExport(Protocol):
    """The function of a component that handles requests."""

    def handle(self, guest: Guest, request: str) -> str:
        """Return the whole response to a whole request; raises GuestError."""
        ...

    def probe(self, guest: Guest) -> None:
        """Call it with a message that has no effect; any error may be ignored."""
        ...


class OwnHandler:
    """The handler of Portico's own WIT: JSON in and out, byte for byte."""

    def handle(self, guest: Guest, request: str) -> str:
        """Return the whole response to a whole request; raises GuestError."""
        outcome: Any = guest.call(OWN_HANDLER, "handle", request)
        if "ok" in outcome:
            return str(outcome["ok"])
        raise error_in(outcome["err"])

    def probe(self, guest: Guest) -> None:
        """Do nothing: it takes no streams."""


def own_handler(functions: Collection[tuple[str, str]]) -> OwnHandler | None:
    """Return the handler among exported functions."""
    return OwnHandler() if (OWN_HANDLER, "handle") in functions else None


class _Written(Struct):
    message: str
    code: int = INTERNAL_ERROR
    data: Any = None


def error_in(text: str) -> GuestError:
    """Return the error that a guest returned as text, or as JSON with a code and a message."""
    try:
        error = msgspec.json.decode(text, type=_Written)
    except (msgspec.DecodeError, RecursionError):
        return GuestError(text or "failed without a reason")
    return GuestError(error.message, error.code, error.data)
