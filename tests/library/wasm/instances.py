"""Instances of the tests' components, as the adapters see them."""

import hashlib
import os
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

from wasmtime import Engine, Store
from wasmtime.component import Component, Linker

from portico.library.wasm.exports import EnteredInstance, Exports
from portico.library.wasm.host_interfaces import define_wasmcp_imports
from tests.library.wasm import building


@cache
def engine() -> Engine:
    """Return the engine of all tests."""
    return Engine()


@cache
def component(source: Path | str) -> Component:
    """Return a component from a file, whose compiled code is kept, or from text."""
    if isinstance(source, str):
        return Component(engine(), source)
    data = source.read_bytes()
    name = f"{hashlib.sha256(data).hexdigest()[:24]}-{version('wasmtime')}.cwasm"
    kept = building.CACHE / "instances" / name
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as file:
            file.write(Component(engine(), data).serialize())
        os.replace(file.name, kept)
    return Component.deserialize_file(engine(), str(kept))


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
