"""The interfaces that a component imports from its host, and that Portico defines.

Compilers keep every function of each interface that a type comes from, so most of them are never
called.
"""

from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from wasmtime import WasmtimeError
from wasmtime.component import ComponentInstanceType, FuncType, ResourceType

from portico.library.wit.raw_host import Typed, add_typed_function
from portico.library.wit.wit_types import signature_of

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
    seen: list[ResourceType] = []
    with linker.root() as root:
        for interface, item in component.type.imports(engine).items():
            kind: Any = getattr(item, "ty", item)
            if not isinstance(kind, ComponentInstanceType):
                continue
            own = _definitions(kind, engine, seen)
            # An interface that only names types of others needs no definition.
            if not own or not is_defined(interface):
                continue
            plain = interface.partition("@")[0]
            with root.add_instance(interface) as instance:
                for name, one in own.items():
                    if isinstance(one, FuncType):
                        function = functions.get((plain, name)) or _missing(plain, name, why)
                        _define(instance, name, one, function)
                    else:
                        number = RESOURCES.get((plain.partition("/")[2], name)) or next(_OTHERS)
                        instance.add_resource(name, ResourceType.host(number), _dropped)


def _definitions(
    kind: ComponentInstanceType, engine: "Engine", seen: list[ResourceType]
) -> dict[str, FuncType | ResourceType]:
    """Return the functions of an interface, and the resources that no interface before it has.

    An interface names a resource of another one only after that one; `seen` are those so far.
    """
    found: dict[str, FuncType | ResourceType] = {}
    for name, item in kind.exports(engine).items():
        one: Any = getattr(item, "ty", item)
        if isinstance(one, FuncType):
            found[name] = one
        elif isinstance(one, ResourceType) and one not in seen:
            seen.append(one)
            found[name] = one
    return found


def _define(instance: Any, name: str, kind: FuncType, function: HostFunction | Typed) -> None:
    if isinstance(function, Typed):
        signature = signature_of(kind)
        add_typed_function(instance, name, signature, function.make(signature))
    else:
        instance.add_func(name, function)


def _missing(interface: str, name: str, why: str) -> HostFunction:
    def missing(*_: object) -> Any:
        # wasmtime-py keeps any other exception in a place that all threads share.
        raise WasmtimeError(f"called {interface}.{name}, {why}")

    return missing


def _dropped(store: object, representation: int) -> None:
    """Nothing is kept for a handle that no function can have made."""
