"""Finds what a component offers, by the interfaces that it exports."""

from collections.abc import Iterable

from portico.core.model.errors import PorticoError
from portico.library.wasm.derived import derive
from portico.library.wasm.exports import Exports
from portico.library.wasm.guest import Capability, Found
from portico.library.wasm.handlers import own_handler
from portico.library.wasm.own_wit import own_capabilities
from portico.library.wasm.sidecar import InvalidSidecar, Sidecar
from portico.library.wasm.wasmcp import wasmcp_capabilities
from portico.library.wasm.wasmcp_handlers import wasmcp_handler

_KINDS = ("tools", "resources", "prompts", "completions")


class NothingOffered(PorticoError):
    """A component has no function that can be a tool, and none of the known interfaces."""


def detect(exports: Exports, sidecar: Sidecar, imports: Iterable[str] = ()) -> Found:
    """Return the capabilities of a component; raises PorticoError with the reason for none."""
    handler = own_handler(exports.functions) or wasmcp_handler(exports.functions)
    if handler is not None:
        return Found((), (), tuple(imports), handler)
    own, skipped = own_capabilities(exports.functions)
    known: tuple[Capability, ...] = (*own, *wasmcp_capabilities(exports.functions))
    if known or skipped:
        if sidecar.functions:
            what = "the sidecar describes functions, but this component describes its own tools"
            raise InvalidSidecar(f"{what}; remove the file")
    else:
        tools, skipped = derive(exports, sidecar)
        known = () if tools is None else (tools,)
    if not known:
        raise NothingOffered(_nothing(skipped))
    return Found(known, skipped, tuple(imports))


def _nothing(skipped: tuple[tuple[str, str], ...]) -> str:
    if not skipped:
        return "the component exports no functions, so it offers nothing"
    reasons = "; ".join(f"{name} {reason}" for name, reason in skipped[:5])
    return f"the component offers nothing that can be called: {reasons}"


def declared_kinds(exports: Iterable[str]) -> frozenset[str]:
    """Return the kinds that a component probably offers, by the names of its exports alone."""
    found: set[str] = set()
    is_known = False
    for name in exports:
        package, _, rest = name.partition("/")
        if package == "portico:mcp" or package.startswith("wasmcp:"):
            is_known = True
            found.add(rest.partition("@")[0].removesuffix("-capability"))
    return frozenset(found.intersection(_KINDS)) if is_known else frozenset({"tools"})
