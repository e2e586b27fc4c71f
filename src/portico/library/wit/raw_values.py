"""Moves checked values to a guest, and a guest's values back, in the memory of wasmtime's C API.

Only this module, `raw_host.py` and `interrupts.py` use private names of wasmtime-py
(`wasmtime._ffi`). Its public
conversion looks up every type in every call, takes a value of `variant { a(u32), b(bool) }`,
or of a variant with an option inside, for the wrong case, and moves bytes one by one. The pinned
version of wasmtime and the round trips of the tests keep this module honest.
"""

import base64
import ctypes
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from wasmtime import _ffi as ffi
from wasmtime.component import Func, FuncType, ResourceAny

from portico.library.wit.wit_types import Shape, WitFunction
from portico.library.wit.wit_values import Handle, is_nullable

Lower = Callable[[Any, int], None]
"""Writes a checked value at an address."""
Lift = Callable[[int], Any]
"""Returns the JSON of the value at an address."""


def _offset(struct: Any, field: str) -> int:
    return int(getattr(struct, field).offset)


_Val = ffi.wasmtime_component_val_t
_Entry = ffi.wasmtime_component_valrecord_entry_t
_SIZE = ctypes.sizeof(_Val)
_OF = _offset(_Val, "of")
_ENTRY_SIZE = ctypes.sizeof(_Entry)
_ENTRY_VAL = _offset(_Entry, "val")
_VARIANT_VAL = _offset(ffi.wasmtime_component_valvariant_t, "val")
_RESULT_VAL = _offset(ffi.wasmtime_component_valresult_t, "val")
_NAME_SIZE = ctypes.sizeof(ffi.wasm_name_t)

_u8, _size = ctypes.c_uint8.from_address, ctypes.c_size_t.from_address
_pointer = ctypes.c_void_p.from_address
_NUMBERS: dict[str, Any] = {
    "bool": ctypes.c_bool,
    "char": ctypes.c_uint32,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
    **{f"u{bits}": getattr(ctypes, f"c_uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"s{bits}": getattr(ctypes, f"c_int{bits}") for bits in (8, 16, 32, 64)},
}
_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}


def _tag(kind: str) -> int:
    return int(getattr(ffi, f"WASMTIME_COMPONENT_{kind.upper()}").value)


def lowering(shape: Shape) -> Lower:
    """Return the function that writes values of a type."""
    if shape.kind in _NUMBERS:
        return _lower_number(shape.kind)
    return _LOWER[shape.kind](shape)


def lifting(shape: Shape) -> Lift:
    """Return the function that reads values of a type."""
    if shape.kind in _NUMBERS:
        return _lift_number(shape.kind)
    return _LIFT[shape.kind](shape)


class PreparedTypes:
    """The types of one function, found once, in the form that wasmtime-py's `Func` reads."""

    def __init__(self, signature: WitFunction) -> None:
        self.params = [(name, _Param(shape)) for name, shape in signature.params]
        self.result = None if signature.result is None else _Result(signature.result)


class PreparedFunc(Func):
    """A function of an instance that knows its types."""

    _types: PreparedTypes

    @classmethod
    def of(cls, function: Func, types: PreparedTypes) -> "PreparedFunc":
        """Return the same function with its types."""
        prepared = cls.__new__(cls)
        vars(prepared).update(vars(function))
        prepared._types = types
        return prepared

    def type(self, store: Any) -> FuncType:
        """Return the types that were found once; `Func` itself would look them up at each call."""
        return cast(FuncType, self._types)


class _Param:
    def __init__(self, shape: Shape) -> None:
        self._lower = lowering(shape)

    def convert_to_c(self, store: Any, value: Any, pointer: Any) -> None:
        self._lower(value, ctypes.addressof(pointer.contents))


class _Result:
    def __init__(self, shape: Shape) -> None:
        self._lift = lifting(shape)

    def convert_from_c(self, value: Any) -> Any:
        try:
            return self._lift(ctypes.addressof(value))
        finally:
            ffi.wasmtime_component_val_delete(ctypes.byref(value))


def _lower_number(kind: str) -> Lower:
    tag, cell = _tag(kind), _NUMBERS[kind].from_address

    def lower(value: Any, address: int) -> None:
        _u8(address).value = tag
        cell(address + _OF).value = value

    return lower


def _lift_number(kind: str) -> Lift:
    cell = _NUMBERS[kind].from_address
    if kind == "char":
        return lambda address: chr(cell(address + _OF).value)
    if kind not in {"f32", "f64"}:
        return lambda address: cell(address + _OF).value

    def lift(address: int) -> float | str:
        value: float = cell(address + _OF).value
        return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")

    return lift


def _write_text(value: bytes, address: int) -> None:
    vec = ffi.wasm_byte_vec_t.from_address(address)
    ffi.wasm_byte_vec_new_uninitialized(ctypes.byref(vec), len(value))
    if value:
        ctypes.memmove(vec.data, value, len(value))


def _read_text(address: int) -> str:
    length = _size(address).value
    return ctypes.string_at(_pointer(address + 8).value or 0, length).decode() if length else ""


def _lower_text(shape: Shape) -> Lower:
    tag = _tag(shape.kind)

    def lower(value: bytes, address: int) -> None:
        _u8(address).value = tag
        _write_text(value, address + _OF)

    return lower


def _lift_text(shape: Shape) -> Lift:
    return lambda address: _read_text(address + _OF)


def _new_list(address: int, length: int) -> int:
    _u8(address).value = _LIST
    vec = ffi.wasmtime_component_vallist_t.from_address(address + _OF)
    ffi.wasmtime_component_vallist_new_uninit(ctypes.byref(vec), length)
    return _pointer(address + _OF + 8).value or 0


_LIST = _tag("list")


def _lower_bytes(shape: Shape) -> Lower:
    tag = bytes([_tag("u8")])

    def lower(value: bytes, address: int) -> None:
        length = len(value)
        data = _new_list(address, length)
        if length:
            cells = bytearray(_SIZE * length)
            cells[0::_SIZE] = tag * length
            cells[_OF::_SIZE] = value
            ctypes.memmove(data, bytes(cells), len(cells))

    return lower


def _lift_bytes(shape: Shape) -> Lift:
    def lift(address: int) -> str:
        length = _size(address + _OF).value
        if not length:
            return ""
        cells = ctypes.string_at(_pointer(address + _OF + 8).value or 0, length * _SIZE)
        return base64.b64encode(cells[_OF::_SIZE]).decode()

    return lift


def _lower_list(shape: Shape) -> Lower:
    element = _lower_part(shape, 0)

    def lower(value: list[Any], address: int) -> None:
        data = _new_list(address, len(value))
        for index, one in enumerate(value):
            element(one, data + index * _SIZE)

    return lower


def _lift_list(shape: Shape) -> Lift:
    element = _lift_part(shape, 0)

    def lift(address: int) -> list[Any]:
        data = _pointer(address + _OF + 8).value or 0
        return [element(data + i * _SIZE) for i in range(_size(address + _OF).value)]

    return lift


def _lower_tuple(shape: Shape) -> Lower:
    elements = [_lower_part(shape, index) for index in range(len(shape.parts))]
    tag = _tag("tuple")

    def lower(value: list[Any], address: int) -> None:
        _u8(address).value = tag
        vec = ffi.wasmtime_component_valtuple_t.from_address(address + _OF)
        ffi.wasmtime_component_valtuple_new_uninit(ctypes.byref(vec), len(elements))
        data = _pointer(address + _OF + 8).value or 0
        for index, element in enumerate(elements):
            element(value[index], data + index * _SIZE)

    return lower


def _lift_tuple(shape: Shape) -> Lift:
    elements = [(index * _SIZE, _lift_part(shape, index)) for index in range(len(shape.parts))]

    def lift(address: int) -> list[Any]:
        data = _pointer(address + _OF + 8).value or 0
        return [element(data + offset) for offset, element in elements]

    return lift


def _lower_record(shape: Shape) -> Lower:
    fields = [(name.encode(), _lower_part(shape, index)) for index, name in enumerate(shape.names)]
    tag = _tag("record")

    def lower(value: list[Any], address: int) -> None:
        _u8(address).value = tag
        vec = ffi.wasmtime_component_valrecord_t.from_address(address + _OF)
        ffi.wasmtime_component_valrecord_new_uninit(ctypes.byref(vec), len(fields))
        entry = _pointer(address + _OF + 8).value or 0
        for index, (name, field) in enumerate(fields):
            _write_text(name, entry)
            field(value[index], entry + _ENTRY_VAL)
            entry += _ENTRY_SIZE

    return lower


def _lift_record(shape: Shape) -> Lift:
    fields = [
        (name, index * _ENTRY_SIZE + _ENTRY_VAL, _lift_part(shape, index))
        for index, name in enumerate(shape.names)
    ]

    def lift(address: int) -> dict[str, Any]:
        data = _pointer(address + _OF + 8).value or 0
        return {name: field(data + offset) for name, offset, field in fields}

    return lift


def _boxed(lower: Lower, value: Any) -> int:
    """Return the address of a value that wasmtime owns."""
    cell = _Val()
    lower(value, ctypes.addressof(cell))
    box = ffi.wasmtime_component_val_new(ctypes.byref(cell))
    return ctypes.cast(box, ctypes.c_void_p).value or 0


def _lower_variant(shape: Shape) -> Lower:
    cases = [
        (name.encode(), None if part is None else lowering(part))
        for name, part in zip(shape.names, shape.parts, strict=True)
    ]
    tag = _tag("variant")

    def lower(value: tuple[int, Any], address: int) -> None:
        name, payload = cases[value[0]]
        box = None if payload is None else _boxed(payload, value[1])
        _u8(address).value = tag
        _write_text(name, address + _OF)
        _pointer(address + _OF + _VARIANT_VAL).value = box

    return lower


def _lift_variant(shape: Shape) -> Lift:
    cases = {
        name: None if part is None else lifting(part)
        for name, part in zip(shape.names, shape.parts, strict=True)
    }

    def lift(address: int) -> dict[str, Any]:
        name = _read_text(address + _OF)
        payload = cases[name]
        if payload is None:
            return {"tag": name}
        box = _pointer(address + _OF + _VARIANT_VAL).value or 0
        return {"tag": name, "value": payload(box)}

    return lift


def _lower_flags(shape: Shape) -> Lower:
    tag = _tag("flags")

    def lower(value: list[bytes], address: int) -> None:
        _u8(address).value = tag
        vec = ffi.wasmtime_component_valflags_t.from_address(address + _OF)
        ffi.wasmtime_component_valflags_new_uninit(ctypes.byref(vec), len(value))
        data = _pointer(address + _OF + 8).value or 0
        for index, name in enumerate(value):
            _write_text(name, data + index * _NAME_SIZE)

    return lower


def _lift_flags(shape: Shape) -> Lift:
    def lift(address: int) -> list[str]:
        data = _pointer(address + _OF + 8).value or 0
        length = _size(address + _OF).value
        present = {_read_text(data + index * _NAME_SIZE) for index in range(length)}
        return [name for name in shape.names if name in present]

    return lift


def _lower_option(shape: Shape) -> Lower:
    payload, tag = _lower_part(shape, 0), _tag("option")

    def lower(value: tuple[Any] | None, address: int) -> None:
        box = None if value is None else _boxed(payload, value[0])
        _u8(address).value = tag
        _pointer(address + _OF).value = box

    return lower


def _lift_option(shape: Shape) -> Lift:
    payload, is_wrapped = _lift_part(shape, 0), is_nullable(shape.parts[0])

    def lift(address: int) -> Any:
        box = _pointer(address + _OF).value
        if box is None:
            return None
        return {"some": payload(box)} if is_wrapped else payload(box)

    return lift


def _lower_result(shape: Shape) -> Lower:
    err, ok = (None if part is None else lowering(part) for part in reversed(shape.parts))
    tag = _tag("result")

    def lower(value: tuple[bool, Any], address: int) -> None:
        payload = ok if value[0] else err
        box = None if payload is None else _boxed(payload, value[1])
        _u8(address).value = tag
        ctypes.c_bool.from_address(address + _OF).value = value[0]
        _pointer(address + _OF + _RESULT_VAL).value = box

    return lower


def _lift_result(shape: Shape) -> Lift:
    ok, err = (None if part is None else lifting(part) for part in shape.parts)

    def lift(address: int) -> dict[str, Any]:
        is_ok = ctypes.c_bool.from_address(address + _OF).value
        payload, name = (ok, "ok") if is_ok else (err, "err")
        box = _pointer(address + _OF + _RESULT_VAL).value or 0
        return {name: None if payload is None else payload(box)}

    return lift


def _lower_resource(shape: Shape) -> Lower:
    tag = _tag("resource")

    def lower(value: Handle, address: int) -> None:
        copy = ffi.wasmtime_component_resource_any_clone(value.any.ptr())
        _u8(address).value = tag
        _pointer(address + _OF).value = ctypes.cast(copy, ctypes.c_void_p).value

    return lower


_lent = threading.local()


@contextmanager
def lent_handles() -> Iterator[list[Handle]]:
    """Collect the handles of the values that this thread reads; the caller must drop them."""
    _lent.handles = handles = list[Handle]()
    try:
        yield handles
    finally:
        _lent.handles = None


def _lift_resource(shape: Shape) -> Lift:
    kind = ctypes.POINTER(ffi.wasmtime_component_resource_any_t)

    def lift(address: int) -> Handle | None:
        handles: list[Handle] | None = getattr(_lent, "handles", None)
        if handles is None:
            return None  # of a result, where handles are not used
        pointer = ctypes.cast(_pointer(address + _OF).value or 0, kind)
        handle = Handle(ResourceAny._from_ptr(ffi.wasmtime_component_resource_any_clone(pointer)))
        handles.append(handle)
        return handle

    return lift


def _lower_part(shape: Shape, index: int) -> Lower:
    part = shape.parts[index]
    assert part is not None
    return lowering(part)


def _lift_part(shape: Shape, index: int) -> Lift:
    part = shape.parts[index]
    assert part is not None
    return lifting(part)


_LOWER: dict[str, Callable[[Shape], Lower]] = {
    "string": _lower_text,
    "enum": _lower_text,
    "bytes": _lower_bytes,
    "list": _lower_list,
    "tuple": _lower_tuple,
    "record": _lower_record,
    "variant": _lower_variant,
    "flags": _lower_flags,
    "option": _lower_option,
    "result": _lower_result,
    "resource": _lower_resource,
}
_LIFT: dict[str, Callable[[Shape], Lift]] = {
    "string": _lift_text,
    "enum": _lift_text,
    "bytes": _lift_bytes,
    "list": _lift_list,
    "tuple": _lift_tuple,
    "record": _lift_record,
    "variant": _lift_variant,
    "flags": _lift_flags,
    "option": _lift_option,
    "result": _lift_result,
    "resource": _lift_resource,
}
