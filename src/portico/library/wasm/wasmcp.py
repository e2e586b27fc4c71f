"""The adapters of wasmcp's interfaces, which have types of their own for everything in MCP."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec import Struct

from portico.core.model.errors import INVALID_PARAMS, PorticoError
from portico.library.wasm import wasmcp_values as values
from portico.library.wasm.guest import Guest, GuestError
from portico.library.wasm.wasmcp_context import dated_context, early_context
from portico.library.wit.wit_values import Mismatch

_Args = Callable[[Guest, values.Record], tuple[object, ...]]
_NAME = re.compile(r"(wasmcp:[a-z0-9-]+)/([a-z0-9-]+)(?:@(.+))?")


class UnknownVersion(PorticoError):
    """A component exports a version of wasmcp's interfaces that Portico does not know."""


class _Function(Struct, frozen=True):
    interface: str
    name: str
    request: Callable[[values.Params], values.Record]
    result: Callable[[values.Record], values.Record]


FUNCTIONS: Mapping[str, _Function] = {
    "tools/list": _Function("tools", "list-tools", values.cursor_request, values.plain),
    "tools/call": _Function("tools", "call-tool", values.named_request, values.tool_result),
    "resources/list": _Function("resources", "list-resources", values.cursor_request, values.plain),
    "resources/templates/list": _Function(
        "resources", "list-resource-templates", values.cursor_request, values.plain
    ),
    "resources/read": _Function(
        "resources", "read-resource", values.uri_request, values.resource_result
    ),
    "prompts/list": _Function("prompts", "list-prompts", values.cursor_request, values.plain),
    "prompts/get": _Function("prompts", "get-prompt", values.named_request, values.prompt_result),
    "completion/complete": _Function(
        "completions", "complete", values.completion_request, values.completion_result
    ),
}
_INTERFACES = frozenset(function.interface for function in FUNCTIONS.values())


def _dated(protocol: str) -> _Args:
    """Return the maker of arguments of a package that is named after a version of MCP."""
    return lambda guest, request: (dated_context(guest, protocol), request)


def _early(guest: Guest, request: values.Record) -> tuple[object, ...]:
    return early_context(guest), request, guest.client_stream()


_PACKAGES: Mapping[str, tuple[str, _Args]] = {
    "wasmcp:mcp-v20251125": ("0.1.1", _dated("2025-11-25")),
    "wasmcp:mcp-v20250618": ("0.1.8", _dated("2025-06-18")),
    "wasmcp:protocol": ("0.1.0-beta.2", _early),
}
"""By package, the version whose types are known, and how a function's arguments are made."""


class WasmcpCapability:
    """One interface of wasmcp's that a component exports."""

    def __init__(self, export: str, interface: str, args: _Args) -> None:
        """`export` is its full name, with the package and the version."""
        self._export = export
        self._args = args
        self._functions = {
            method: function
            for method, function in FUNCTIONS.items()
            if function.interface == interface
        }
        self.methods = frozenset(self._functions)

    def answer(
        self, guest: Guest, method: str, params: Mapping[str, object]
    ) -> Mapping[str, object] | None:
        """Return the result object of a request; None: not mine. Raises GuestError."""
        function = self._functions[method]
        try:
            outcome: Any = guest.call(
                self._export, function.name, *self._args(guest, function.request(params))
            )
        except Mismatch as mismatch:
            raise GuestError(f"invalid params of {method}: {mismatch}", INVALID_PARAMS) from None
        try:
            return _result(function, outcome)
        except (AttributeError, KeyError, TypeError, ValueError):
            what = f"{self._export} has other types than the interface of this name"
            raise GuestError(f"{function.name} of {what}") from None


def _result(function: _Function, outcome: Any) -> values.Record | None:
    # Of the early version, only lists can fail; the others return their result as it is.
    if outcome is not None and "err" in outcome:
        raise values.error_of(outcome["err"])
    if outcome is not None and "ok" in outcome:
        outcome = outcome["ok"]
    return None if outcome is None else function.result(outcome)


def wasmcp_capabilities(
    functions: Collection[tuple[str, str]],
) -> tuple[WasmcpCapability, ...]:
    """Return wasmcp's capabilities among exported functions.

    A function is its interface and its name. Raises UnknownVersion, which names both versions.
    """
    found = []
    for export in dict.fromkeys(interface for interface, _ in functions):
        match = _NAME.fullmatch(export)
        if match is None:
            continue
        package, interface, version = match.groups()
        if interface in _INTERFACES:
            args = _known(package, version, export)
            _check_complete(export, interface, functions)
            found.append(WasmcpCapability(export, interface, args))
    return tuple(found)


def _check_complete(export: str, interface: str, functions: Collection[tuple[str, str]]) -> None:
    for function in FUNCTIONS.values():
        if function.interface == interface and (export, function.name) not in functions:
            raise UnknownVersion(f"exports {export} without its function {function.name}")


def _known(package: str, version: str | None, export: str) -> _Args:
    known, args = _PACKAGES.get(package, ("", _early))
    if known and version == known:
        return args
    names = [f"{package}@{known}"] if known else [f"{n}@{v}" for n, (v, _) in _PACKAGES.items()]
    what = f"exports {export}, but Portico knows {', '.join(names)}"
    raise UnknownVersion(f"{what}; build the component for that version")
