"""The handles of WASI that wasmcp's interfaces take for a client: made inside the guest's store."""

from typing import Any

from wasmtime import Engine, Store
from wasmtime.component import Component, Linker

from portico.library.wit.wit_values import Handle

# A stream or a pollable cannot be made from outside, so a component of our own returns one.
_MAKER = """
(component
  (import "wasi:io/poll@0.2.3" (instance $poll (export "pollable" (type (sub resource)))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:io/streams@0.2.3" (instance $io (export "output-stream" (type (sub resource)))))
  (alias export $io "output-stream" (type $stream))
  (import "wasi:clocks/monotonic-clock@0.2.3" (instance $clock
    (alias outer 1 $pollable (type $outer))
    (export "pollable" (type $one (eq $outer)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $one))))))
  (import "wasi:cli/stdout@0.2.3" (instance $stdout
    (alias outer 1 $stream (type $outer))
    (export "output-stream" (type $one (eq $outer)))
    (export "get-stdout" (func (result (own $one))))))
  (core func $subscribe (canon lower (func $clock "subscribe-duration")))
  (core func $get (canon lower (func $stdout "get-stdout")))
  (core module $main
    (import "wasi" "subscribe" (func $subscribe (param i64) (result i32)))
    (import "wasi" "get" (func $get (result i32)))
    (func (export "pollable") (result i32) (call $subscribe (i64.const 0)))
    (func (export "stream") (result i32) (call $get)))
  (core instance $i (instantiate $main (with "wasi" (instance
    (export "subscribe" (func $subscribe)) (export "get" (func $get))))))
  (func (export "pollable") (result (own $pollable)) (canon lift (core func $i "pollable")))
  (func (export "stream") (result (own $stream)) (canon lift (core func $i "stream"))))
"""


class WasiHandles:
    """Makes handles in the stores of one component."""

    def __init__(self, engine: Engine, linker: Linker) -> None:
        """`linker` has WASI."""
        self._linker = linker
        self._component = Component(engine, _MAKER)

    def stream(self, store: Store) -> Handle:
        """Return a stream in place of the client; all bytes written to it are lost."""
        return self._made(store, "stream")

    def pollable(self, store: Any) -> Handle:
        """Return a pollable that is ready."""
        return self._made(store, "pollable")

    def _made(self, store: Any, name: str) -> Handle:
        instance = self._linker.instantiate(store, self._component)
        function = instance.get_func(store, name)
        assert function is not None
        return Handle(function(store))
