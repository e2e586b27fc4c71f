"""The exports of wasmcp's middleware: a typed request in, a typed result out."""

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from portico.core.model.errors import INVALID_PARAMS
from portico.core.protocol.eras import members
from portico.library.wasm.client_functions import outside
from portico.library.wasm.failures import Refused
from portico.library.wasm.guest import Guest, GuestError
from portico.library.wasm.handled_request import HandledRequest, is_typed
from portico.library.wasm.handler_protocol import is_handler
from portico.library.wasm.running_call import current_call
from portico.library.wasm.wasmcp import UnknownVersion
from portico.library.wasm.wasmcp_context import dated_context, early_context
from portico.library.wit.wit_values import Mismatch

_Args = Callable[[Guest, Any, Any], tuple[Any, ...]]
"""Takes the guest, the id and the request."""


def _dated(protocol: str) -> _Args:
    return lambda guest, id, request: (
        dated_context(guest, protocol),
        {"tag": "request", "value": [id, request]},
    )


def _early(guest: Guest, id: Any, request: Any) -> tuple[Any, ...]:
    return early_context(guest), [request, id], guest.client_stream()


_HANDLERS: dict[str, tuple[str, str, _Args]] = {
    "wasmcp:mcp-v20251125/server-handler": ("0.1.1", "handle", _dated("2025-11-25")),
    "wasmcp:mcp-v20250618/server-handler": ("0.1.8", "handle", _dated("2025-06-18")),
    "wasmcp:server/handler": ("0.1.0-beta.2", "handle-request", _early),
}
"""By interface: the version whose types are known, its function, and how its arguments are made."""


class WasmcpHandler:
    """The handler of one version of wasmcp."""

    def __init__(self, export: str, function: str, args: _Args) -> None:
        self._export = export
        self._function = function
        self._args = args

    def handle(self, guest: Guest, request: str) -> str:
        """Return the whole response to a whole request; raises GuestError."""
        method = msgspec.json.decode(members(request.encode())["method"], type=str)
        if not is_typed(method):
            return _passed(request)
        try:
            handled = current_call().handled = HandledRequest(method, request)
            args = self._args(guest, handled.id, handled.request)
            outcome = guest.call(self._export, self._function, *args)
        except Mismatch as mismatch:
            raise GuestError(f"invalid params of {method}: {mismatch}", INVALID_PARAMS) from None
        try:
            return handled.answered(outcome)
        except (AttributeError, KeyError, TypeError, ValueError):
            what = f"{self._export} has other types than the interface of this name"
            raise GuestError(f"{self._function} of {what}") from None

    def probe(self, guest: Guest) -> None:
        """Call it with a ping, which finds out whether it returns the stream that it borrows."""
        ping = {"tag": "ping", "value": {"extras": []}}
        number = {"tag": "number", "value": 0}
        guest.call(self._export, self._function, *self._args(guest, number, ping))


def _passed(request: str) -> str:
    """Pass on a request that wasmcp has no types for."""
    try:
        return outside(lambda client: client.next(request))
    except Refused as error:
        raise GuestError(str(error)) from None


def wasmcp_handler(functions: Collection[tuple[str, str]]) -> WasmcpHandler | None:
    """Return the handler among exported functions, each an interface and a name; raises
    UnknownVersion."""
    for export, _ in functions:
        interface, _, version = export.partition("@")
        if not (interface.startswith("wasmcp:") and is_handler(export)):
            continue
        known, function, args = _HANDLERS.get(interface, ("", "", _early))
        if not known or version != known:
            names = [interface] if known else list(_HANDLERS)
            listed = ", ".join(f"{name}@{_HANDLERS[name][0]}" for name in names)
            what = f"exports {export}, but Portico knows {listed}"
            raise UnknownVersion(f"{what}; build the component for that version")
        if (export, function) not in functions:
            raise UnknownVersion(f"exports {export} without its function {function}")
        return WasmcpHandler(export, function, args)
    return None
