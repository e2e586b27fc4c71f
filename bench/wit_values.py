"""`python -m bench.wit_values`: a guest's calls beside wasmtime-py's own conversion of values."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from wasmtime import Engine, Store, WasiConfig
from wasmtime.component import Component, Func, Linker, Record

from portico.library.wasm.exports import Exports
from portico.library.wasm.host_interfaces import define_wasmcp_imports
from tests.library.wasm import building

KITCHEN = "portico-tests:kitchen/echo@0.1.0"
WORK = "portico-tests:kitchen/work@0.1.0"
TOOLS = "wasmcp:mcp-v20251125/tools@0.1.1"
_CONTEXT = {"protocol-version": "2025-11-25", "frame": {"prefix": "", "suffix": ""}}
ADD = """(component
  (core module $m (func (export "add") (param i32 i32) (result i32)
    local.get 0 local.get 1 i32.add))
  (core instance $i (instantiate $m))
  (func (export "add") (param "a" s32) (param "b" s32) (result s32)
    (canon lift (core func $i "add"))))"""


class _Both:
    """One instance, called in both ways."""

    def __init__(self, source: bytes | str) -> None:
        engine = Engine()
        component = Component(engine, source)
        self.store, linker = Store(engine), Linker(engine)
        self.store.set_wasi(WasiConfig())
        linker.add_wasip2()
        define_wasmcp_imports(linker, component, engine)
        self._instance = linker.instantiate(self.store, component)
        self._exports = Exports(component, engine)
        self.guest = self._exports.enter(self.store, self._instance)

    def stock(self, interface: str, function: str) -> Func:
        """Return the function as wasmtime-py has it."""
        export = self._exports.functions[interface, function]
        found = self._instance.get_func(self.store, export.index)
        assert found is not None
        return found


def _record(**fields: Any) -> Record:
    record = Record()
    vars(record).update({name.replace("_", "-"): value for name, value in fields.items()})
    return record


def _per_call_us(call: Callable[[], object], seconds: float = 1.0) -> float:
    call()
    calls, best = 0, float("inf")
    end = time.perf_counter() + seconds
    while (started := time.perf_counter()) < end or calls < 5:
        call()
        best = min(best, time.perf_counter() - started)
        calls += 1
    return best * 1e6


def main() -> None:
    """Print the fastest call of each kind in both ways."""
    add = _Both(ADD)
    kitchen = _Both(_built("kitchen.js", "kitchen", "kitchen"))
    tools = _Both(_built("wasmcp.js", "v20251125", "everything"))
    frame = _record(prefix=b"", suffix=b"")
    fields = {"client_stream": None, "session": None, "identity": None, "http_context": None}
    context = _record(protocol_version="2025-11-25", frame=frame, **fields)
    request = _record(name="add", arguments='{"a":1,"b":2}')
    plain = {"name": "add", "arguments": '{"a":1,"b":2}'}
    blob, text = b"x" * 100_000, "eHh4" * 33_333 + "eA=="
    rows: list[tuple[str, _Both, str, str, tuple[Any, ...], tuple[Any, ...]]] = [
        ("add of two integers, WAT", add, "", "add", (1, 2), (1, 2)),
        ("add of two integers, QuickJS", kitchen, WORK, "add", (1, 2), (1, 2)),
        (
            "string of 100 KB, QuickJS",
            kitchen,
            KITCHEN,
            "of-string",
            ("x" * 10**5,),
            ("x" * 10**5,),
        ),
        ("list<u8> of 100 KB, QuickJS", kitchen, KITCHEN, "of-bytes", (blob,), (text,)),
        (
            "wasmcp call-tool, QuickJS",
            tools,
            TOOLS,
            "call-tool",
            (context, request),
            (_CONTEXT, plain),
        ),
    ]
    print(f"{'call':34}{'wasmtime-py':>14}{'Portico':>14}{'ratio':>8}")
    for name, both, interface, function, theirs, ours in rows:
        slow = _per_call_us(partial(both.stock(interface, function), both.store, *theirs))
        fast = _per_call_us(partial(both.guest.call, interface, function, *ours))
        print(f"{name:34}{slow:11.1f} us{fast:11.1f} us{slow / fast:8.1f}")


def _built(source: str, folder: str, world: str) -> bytes:
    return building.javascript(source, building.WIT / folder, world).read_bytes()


if __name__ == "__main__":
    main()
