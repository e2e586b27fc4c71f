"""A component with everything that its calls share: code, exports, imports, capabilities.

At every tick of the epoch, the host decides whether a guest continues: wasmtime-py itself has a
deadline only, which cannot be moved while the guest runs. The functions of the host in Portico's
own WIT do only what is granted.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from wasmtime import Store, WasiConfig, WasmtimeError
from wasmtime import _ffi as ffi
from wasmtime.component import Linker, Variant

from portico.core.config.component_grants import ANY, ComponentGrants
from portico.core.model.errors import PorticoError
from portico.core.state.report import report
from portico.library.wasm.client_functions import client_functions
from portico.library.wasm.client_stream import WasiHandles
from portico.library.wasm.detect import detect
from portico.library.wasm.exports import EnteredInstance, Exports
from portico.library.wasm.failures import INTERRUPTED, Refused
from portico.library.wasm.host_interfaces import (
    HostFunction,
    define_imports,
    define_wasmcp_imports,
    is_wasmcp,
)
from portico.library.wasm.own_wit import IMPORTED, VERSION, check_version
from portico.library.wasm.running_call import CallEnded, current_call
from portico.library.wasm.settings import MB, HostSettings
from portico.library.wasm.sidecar import ENDING, read_sidecar
from portico.library.wasm.wasmcp_host import takes_stream, wasmcp_functions

if TYPE_CHECKING:
    from wasmtime import Engine
    from wasmtime.component import Component

_CONTINUE = 0
_PACKAGE = "portico:mcp/"


def end_with_call(store: Store) -> None:
    """End the guest of a store as soon as the call that it runs for is over."""
    ffi.wasmtime_store_epoch_deadline_callback(store.ptr(), _at_tick, None, _no_finalizer)
    store.set_epoch_deadline(1)


def _decide(context: Any, data: Any, ticks: Any, kind: Any) -> int:
    """Let the guest of this thread run until the next tick, or return an error that ends it."""
    if current_call().is_over:
        error = ffi.wasmtime_error_new(INTERRUPTED.encode())
        return ctypes.cast(error, ctypes.c_void_p).value or 0
    ticks[0], kind[0] = 1, _CONTINUE
    return 0


_at_tick = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.POINTER(ffi.wasmtime_context_t),
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint8),
)(_decide)
_no_finalizer = ctypes.CFUNCTYPE(None, ctypes.c_void_p)()

_MAX_TABLE, _MAX_INSTANCES, _MAX_TABLES, _MAX_MEMORIES = 200_000, 400, 200, 8
_WASI = ("wasi:io/", "wasi:clocks/", "wasi:cli/", "wasi:filesystem/", "wasi:random/")
_SOCKETS, _HTTP = "wasi:sockets/", "wasi:http/"


class UnknownImport(PorticoError):
    """A component imports an interface that Portico does not have."""


class LoadedComponent:
    """A component that can be entered: each entry is a new instance."""

    def __init__(self, settings: HostSettings, engine: "Engine", component: "Component") -> None:
        """Raises PorticoError if it offers nothing, or an import is unknown."""
        self.settings = settings
        self.engine = engine
        self._component = component
        self.exports = Exports(component, engine)
        imports = tuple(component.type.imports(engine))
        _check_imports(imports)
        sidecar = read_sidecar(settings.sidecar or settings.file + ENDING)
        self.found = detect(self.exports, sidecar, imports)
        self._linker = self._link()

    def _link(self) -> Linker:
        linker = Linker(self.engine)
        linker.add_wasip2()
        handles = WasiHandles(self.engine, linker)
        self._handles = handles if any(map(takes_stream, self.found.imports)) else None
        granted, parts = self.settings.granted, (self._component, self.engine)
        if ANY in granted.http:
            linker.add_wasi_http()
        else:
            define_imports(linker, *parts, is_http, {}, _why_no_http(granted))
        define_wasmcp_imports(linker, *parts, wasmcp_functions(granted, handles))
        functions = {**host_functions(granted), **client_functions(granted)}
        why = "which this version of Portico does not provide"
        define_imports(linker, *parts, is_own_import, functions, why)
        return linker

    def enter(self, on_stderr: Callable[[bytes], object]) -> EnteredInstance:
        """Return a new instance; raises WasmtimeError. `on_stderr` gets what it writes there."""
        settings = self.settings
        store = Store(self.engine)
        store.set_limits(
            memory_size=int(settings.limits.memory_mb * MB),
            table_elements=_MAX_TABLE,
            instances=_MAX_INSTANCES,
            tables=_MAX_TABLES,
            memories=_MAX_MEMORIES,
        )
        store.set_wasi(self._wasi(on_stderr))
        if ANY in settings.granted.http:
            store.set_wasi_http()
        end_with_call(store)
        instance = self._linker.instantiate(store, self._component)
        return self.exports.enter(store, instance, self._handles)

    def give_no_stream(self) -> bool:
        """Give its guests no stream from now on; False if they get none already."""
        had, self._handles = self._handles, None
        if had is not None:
            what = "its compiler does not return the stream of a client, so it gets none"
            report(f"{self.settings.name}: {what}, and cannot send notifications")
        return had is not None

    def _wasi(self, on_stderr: Callable[[bytes], object]) -> WasiConfig:
        wasi = WasiConfig()
        granted = self.settings.granted
        wasi.env = granted.env.items()
        wasi.stderr_custom = on_stderr
        for folder in granted.files:
            try:
                wasi.preopen_dir(folder.path, folder.guest, folder.is_writable)
            except WasmtimeError:
                raise WasmtimeError(f"the granted folder {folder.path} cannot be opened") from None
        return wasi


def is_http(interface: str) -> bool:
    """True for an interface of wasi:http."""
    return interface.startswith(_HTTP)


def _why_no_http(granted: ComponentGrants) -> str:
    why = "only http=any can be granted to it" if granted.http else "no host is granted"
    return f"but {why}"


def _check_imports(imports: Sequence[str]) -> None:
    for name in imports:
        check_version("imports", name)
        interface, _, version = name.partition("@")
        if name.startswith((*_WASI, _SOCKETS, _HTTP)):
            if not version.startswith("0.2."):
                what = f"imports {name}, but Portico knows WASI 0.2"
                raise UnknownImport(f"{what}; build the component for that version")
        elif not is_wasmcp(name) and interface not in IMPORTED:
            what = f"imports {name}, which Portico does not have"
            raise UnknownImport(f"{what}; build the component without it")


def ungranted(imports: Sequence[str], settings: HostSettings) -> list[str]:
    """Return, in words, the imports that do nothing because nothing is granted to them."""
    granted = settings.granted
    plain = [name.partition("@")[0] for name in imports]
    found = []
    if any(map(is_http, imports)) and ANY not in granted.http:
        found.append(f"imports wasi:http, {_why_no_http(granted)}")
    words = {
        "portico:mcp/http": (granted.http, "no host is granted"),
        "portico:mcp/config": (granted.config, "no config is granted"),
        "portico:mcp/secrets": (granted.secrets, "no secret is granted"),
    }
    for name, (has, why) in words.items():
        if name in plain and not has:
            found.append(f"imports {name}, but {why}")
    return found


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
