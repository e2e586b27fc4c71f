"""Makes tools of the functions of any component: their names, schemas and results."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from portico.core.model.errors import INVALID_PARAMS, PorticoError
from portico.core.protocol.result_fields import error_result
from portico.library.wasm.exports import Exports
from portico.library.wasm.guest import Guest, GuestError
from portico.library.wasm.sidecar import Described, Descriptions, Sidecar
from portico.library.wit.wit_schema import Schema, input_schema, schema_of
from portico.library.wit.wit_types import Shape, WitFunction
from portico.library.wit.wit_values import Mismatch

_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_QUICKJS_START = ("shim", "script", "entry-path", "disable-gc")
_PYTHON_START = "exports"
_NEEDS_RESOURCE = "takes or returns a resource, which exists only inside the component"
_IS_WASI = "is an interface of WASI, not a tool"


class ToolNameClash(PorticoError):
    """Two functions of a component would be the same tool."""


class DerivedTool:
    """One function as a tool."""

    def __init__(
        self, interface: str, function: str, signature: WitFunction, described: Described
    ) -> None:
        self.interface = interface
        self.function = function
        self.name = described.name or function.replace("-", "_")
        self._params = [(name, shape.kind == "option") for name, shape in signature.params]
        self._result = signature.result
        self.definition = _definition(self.name, signature, described)

    def call(self, guest: Guest, arguments: Mapping[str, object]) -> dict[str, Any]:
        """Return the result of `tools/call`; wrong arguments are the tool's own failure."""
        try:
            given = self._in_order(arguments)
            value = guest.call(self.interface, self.function, *given)
        except Mismatch as mismatch:
            return error_result(f"invalid arguments of {self.name}: {mismatch}")
        return _result_of(self._result, value)

    def _in_order(self, arguments: Mapping[str, object]) -> list[object]:
        unknown = arguments.keys() - {name for name, _ in self._params}
        if unknown:
            raise Mismatch(f"there is no parameter {min(unknown)[:80]!r}")
        for name, is_optional in self._params:
            if name not in arguments and not is_optional:
                raise Mismatch(f"{name} is missing")
        return [arguments.get(name) for name, _ in self._params]


class DerivedTools:
    """The tools that a component's functions are."""

    methods = frozenset({"tools/list", "tools/call"})

    def __init__(self, tools: list[DerivedTool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._list = {"tools": [tool.definition for tool in tools]}

    def answer(
        self, guest: Guest, method: str, params: Mapping[str, object]
    ) -> Mapping[str, object] | None:
        """Return the result object of a request; None: no function has this name."""
        if method == "tools/list":
            return self._list
        tool = self._tools.get(str(params.get("name")))
        if tool is None:
            return None
        arguments = params.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise GuestError("arguments must be an object", INVALID_PARAMS)
        return tool.call(guest, arguments)


def derive(
    exports: Exports, sidecar: Sidecar
) -> tuple[DerivedTools | None, tuple[tuple[str, str], ...]]:
    """Return the tools of a component, and the functions that cannot be tools, with reasons.

    Raises ToolNameClash, and InvalidSidecar for a description of a function that does not exist.
    """
    descriptions = Descriptions(sidecar)
    tools: dict[str, DerivedTool] = {}
    skipped = [(_label(one, name), reason) for one, name, reason in exports.unsupported]
    known: dict[str, object] = {}
    for (interface, function), export in exports.functions.items():
        label, signature = _label(interface, function), export.signature
        if _is_start(interface, function, signature):
            continue
        reason = _reason(interface, signature)
        if reason:
            skipped.append((label, reason))
            continue
        known[label] = None
        keys = (f"{interface}/{function}", label, function)
        described = descriptions.of(keys, [name for name, _ in signature.params])
        tool = DerivedTool(interface, function, signature, described)
        _check_name(tool, label, tools.get(tool.name))
        tools[tool.name] = tool
    descriptions.check_all_used(known)
    return (DerivedTools([*tools.values()]) if tools else None), tuple(skipped)


def _label(interface: str, function: str) -> str:
    """Return a function as people know it: `work/add` of `example:math/work@1.0.0`."""
    short = interface.partition("@")[0].rpartition("/")[2]
    return f"{short}/{function}" if short else function


def _is_start(interface: str, function: str, signature: WitFunction) -> bool:
    """True for what a compiler leaves in a component for its own start."""
    if interface == _PYTHON_START:
        return True
    names = tuple(name for name, _ in signature.params)
    return not interface and function == "init" and names == _QUICKJS_START


def _reason(interface: str, signature: WitFunction) -> str:
    if interface.startswith("wasi:"):
        return _IS_WASI
    return _NEEDS_RESOURCE if signature.has("resource") else ""


def _check_name(tool: DerivedTool, label: str, other: DerivedTool | None) -> None:
    how = "another `name` in the component's .wasm.toml file"
    if not _TOOL_NAME.fullmatch(tool.name):
        what = f"{label[:140]} cannot be the tool {tool.name[:140]!r}"
        why = "a name has 1 to 128 letters, digits, `_`, `-` and `.`"
        raise ToolNameClash(f"{what}: {why}; give it {how}")
    if other is not None:
        both = f"{_label(other.interface, other.function)} and {label}"
        raise ToolNameClash(f"{both} would both be the tool {tool.name!r}; give one of them {how}")


def _definition(name: str, signature: WitFunction, described: Described) -> dict[str, Any]:
    inputs = input_schema(signature)
    for parameter, text in described.parameters.items():
        inputs["properties"][parameter]["description"] = text
    definition: dict[str, Any] = {"name": name, "inputSchema": inputs}
    if described.title:
        definition["title"] = described.title
    if described.description:
        definition["description"] = described.description
    output = _output_schema(_success(signature.result))
    return definition | {"outputSchema": output} if output else definition


def _success(result: Shape | None) -> Shape | None:
    return result.parts[0] if result is not None and result.kind == "result" else result


def _output_schema(result: Shape | None) -> Schema | None:
    if result is None:
        return None
    if result.kind == "record":
        return schema_of(result)
    wrapped = {"result": schema_of(result)}
    return {"type": "object", "properties": wrapped, "required": ["result"]}


def _result_of(shape: Shape | None, value: Any) -> dict[str, Any]:
    if shape is not None and shape.kind == "result":
        if "err" in value:
            return error_result(_text(value["err"]) or "the function failed without a reason")
        shape, value = shape.parts[0], value["ok"]
    if shape is None:
        return {"content": []}
    data = value if shape.kind == "record" else {"result": value}
    return {"content": [{"type": "text", "text": _text(value)}], "structuredContent": data}


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
