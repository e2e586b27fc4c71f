"""The adapters of Portico's own WIT: JSON strings in and out."""

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from portico.core.model.errors import INTERNAL_ERROR, PorticoError
from portico.core.protocol.result_fields import error_result
from portico.library.wasm.guest import Guest, GuestError
from portico.library.wit.wit_values import Mismatch

VERSION = "0.1.0"
_IMPORTED = (
    "call",
    "config",
    "handler",
    "http",
    "notifications",
    "questions",
    "secrets",
    "session",
)
IMPORTED = frozenset(f"portico:mcp/{name}" for name in _IMPORTED)
"""The interfaces that a component may import."""
_NAME = re.compile(r"portico:mcp/([a-z0-9-]+)(?:@(.+))?")
_SUFFIX = "-capability"
_Params = Mapping[str, Any]
MIDDLEWARE = "handler"


class UnknownOwnVersion(PorticoError):
    """A component has a version of Portico's interfaces that this Portico does not know."""


def check_version(verb: str, name: str) -> None:
    """Raise UnknownOwnVersion for an interface of Portico's WIT in another version."""
    match = _NAME.fullmatch(name)
    if match is not None and match[2] != VERSION:
        what = f"{verb} {name}, but Portico knows portico:mcp@{VERSION}"
        raise UnknownOwnVersion(f"{what}; build the component for that version")


class _OwnFunction(Struct, frozen=True):
    interface: str
    name: str
    args: Callable[[_Params], tuple[str, ...]]


def _nothing(params: _Params) -> tuple[str, ...]:
    return ()


def _named(params: _Params) -> tuple[str, ...]:
    return str(params.get("name", "")), _json(params.get("arguments") or {})


def _uri(params: _Params) -> tuple[str, ...]:
    return (str(params.get("uri", "")),)


def _whole(params: _Params) -> tuple[str, ...]:
    known = ("ref", "argument", "context")
    return (_json({key: params[key] for key in known if key in params}),)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_FUNCTIONS: Mapping[str, _OwnFunction] = {
    "tools/list": _OwnFunction("tools", "list-tools", _nothing),
    "tools/call": _OwnFunction("tools", "call-tool", _named),
    "resources/list": _OwnFunction("resources", "list-resources", _nothing),
    "resources/templates/list": _OwnFunction("resources", "list-resource-templates", _nothing),
    "resources/read": _OwnFunction("resources", "read-resource", _uri),
    "prompts/list": _OwnFunction("prompts", "list-prompts", _nothing),
    "prompts/get": _OwnFunction("prompts", "get-prompt", _named),
    "completion/complete": _OwnFunction("completions", "complete", _whole),
}
_INTERFACES = frozenset(function.interface for function in _FUNCTIONS.values())


class OwnCapability:
    """One of Portico's interfaces that a component exports."""

    def __init__(self, export: str, interface: str) -> None:
        self._export = export
        self.methods = frozenset(
            method for method, one in _FUNCTIONS.items() if one.interface == interface
        )

    def answer(self, guest: Guest, method: str, params: _Params) -> Mapping[str, object] | None:
        """Return the result object of a request; None: not mine. Raises GuestError."""
        function = _FUNCTIONS[method]
        case, text = self._called(guest, function, params)
        if case == "err":
            return _failed(text, is_tool=method == "tools/call")
        try:
            result = msgspec.json.decode(text, type=dict[str, Any] | None)
        except (msgspec.DecodeError, RecursionError) as error:
            what = "returned a result that is not a JSON object or null"
            raise GuestError(f"{function.name} {what}: {error}") from None
        return result

    def _called(self, guest: Guest, function: _OwnFunction, params: _Params) -> tuple[str, str]:
        """Return the case of a function's result, and its text."""
        with suppress(Mismatch, AttributeError, ValueError):
            outcome: Any = guest.call(self._export, function.name, *function.args(params))
            ((case, text),) = outcome.items()
            if isinstance(text, str):
                return case, text
        what = f"{self._export} has other types than the interface of this name"
        raise GuestError(f"{function.name} of {what}")


class _WrittenError(Struct):
    message: str
    code: int = INTERNAL_ERROR
    data: Any = None


def _failed(text: str, *, is_tool: bool) -> Mapping[str, object]:
    try:
        error = msgspec.json.decode(text, type=_WrittenError)
    except (msgspec.DecodeError, RecursionError):
        if is_tool:
            return error_result(text)
        raise GuestError(text or "failed without a reason") from None
    raise GuestError(error.message, error.code, error.data)


def own_capabilities(
    functions: Collection[tuple[str, str]],
) -> tuple[tuple[OwnCapability, ...], tuple[tuple[str, str], ...]]:
    """Return the capabilities of Portico's WIT among exported functions, and those not run.

    A function is its interface and its name. Raises UnknownOwnVersion.
    """
    found, skipped = [], []
    for export in dict.fromkeys(interface for interface, _ in functions):
        match = _NAME.fullmatch(export)
        if match is None:
            continue
        check_version("exports", export)
        name = match[1]
        interface = name.removesuffix(_SUFFIX)
        if name == MIDDLEWARE:
            skipped.append((export, "is middleware without the function handle"))
        elif name == interface or interface not in _INTERFACES:
            skipped.append((export, "is not an interface that Portico calls"))
        else:
            _check_functions(export, interface, functions)
            found.append(OwnCapability(export, interface))
    return tuple(found), tuple(skipped)


def _check_functions(export: str, interface: str, functions: Collection[tuple[str, str]]) -> None:
    for function in _FUNCTIONS.values():
        if function.interface == interface and (export, function.name) not in functions:
            raise UnknownOwnVersion(f"exports {export} without its function {function.name}")
