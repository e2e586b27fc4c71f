"""The functions that a component exports, with everything a call needs looked up once."""

from typing import TYPE_CHECKING, Any

from wasmtime.component import ComponentInstanceType, FuncType

from portico.library.wit.raw_values import PreparedFunc, PreparedTypes
from portico.library.wit.wit_types import UnsupportedType, WitFunction, signature_of
from portico.library.wit.wit_values import Handle, Mismatch, checker

if TYPE_CHECKING:
    from wasmtime import Engine, Store
    from wasmtime.component import Component, ExportIndex, Instance

    from portico.library.wasm.client_stream import WasiHandles


class Export:
    """One function that a component exports."""

    def __init__(self, index: "ExportIndex", signature: WitFunction) -> None:
        self.index = index
        self.signature = signature
        self.types = PreparedTypes(signature)
        self.checks = [(name, checker(shape)) for name, shape in signature.params]

    def checked(self, args: tuple[object, ...]) -> list[Any]:
        """Return arguments as they are passed on; raises Mismatch, which names the parameter."""
        if len(args) != len(self.checks):
            raise Mismatch(f"takes {len(self.checks)} arguments, not {len(args)}")
        values = []
        for (name, check), value in zip(self.checks, args, strict=True):
            try:
                values.append(check(value))
            except Mismatch as mismatch:
                mismatch.path.append(name)
                raise
        return values


class Exports:
    """All functions that a component exports, by interface and name."""

    def __init__(self, component: "Component", engine: "Engine") -> None:
        self.functions: dict[tuple[str, str], Export] = {}
        """By interface, which is empty for a function of the root, and name."""
        self.unsupported: list[tuple[str, str, str]] = []
        """Interface, name and reason of those whose values cannot be passed."""
        for name, item in component.type.exports(engine).items():
            kind: Any = getattr(item, "ty", item)
            index = component.get_export_index(name)
            if index is None:
                continue
            if isinstance(kind, FuncType):
                self._add("", name, index, kind)
            elif isinstance(kind, ComponentInstanceType):
                for inner, one in kind.exports(engine).items():
                    inner_kind: Any = getattr(one, "ty", one)
                    inner_index = component.get_export_index(inner, index)
                    if inner_index is not None and isinstance(inner_kind, FuncType):
                        self._add(name, inner, inner_index, inner_kind)

    def _add(self, interface: str, name: str, index: "ExportIndex", kind: FuncType) -> None:
        try:
            self.functions[interface, name] = Export(index, signature_of(kind))
        except UnsupportedType as error:
            self.unsupported.append((interface, name, str(error)))

    def interfaces(self) -> list[str]:
        """Return the interfaces that have functions, in the component's order."""
        return list(dict.fromkeys(interface for interface, _ in self.functions if interface))

    def enter(
        self, store: "Store", instance: "Instance", handles: "WasiHandles | None" = None
    ) -> "EnteredInstance":
        """Return an instance as a `Guest`; `handles` makes the stream of its client."""
        return EnteredInstance(self, store, instance, handles)


class EnteredInstance:
    """One instance of a component, entered by one call at a time."""

    def __init__(
        self,
        exports: Exports,
        store: "Store",
        instance: "Instance",
        handles: "WasiHandles | None" = None,
    ) -> None:
        self._exports = exports
        self.store = store
        self._instance = instance
        self._handles = handles
        self._stream: Handle | None = None
        self._ready: dict[tuple[str, str], PreparedFunc] = {}

    def call(self, interface: str, function: str, *args: object) -> object:
        """Call an export with the JSON of `wit_values`; raises Mismatch before the guest runs."""
        export = self._exports.functions[interface, function]
        values = export.checked(args)
        ready = self._ready.get((interface, function))
        if ready is None:
            found = self._instance.get_func(self.store, export.index)
            assert found is not None
            ready = self._ready[interface, function] = PreparedFunc.of(found, export.types)
        result: object = ready(self.store, *values)
        return result

    def client_stream(self) -> Handle | None:
        """Return the stream that wasmcp's functions take for the client, if it may use one."""
        if self._stream is None and self._handles is not None:
            self._stream = self._handles.stream(self.store)
        return self._stream
