"""The interfaces that a component imports from its host, and that Portico defines.

Compilers keep every function of each interface that a type comes from, so most of them are never
called.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from wasmtime import WasmtimeError
from wasmtime.component import ComponentInstanceType, FuncType, ResourceType

from portico.wit.raw_host import Typed, add_typed_function
from portico.wit.wit_types import signature_of

if TYPE_CHECKING:
    from wasmtime import Engine
    from wasmtime.component import Component, Linker

HostFunction = Callable[..., Any]
"""Takes the store's context and wasmtime-py's values, and returns one."""
Functions = Mapping[tuple[str, str], HostFunction | Typed]
"""By interface without its version, and name."""

PACKAGES = ("wasmcp:",)
# wasmtime distinguishes the resources of the host by any number that no other one has.
SESSION, FUTURE = 7_601, 7_602
RESOURCES = {("sessions", "session"): SESSION, ("sessions", "future-elicit-result"): FUTURE}
_OTHERS = count(7_700)


def is_wasmcp(interface: str) -> bool:
    """True for an interface of wasmcp's."""
    return interface.startswith(PACKAGES)


def notifies(interface: str) -> bool:
    """True for an interface whose functions send notifications."""
    return interface.partition("@")[0].endswith(("/notifications", "/server-io"))


def define_wasmcp_imports(
    linker: "Linker",
    component: "Component",
    engine: "Engine",
    functions: Functions | None = None,
) -> None:
    """Define all of wasmcp's interfaces that a component imports; see `define_imports`."""
    define_imports(
        linker, component, engine, is_wasmcp, functions or {}, "which Portico does not provide"
    )


def define_imports(
    linker: "Linker",
    component: "Component",
    engine: "Engine",
    is_defined: Callable[[str], bool],
    functions: Functions,
    why: str,
) -> None:
    """Define the interfaces that a component imports and `is_defined` accepts.

    `functions` are those that do something. Any other one ends the call with `why`.
    """
    with linker.root() as root:
        for interface, item in component.type.imports(engine).items():
            kind: Any = getattr(item, "ty", item)
            if not isinstance(kind, ComponentInstanceType) or not is_defined(interface):
                continue
            plain = interface.partition("@")[0]
            inner = {name: getattr(one, "ty", one) for name, one in kind.exports(engine).items()}
            # An interface of types only needs no definition: its resources are WASI's.
            if not any(isinstance(one, FuncType) for one in inner.values()):
                continue
            with root.add_instance(interface) as instance:
                for name, one in inner.items():
                    if isinstance(one, FuncType):
                        function = functions.get((plain, name)) or _missing(plain, name, why)
                        _define(instance, name, one, function)
                    elif isinstance(one, ResourceType) and _is_own(name, inner):
                        number = RESOURCES.get((plain.partition("/")[2], name)) or next(_OTHERS)
                        instance.add_resource(name, ResourceType.host(number), _dropped)


def _define(instance: Any, name: str, kind: FuncType, function: HostFunction | Typed) -> None:
    if isinstance(function, Typed):
        signature = signature_of(kind)
        add_typed_function(instance, name, signature, function.make(signature))
    else:
        instance.add_func(name, function)


def _is_own(name: str, inner: Mapping[str, Any]) -> bool:
    """True for a resource that this interface makes; others are WASI's, used by name."""
    return any(f"]{name}." in one or one == f"[constructor]{name}" for one in inner)


def _missing(interface: str, name: str, why: str) -> HostFunction:
    def missing(*_: object) -> Any:
        # wasmtime-py keeps any other exception in a place that all threads share.
        raise WasmtimeError(f"called {interface}.{name}, {why}")

    return missing


def _dropped(store: object, representation: int) -> None:
    """Nothing is kept for a handle that no function can have made."""
