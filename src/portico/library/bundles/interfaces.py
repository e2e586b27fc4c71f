"""The interfaces between Portico and components, and the versions that this Portico knows."""

import re
from collections.abc import Mapping, Sequence

from portico.core.model.errors import PorticoError
from portico.core.model.wording import printable

INTERFACES: Mapping[str, Sequence[str]] = {
    "python": ("1",),
    "definitions": ("1",),
    "portico:mcp": ("0.1.0",),
    "wasmcp:mcp-v20250618": ("0.1.8",),
    "wasmcp:mcp-v20251125": ("0.1.1",),
    "wasmcp:protocol": ("0.1.0-beta.2",),
    "wasmcp:server": ("0.1.0-beta.2",),
    "component": ("1",),
}
"""By the name of each interface, its versions, oldest first. `component` is any WebAssembly
component, whose functions are its tools."""
_WRITTEN = r"[a-z][a-z0-9:/-]*@[A-Za-z0-9][\w.+-]*"


class UnknownInterface(PorticoError):
    """A component that was made for another version of an interface."""


def newest(name: str) -> str:
    """Return an interface with its newest version."""
    return f"{name}@{INTERFACES[name][-1]}"


def check_interface(interface: str, what: str) -> None:
    """Raise UnknownInterface, with both versions, unless this Portico knows the interface."""
    if not re.fullmatch(_WRITTEN, interface):
        text = printable(interface)[:80]
        raise UnknownInterface(f"{what}: {text!r} is not an interface; write NAME@VERSION")
    name, _, version = interface.rpartition("@")
    known = INTERFACES.get(name)
    if known is None:
        names = ", ".join(f"{one}@{versions[-1]}" for one, versions in INTERFACES.items())
        how = f"this Portico knows {names}"
        raise UnknownInterface(f"{what}: the interface {interface} is not known; {how}")
    if version not in known:
        versions = ", ".join(f"{name}@{one}" for one in known)
        how = "update the component or Portico"
        raise UnknownInterface(
            f"{what}: made for {interface}, and this Portico knows {versions}; {how}"
        )
