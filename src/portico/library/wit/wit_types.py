"""The types of WIT as plain data, read once from wasmtime's types of a component."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from portico.core.model.errors import PorticoError

if TYPE_CHECKING:
    from wasmtime.component import FuncType, ValType

INTEGERS = {
    **{f"u{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    **{f"s{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
}
"""The integer types, each with its least and greatest value."""

MAX_PARTS = 5_000
"""The most types in the parameters and the result of one function."""


class UnsupportedType(PorticoError):
    """A type whose values wasmtime cannot pass to Python, such as a stream or a future."""


class Shape(Struct, frozen=True):
    """One type of WIT."""

    kind: str
    """Its keyword in WIT; `bytes` for `list<u8>`, `resource` for any handle."""
    names: tuple[str, ...] = ()
    """Of fields, cases or flags, in the declared order."""
    parts: tuple["Shape | None", ...] = ()
    """The types of fields, cases or elements; None for a case without a payload."""

    def has(self, kind: str) -> bool:
        """True if it or a type inside it is of this kind."""
        return self.kind == kind or any(part is not None and part.has(kind) for part in self.parts)


class WitFunction(Struct, frozen=True):
    """The parameters and the result of one function."""

    params: tuple[tuple[str, Shape], ...]
    result: Shape | None

    def has(self, kind: str) -> bool:
        """True if a parameter or the result contains this kind of type."""
        shapes = [shape for _, shape in self.params]
        return any(one.has(kind) for one in [*shapes, *([self.result] if self.result else [])])


def signature_of(function: "FuncType") -> WitFunction:
    """Return the types of a function; raises UnsupportedType."""
    parts = iter(range(MAX_PARTS))
    params = tuple((name, shape_of(kind, parts)) for name, kind in function.params)
    return WitFunction(params, _maybe(function.result, parts))


def shape_of(kind: "ValType", parts: Iterator[int]) -> Shape:
    """Return a type of wasmtime's as plain data; `parts` are left. Raises UnsupportedType."""
    from wasmtime import component as wt

    if next(parts, None) is None:
        # A type that occurs twice has its parts twice, so few bytes can mean millions of parts.
        raise UnsupportedType(f"has types of more than {MAX_PARTS:,} parts")
    if isinstance(kind, wt.ListType):
        element = shape_of(kind.element, parts)
        return Shape("bytes") if element.kind == "u8" else Shape("list", (), (element,))
    if isinstance(kind, wt.RecordType):
        fields = kind.fields
        return Shape("record", _names(fields), tuple(shape_of(part, parts) for _, part in fields))
    if isinstance(kind, wt.TupleType):
        return Shape("tuple", (), tuple(shape_of(part, parts) for part in kind.elements))
    if isinstance(kind, wt.VariantType):
        cases = kind.cases
        return Shape("variant", _names(cases), tuple(_maybe(part, parts) for _, part in cases))
    if isinstance(kind, wt.OptionType):
        return Shape("option", (), (shape_of(kind.payload, parts),))
    if isinstance(kind, wt.ResultType):
        return Shape("result", ("ok", "err"), (_maybe(kind.ok, parts), _maybe(kind.err, parts)))
    if isinstance(kind, wt.EnumType):
        return Shape("enum", tuple(kind.names))
    if isinstance(kind, wt.FlagsType):
        return Shape("flags", tuple(kind.names))
    if isinstance(kind, wt.OwnType | wt.BorrowType):
        return Shape("resource")
    return _simple(kind)


_SIMPLE = frozenset({*INTEGERS, "bool", "f32", "f64", "char", "string"})


def _simple(kind: "ValType") -> Shape:
    name = type(kind).__name__.lower()
    if name not in _SIMPLE:
        raise UnsupportedType(f"needs {name.removesuffix('type')} values, which cannot be passed")
    return Shape(name)


def _maybe(kind: "ValType | None", parts: Iterator[int]) -> Shape | None:
    return None if kind is None else shape_of(kind, parts)


def _names(
    pairs: "list[tuple[str, ValType]] | list[tuple[str, ValType | None]]",
) -> tuple[str, ...]:
    return tuple(name for name, _ in pairs)
