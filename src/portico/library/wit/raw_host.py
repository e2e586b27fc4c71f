"""Functions of the host that take and return the JSON of `wit_values`, with prepared types.

Like `raw_values.py`, it uses private names of wasmtime-py, whose own conversion takes some variants
for the wrong case.
"""

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

from wasmtime import WasmtimeError
from wasmtime import _ffi as ffi
from wasmtime.component._enter import catch_exceptions

from portico.library.wit.raw_values import Lift, Lower, lent_handles, lifting, lowering
from portico.library.wit.wit_types import WitFunction
from portico.library.wit.wit_values import Check, Mismatch, checker

TypedHostFunction = Callable[..., Any]
"""Takes the store's context and JSON, and returns JSON."""

_SIZE = ctypes.sizeof(ffi.wasmtime_component_val_t)
_numbers = itertools.count(1)
_defined: dict[int, "_Defined"] = {}


class Typed:
    """A function of the host that takes JSON, made for the types that a component imports it
    with."""

    def __init__(self, make: Callable[[WitFunction], TypedHostFunction]) -> None:
        self.make = make


class _Defined:
    def __init__(self, function: TypedHostFunction, signature: WitFunction) -> None:
        self._function = function
        self._lifts: list[Lift] = [lifting(shape) for _, shape in signature.params]
        self._check: Check | None = None
        self._lower: Lower | None = None
        if signature.result is not None:
            self._check, self._lower = checker(signature.result), lowering(signature.result)

    def call(self, store: Any, args: int, result: int) -> None:
        with lent_handles() as handles:
            values = [lift(args + index * _SIZE) for index, lift in enumerate(self._lifts)]
        try:
            returned = self._function(store, *values)
        except WasmtimeError:
            raise
        except Exception as error:  # noqa: BLE001
            # wasmtime-py keeps any other exception in a place that all threads share.
            raise WasmtimeError(f"the host failed: {type(error).__name__}") from None
        finally:
            for handle in handles:
                handle.drop(store)
        if self._check is not None and self._lower is not None:
            try:
                self._lower(self._check(returned), result)
            except Mismatch as mismatch:
                raise WasmtimeError(f"the host failed: {mismatch}") from None


def add_typed_function(
    instance: Any, name: str, signature: WitFunction, function: TypedHostFunction
) -> None:
    """Define a function in an instance of a linker."""
    number = next(_numbers)
    _defined[number] = _Defined(function, signature)
    text = name.encode()
    error = ffi.wasmtime_component_linker_instance_add_func(
        instance.ptr(), ctypes.create_string_buffer(text), len(text), _called, number, _finalized
    )
    if error:  # type: ignore[truthy-bool]
        raise WasmtimeError._from_ptr(error)


def _address(pointer: Any) -> int:
    return ctypes.cast(pointer, ctypes.c_void_p).value or 0


@ffi.wasmtime_component_func_callback_t  # type: ignore[untyped-decorator]
def _called(
    number: int, context: Any, kind: Any, args: Any, count: int, results: Any, many: int
) -> Any:
    defined = _defined[number]
    return catch_exceptions(
        context, lambda store: defined.call(store, _address(args), _address(results))
    )


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # type: ignore[untyped-decorator]
def _finalized(number: int) -> None:
    _defined.pop(number, None)
