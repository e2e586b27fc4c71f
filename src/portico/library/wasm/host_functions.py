"""The functions of the host in Portico's own WIT; each does only what is granted."""

from collections.abc import Callable, Mapping
from typing import Any

from wasmtime import WasmtimeError
from wasmtime.component import Variant

from portico.core.config.component_grants import ComponentGrants
from portico.library.wasm.host_interfaces import HostFunction
from portico.library.wasm.own_wit import VERSION
from portico.library.wasm.refused import Refused
from portico.library.wasm.running_call import CallEnded, current_call

_PACKAGE = "portico:mcp/"


def is_own_import(interface: str) -> bool:
    """True for an interface of Portico's own WIT, in the version that it has."""
    return interface.startswith(_PACKAGE) and interface.endswith(f"@{VERSION}")


def host_functions(granted: ComponentGrants) -> Mapping[tuple[str, str], HostFunction]:
    """Return the functions by interface and name."""
    from portico.library.wasm.guest_fetch import GuestFetch

    fetch = GuestFetch(granted.http)
    return {
        (f"{_PACKAGE}call", "cancelled"): lambda _: current_call().is_cancelled,
        (f"{_PACKAGE}config", "get"): _answering(_named(granted.config, "config")),
        (f"{_PACKAGE}secrets", "get"): _answering(_named(granted.secrets, "secret")),
        (f"{_PACKAGE}http", "fetch"): _answering(
            lambda request: current_call().wait_for(fetch.send(request))
        ),
    }


def _named(values: Mapping[str, str], kind: str) -> Callable[[str], str]:
    def get(name: str) -> str:
        if name not in values:
            raise Refused(f"the {kind} {name[:80]!r} is not granted")
        return values[name]

    return get


def _answering(function: Callable[[str], str]) -> HostFunction:
    """Return a function of WIT with the type `func(string) -> result<string, string>`."""

    def answer(_: object, given: str) -> Any:
        try:
            return Variant("ok", function(given))
        except Refused as error:
            return Variant("err", str(error))
        except TimeoutError:
            return Variant("err", "the time of the call is over")
        except CallEnded:
            return Variant("err", "the call was cancelled")
        except Exception as error:  # noqa: BLE001
            # wasmtime-py keeps any other exception in a place that all threads share.
            raise WasmtimeError(f"the host failed: {type(error).__name__}") from None

    return answer
