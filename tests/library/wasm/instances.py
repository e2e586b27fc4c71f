"""Instances of the tests' components, as the adapters see them."""

from functools import cache
from pathlib import Path

from wasmtime import Engine, Store
from wasmtime.component import Component, Linker

from portico.library.wasm.exports import EnteredInstance, Exports
from portico.library.wasm.host_interfaces import define_wasmcp_imports


@cache
def engine() -> Engine:
    """Return the engine of all tests."""
    return Engine()


@cache
def component(source: Path | str) -> Component:
    """Return a component from a file or from text."""
    return Component(engine(), source.read_bytes() if isinstance(source, Path) else source)


def exports(source: Path | str) -> Exports:
    """Return the exports of a component."""
    return Exports(component(source), engine())


def entered(source: Path | str) -> EnteredInstance:
    """Return a fresh instance, with WASI that grants nothing."""
    from wasmtime import WasiConfig

    store, linker = Store(engine()), Linker(engine())
    store.set_wasi(WasiConfig())
    linker.add_wasip2()
    define_wasmcp_imports(linker, component(source), engine())
    return exports(source).enter(store, linker.instantiate(store, component(source)))
