"""The functions of the host that reach the client of a call: the rest of the chain, notifications,
questions, and the values of its session."""

import math
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec
from wasmtime import WasmtimeError
from wasmtime.component import Variant

from portico.core.config.component_grants import ComponentGrants
from portico.core.model.errors import PorticoError
from portico.library.wasm.call_client import CallClient
from portico.library.wasm.failures import Refused
from portico.library.wasm.handler_protocol import CHANGED, LOG, PROGRESS, UPDATED
from portico.library.wasm.host_interfaces import HostFunction
from portico.library.wasm.running_call import CallEnded, current_call

T = TypeVar("T")
_PACKAGE = "portico:mcp/"
_KINDS = ("tools", "resources", "prompts")
_NO_SESSION = "the client of this call has no session"


def client_functions(granted: ComponentGrants) -> Mapping[tuple[str, str], HostFunction]:
    """Return the functions by interface and name."""
    told, kept = f"{_PACKAGE}notifications", f"{_PACKAGE}session"
    return {
        (f"{_PACKAGE}handler", "handle"): _result(lambda client, text: client.next(text)),
        (told, "send-progress"): _telling(PROGRESS, progress_params),
        (told, "send-log"): _telling(
            LOG,
            lambda level, data, logger: {
                "level": level,
                "data": json_or_text(data),
                "logger": logger,
            },
        ),
        (told, "send-resource-updated"): _telling(UPDATED, lambda uri: {"uri": uri}),
        (told, "list-changed"): _telling(CHANGED, _kind),
        (f"{_PACKAGE}questions", "elicit"): _asking("elicitation/create", granted.elicit, "elicit"),
        (f"{_PACKAGE}questions", "sample"): _asking(
            "sampling/createMessage", granted.sample, "sample"
        ),
        (kept, "get"): _result(_get),
        (kept, "set"): _result(_set),
        (kept, "increment"): _result(_increment),
        (kept, "delete"): _result(_delete),
        (kept, "keys"): _result(_keys),
    }


async def _get(client: CallClient, key: str) -> str:
    return _encoded(await _values(client).get(key))


async def _set(client: CallClient, key: str, value: str) -> str:
    try:
        decoded = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused(f"the value is not JSON: {error}") from None
    await _values(client).set(key, decoded)
    return "null"


async def _increment(client: CallClient, key: str, by: int) -> str:
    return str(await _values(client).increment(key, by))


async def _delete(client: CallClient, key: str) -> str:
    return _encoded(await _values(client).delete(key))


async def _keys(client: CallClient) -> str:
    return _encoded(await _values(client).keys())


def _values(client: CallClient) -> Any:
    if client.values is None:
        raise Refused(_NO_SESSION)
    return client.values


def _encoded(value: Any) -> str:
    import base64

    if isinstance(value, bytes):
        value = base64.b64encode(value).decode()
    return msgspec.json.encode(value).decode()


def _asking(method: str, is_granted: bool, name: str) -> HostFunction:
    async def ask(client: CallClient, text: str) -> str:
        if not is_granted:
            raise Refused(f"{name} is not granted")
        try:
            params = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise Refused(f"the params are not a JSON object: {error}") from None
        return await client.ask(method, params)

    return _result(ask)


def _telling(what: str, params: Callable[..., dict[str, Any]]) -> HostFunction:
    def tell(_: object, *given: Any) -> None:
        try:
            made = params(*given)
            outside(lambda client: client.tell(what, made))
        except Refused as error:
            raise WasmtimeError(f"cannot notify the client: {error}") from None

    return tell


def _kind(kind: str) -> dict[str, Any]:
    if kind not in _KINDS:
        raise Refused(f"{kind[:40]!r} must be one of {', '.join(_KINDS)}")
    return {"kind": kind}


def progress_params(progress: float, total: float | None, message: str | None) -> dict[str, Any]:
    """Return the params of a progress notification; raises Refused."""
    if not math.isfinite(progress) or not math.isfinite(total or 0):
        raise Refused("progress and total must be finite numbers")
    return {"progress": progress, "total": total, "message": message}


def json_or_text(data: str) -> Any:
    """Return the value of a text that is JSON; others as they are."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return data


def _result(work: Callable[..., Coroutine[Any, Any, str]]) -> HostFunction:
    """Return a function of WIT with the type `func(...) -> result<string, string>`."""

    def answer(_: object, *given: Any) -> Any:
        try:
            return Variant("ok", outside(lambda client: work(client, *given)))
        except Refused as error:
            return Variant("err", str(error))

    return answer


def outside(work: Callable[[CallClient], Coroutine[Any, Any, T]]) -> T:
    """Do something for the guest of this thread whose time does not count; raises Refused."""
    call = current_call()
    if call.client is None:
        raise Refused("there is no client now")
    try:
        return call.wait_outside(work(call.client))
    except (Refused, WasmtimeError):
        raise
    except CallEnded:
        raise WasmtimeError("the call has ended") from None
    except PorticoError as error:
        raise Refused(str(error)) from None
    except BaseException as error:  # noqa: BLE001  (raised again, outside of wasmtime)
        # wasmtime-py keeps any other exception in a place that all threads share.
        call.ended_by = error
        raise WasmtimeError(f"the host failed: {type(error).__name__}") from None
