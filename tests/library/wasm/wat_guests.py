"""Components written by hand, as text: they need no compiler but wasmtime."""

from pathlib import Path

from tests.library.wasm.building import wat

SLEEPER = """
(component
  (import "wasi:io/poll@0.2.0" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
    (alias outer 1 $pollable (type $outer))
    (export "pollable" (type $pollable (eq $outer)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $pollable))))))
  (core func $subscribe (canon lower (func $clock "subscribe-duration")))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core module $main
    (import "wasi" "subscribe" (func $subscribe (param i64) (result i32)))
    (import "wasi" "block" (func $block (param i32)))
    (func (export "sleep") (param $ms i32) (result i32)
      (call $block (call $subscribe
        (i64.mul (i64.extend_i32_u (local.get $ms)) (i64.const 1000000))))
      (local.get $ms))
    (func (export "add") (param i32 i32) (result i32) (i32.add (local.get 0) (local.get 1)))
    (func (export "trap") (result i32) unreachable)
    (func $deeper (param i32) (result i32)
      (i32.add (i32.const 1) (call $deeper (i32.add (local.get 0) (i32.const 1)))))
    (func (export "recurse") (result i32) (call $deeper (i32.const 0)))
    (func (export "divide") (param i32 i32) (result i32)
      (i32.div_u (local.get 0) (local.get 1))))
  (core instance $i (instantiate $main (with "wasi" (instance
    (export "subscribe" (func $subscribe)) (export "block" (func $block))))))
  (func (export "sleep") (param "ms" u32) (result u32) (canon lift (core func $i "sleep")))
  (func (export "add") (param "a" u32) (param "b" u32) (result u32)
    (canon lift (core func $i "add")))
  (func (export "trap") (result u32) (canon lift (core func $i "trap")))
  (func (export "recurse") (result u32) (canon lift (core func $i "recurse")))
  (func (export "divide") (param "a" u32) (param "b" u32) (result u32)
    (canon lift (core func $i "divide"))))
"""
"""Sleeps in a function of WASI, traps, and adds."""

IMPORTING = """
(component
  (import "acme:db/store@1.0.0" (instance (export "get" (func (result u32)))))
  (core module $m (func (export "f") (result i32) (i32.const 1)))
  (core instance $i (instantiate $m))
  (func (export "one") (result u32) (canon lift (core func $i "f"))))
"""
"""Imports what nobody has."""

EXPORTING = """
(component
  (core module $m (func (export "f") (result i32) (i32.const 1)))
  (core instance $i (instantiate $m))
  (func $f (result u32) (canon lift (core func $i "f")))
  (instance $one FUNCTIONS)
  (export "INTERFACE" (instance $one)))
"""

CLASHING = """
(component
  (core module $m (func (export "f") (result i32) (i32.const 1)))
  (core instance $i (instantiate $m))
  (func $f (result u32) (canon lift (core func $i "f")))
  (instance $one (export "get" (func $f)))
  (instance $two (export "get" (func $f)))
  (export "acme:one/api@1.0.0" (instance $one))
  (export "acme:two/api@1.0.0" (instance $two)))
"""
"""Two functions whose tools would have one name."""


def importing(interface: str) -> str:
    """Return a component that imports a function of an interface."""
    return IMPORTING.replace("acme:db/store@1.0.0", interface)


def exporting(interface: str, *functions: str) -> str:
    """Return a component whose functions of an interface all return a number."""
    exports = " ".join(f'(export "{name}" (func $f))' for name in functions)
    return EXPORTING.replace("INTERFACE", interface).replace("FUNCTIONS", exports)


def written(text: str, folder: Path, name: str = "guest") -> Path:
    """Return the file of a component that is written as text."""
    path = folder / f"{name}.wasm"
    path.write_bytes(wat(text))
    return path


def saying(lists: bytes, called: bytes, *, fails: bool = False) -> str:
    """Return a component of our WIT that answers with these bytes, whatever it is asked."""
    size = len(lists) + len(called) + 4096
    return f"""
(component
  (core module $m
    (memory (export "memory") {size // 65536 + 1})
    (data (i32.const 16) "\\00\\00\\00\\00{_word(64)}{_word(len(lists))}")
    (data (i32.const 32) "{_word(int(fails))}{_word(64 + len(lists))}{_word(len(called))}")
    (data (i32.const 64) "{_escaped(lists + called)}")
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (i32.const {size - 4000}))
    (func (export "list") (result i32) (i32.const 16))
    (func (export "call") (param i32 i32 i32 i32) (result i32) (i32.const 32)))
  (core instance $i (instantiate $m))
  (func $list (result (result string (error string)))
    (canon lift (core func $i "list") (memory (core memory $i "memory"))))
  (func $call (param "name" string) (param "arguments" string)
    (result (result string (error string)))
    (canon lift (core func $i "call") (memory (core memory $i "memory"))
      (realloc (core func $i "realloc"))))
  (instance $tools (export "list-tools" (func $list)) (export "call-tool" (func $call)))
  (export "portico:mcp/tools-capability@0.1.0" (instance $tools)))
"""


def _word(value: int) -> str:
    return _escaped(value.to_bytes(4, "little"))


def _escaped(data: bytes) -> str:
    return "".join(f"\\{byte:02x}" for byte in data)
