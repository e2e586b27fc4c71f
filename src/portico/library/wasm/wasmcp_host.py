"""The functions of the host in wasmcp's interfaces: the next handler, and messages to clients."""

from collections.abc import Callable, Mapping
from typing import Any

from wasmtime import WasmtimeError

from portico.core.config.component_grants import ComponentGrants
from portico.library.wasm.client_functions import json_or_text, outside, progress_params
from portico.library.wasm.client_stream import WasiHandles
from portico.library.wasm.failures import Refused
from portico.library.wasm.guest import GuestError
from portico.library.wasm.handled_request import HandledRequest, PassedBy, typed_error
from portico.library.wasm.handler_protocol import CHANGED, LOG, PROGRESS, UPDATED
from portico.library.wasm.host_interfaces import is_wasmcp
from portico.library.wasm.running_call import current_call
from portico.library.wasm.wasmcp_sessions import session_functions
from portico.library.wit.raw_host import Typed
from portico.library.wit.wit_types import Shape, WitFunction

_DATED = ("wasmcp:mcp-v20251125", "wasmcp:mcp-v20250618")
_EARLY = "wasmcp:server"
_STREAMED = ("server-io", "notifications", "sessions")
_Told = tuple[str, dict[str, Any]] | None
_CHANGES = {f"{kind}-list-changed": kind for kind in ("tools", "resources", "prompts")}


def takes_stream(interface: str) -> bool:
    """True for an interface whose functions take the stream of a client."""
    return is_wasmcp(interface) and interface.partition("@")[0].endswith(_STREAMED)


def wasmcp_functions(
    granted: ComponentGrants, handles: WasiHandles
) -> Mapping[tuple[str, str], Typed]:
    """Return the functions by interface and name."""
    found = {
        (f"{_EARLY}/handler", "handle-request"): Typed(_early_next),
        (f"{_EARLY}/handler", "handle-response"): Typed(lambda _: _ignored),
        (f"{_EARLY}/handler", "handle-notification"): Typed(lambda _: _ignored),
        (f"{_EARLY}/notifications", "progress"): _telling(
            lambda token, progress, total, message: _progress(progress, total, message)
        ),
        (f"{_EARLY}/notifications", "log"): _telling(
            lambda message, level, logger: _log(level, message, logger)
        ),
        (f"{_EARLY}/notifications", "list-changed"): _telling(_changed),
        (f"{_EARLY}/notifications", "updated"): _telling(_unnamed),
        (f"{_EARLY}/notifications", "request"): _telling(_request),
    }
    for package in _DATED:
        found |= {
            (f"{package}/server-handler", "handle"): Typed(_dated_next),
            (f"{package}/server-io", "send-message"): _telling(
                lambda message, frame: _message(message)
            ),
            (f"{package}/server-io", "flush-buffer"): Typed(lambda _: lambda *given: {"ok": None}),
            **session_functions(f"{package}/sessions", granted, handles),
        }
    return found


# The next handler.


def _dated_next(signature: WitFunction) -> Callable[..., Any]:
    assert signature.result is not None
    outcome = signature.result.parts[0]

    def handle(_: object, context: object, message: Any) -> Any:
        if message["tag"] != "request":
            return None  # a notification or a response, which ends here
        return _next(message["value"][1], outcome)

    return handle


def _early_next(signature: WitFunction) -> Callable[..., Any]:
    def handle(_: object, context: object, request: Any, stream: object) -> Any:
        return _next(request[0], signature.result)

    return handle


def _next(request: Any, outcome: Shape | None) -> dict[str, Any]:
    """Pass a request of the guest on, and return the response as its types have it."""
    assert outcome is not None
    results = outcome.parts[0]
    assert results is not None
    call = current_call()
    handled: HandledRequest | None = call.handled
    if handled is None:
        return {"err": typed_error(GuestError("there is no request now"))}
    try:
        method, text = handled.sent(request)
        return handled.received(method, outside(lambda client: client.next(text)), results)
    except GuestError as error:
        return {"err": typed_error(error)}
    except Refused as error:
        return {"err": typed_error(GuestError(str(error)))}
    except PassedBy as passed:
        call.ended_by = passed
        raise WasmtimeError("the request was answered with what wasmcp has no types for") from None


def _ignored(*given: object) -> None:
    """Messages of the client do not pass middleware."""


# Messages to the client.


def _telling(made: Callable[..., _Told]) -> Typed:
    """Return a function that takes a stream and more, and returns a `result` without a value."""

    def tell(_: object, stream: object, *given: Any) -> dict[str, Any]:
        try:
            told = made(*given)
            if told is not None:
                what, params = told
                outside(lambda client: client.tell(what, params))
        except Refused as error:
            return {"err": {"tag": "unexpected", "value": str(error)}}
        return {"ok": None}

    return Typed(lambda _: tell)


def _message(message: Any) -> _Told:
    if message["tag"] != "notification":
        raise Refused(f"a {message['tag']} cannot be sent; ask with session.elicit")
    tag, value = message["value"]["tag"], message["value"]["value"]
    if tag in _CHANGES:
        return CHANGED, {"kind": _CHANGES[tag]}
    if tag == "resources-updated":
        return UPDATED, {"uri": value["uri"]}
    if tag == "log":
        return _log(value["level"], value["data"], value["logger"])
    if tag == "progress":
        return _progress(value["progress"], value["total"], value["message"])
    return None  # a cancelled request of a server, which sends none; the end of an elicitation


def _progress(progress: float, total: float | None, message: str | None) -> _Told:
    """The token is not needed: the client of the call is known."""
    return PROGRESS, progress_params(progress, total, message)


def _log(level: str, data: str, logger: str | None) -> _Told:
    return LOG, {"level": level, "data": json_or_text(data), "logger": logger}


def _changed(kinds: list[str]) -> _Told:
    return (CHANGED, {"kind": kinds[0]}) if kinds else None


def _unnamed(kinds: list[str]) -> _Told:
    raise Refused("which resource was updated is not known: this version has no URI for it")


def _request(request: Any) -> _Told:
    raise Refused(f"{request['tag']} cannot be sent as a notification")
