"""The functions that wasmcp's components import from their host.

Their compilers keep every function of each interface that a type comes from, so most of these are
never called. Messages to a client and the calls of a middleware have their place here.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from wasmtime.component import ComponentInstanceType, FuncType, ResourceType

from portico.model.errors import PorticoError

if TYPE_CHECKING:
    from wasmtime import Engine
    from wasmtime.component import Component, Linker

HostFunction = Callable[..., Any]
"""Takes the store's context and wasmtime-py's values, and returns one."""

PACKAGES = ("wasmcp:",)
# Any number that no other resource of the host has: wasmtime distinguishes types by it.
_FIRST_RESOURCE = 7_700


class NotProvided(PorticoError):
    """A guest called a function of wasmcp's that Portico does not provide."""


def is_wasmcp(interface: str) -> bool:
    """True for an interface that `define_wasmcp_imports` defines."""
    return interface.startswith(PACKAGES)


def define_wasmcp_imports(
    linker: "Linker",
    component: "Component",
    engine: "Engine",
    functions: Mapping[tuple[str, str], HostFunction] | None = None,
) -> None:
    """Define all of wasmcp's interfaces that a component imports.

    `functions` are those that do something, by interface without its version and name; any other
    one raises NotProvided when it is called.
    """
    given = functions or {}
    resource = _FIRST_RESOURCE
    with linker.root() as root:
        for interface, item in component.type.imports(engine).items():
            kind: Any = getattr(item, "ty", item)
            if not is_wasmcp(interface) or not isinstance(kind, ComponentInstanceType):
                continue
            plain = interface.partition("@")[0]
            inner = {name: getattr(one, "ty", one) for name, one in kind.exports(engine).items()}
            # An interface of types only needs no definition: its resources are WASI's.
            if not any(isinstance(one, FuncType) for one in inner.values()):
                continue
            with root.add_instance(interface) as instance:
                for name, one in inner.items():
                    if isinstance(one, FuncType):
                        instance.add_func(name, given.get((plain, name)) or _missing(plain, name))
                    elif isinstance(one, ResourceType) and _is_own(name, inner):
                        instance.add_resource(name, ResourceType.host(resource), _dropped)
                        resource += 1


def _is_own(name: str, inner: Mapping[str, Any]) -> bool:
    """True for a resource that this interface makes; others are WASI's, used by name."""
    return any(f"]{name}." in one or one == f"[constructor]{name}" for one in inner)


def _missing(interface: str, name: str) -> HostFunction:
    def missing(*_: object) -> Any:
        raise NotProvided(f"called {interface}.{name}, which Portico does not provide")

    return missing


def _dropped(store: object, representation: int) -> None:
    """Nothing is kept for a handle that no function can have made."""
