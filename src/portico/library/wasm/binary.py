"""Reads the imports and exports of a component from its bytes, without compiling it.

This needs no wasmtime: a file is recognised, and refused with the reason, before anything runs it.
Names in a form that is newer than this reader are left out; wasmtime judges the rest.
"""

from collections.abc import Iterator

from msgspec import Struct

from portico.core.model.errors import PorticoError

MAGIC = b"\0asm"
_CORE, _COMPONENT = b"\x01\0\0\0", b"\x0d\0\x01\0"
_IMPORTS, _EXPORTS = 10, 11
_PLAIN_NAMES = (0, 1)
MAX_SIZE = 100 * 1024 * 1024
"""The largest file that is read."""
_MAX_SECTIONS, _MAX_NAMES = 50_000, 10_000
"""A file may be read by the gateway itself, which must not be kept busy by a hostile one."""


class NotAComponent(PorticoError):
    """A file is not a WebAssembly component, but the kind of file in the message."""


class Outline(Struct, frozen=True):
    """The names that a component imports and exports, in its order."""

    imports: tuple[str, ...]
    exports: tuple[str, ...]


class _Unknown(Exception):
    """A form that is newer than this reader."""


def outline(data: bytes) -> Outline:
    """Return the imports and exports of a component; raises NotAComponent."""
    check_head(data)
    names: dict[int, list[str]] = {_IMPORTS: [], _EXPORTS: []}
    for kind, body in _sections(data):
        if kind in names:
            names[kind] += _names(body, kind)
            if len(names[kind]) > _MAX_NAMES:
                raise NotAComponent(f"the file has more than {_MAX_NAMES:,} imports or exports")
    return Outline(tuple(names[_IMPORTS]), tuple(names[_EXPORTS]))


def read_component(path: str) -> bytes:
    """Return the bytes of a component's file; raises NotAComponent."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_SIZE + 1)
    except OSError as error:
        raise NotAComponent(f"cannot be read: {error.strerror}; check the file {path}") from None
    if len(data) > MAX_SIZE:
        raise NotAComponent(f"the file is larger than {MAX_SIZE // 2**20} MB; make it smaller")
    return data


def check_head(data: bytes) -> None:
    """Raise NotAComponent unless the first bytes are those of a component."""
    if not data:
        raise NotAComponent("the file is empty; build the component again")
    if data[:4] != MAGIC:
        if MAGIC.startswith(data[:4]):
            raise NotAComponent("the file is truncated; copy or build it again")
        raise NotAComponent("the file is not WebAssembly; give a component that was compiled")
    if data[4:8] == _CORE:
        what = "a core module, not a component"
        raise NotAComponent(f"{what}; build it for wasm32-wasip2, or with a component compiler")
    if len(data) < 8:
        raise NotAComponent("the file is truncated; copy or build it again")
    if data[4:8] != _COMPONENT:
        version = data[4:8].hex(" ")
        raise NotAComponent(f"WebAssembly of an unknown version ({version}); update Portico")


def _sections(data: bytes) -> Iterator[tuple[int, "_Bytes"]]:
    rest = _Bytes(data, 8)
    for _ in range(_MAX_SECTIONS):
        if not rest.left:
            return
        kind = rest.byte()
        yield kind, rest.part(rest.number())
    raise NotAComponent(f"the file has more than {_MAX_SECTIONS:,} sections")


def _names(body: "_Bytes", kind: int) -> list[str]:
    found: list[str] = []
    try:
        for _ in range(min(body.number(), _MAX_NAMES + 1)):
            name = body.name()
            if kind == _EXPORTS:
                body.skip_sort()
                if body.byte():
                    body.skip_type()
            else:
                body.skip_type()
            found.append(name)
    except (_Unknown, NotAComponent, UnicodeDecodeError):
        pass
    return found


class _Bytes:
    def __init__(self, data: bytes, start: int, end: int | None = None) -> None:
        self._data = data
        self._at = start
        self._end = len(data) if end is None else end

    @property
    def left(self) -> int:
        return self._end - self._at

    def part(self, size: int) -> "_Bytes":
        if size > self.left:
            raise NotAComponent("the file is truncated; copy or build it again")
        self._at += size
        return _Bytes(self._data, self._at - size, self._at)

    def byte(self) -> int:
        self.part(1)
        return self._data[self._at - 1]

    def number(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise NotAComponent("the file is damaged; copy or build it again")

    def name(self) -> str:
        if self.byte() not in _PLAIN_NAMES:
            raise _Unknown
        part = self.part(self.number())
        return self._data[part._at : part._end].decode()

    def skip_sort(self) -> None:
        if self.byte() == 0:
            self.byte()
        self.number()

    def skip_type(self) -> None:
        kind = self.byte()
        if kind == 0:
            self.byte()
        elif kind == 3 and self.byte() == 1:
            return
        elif kind == 2 or kind > 5:
            raise _Unknown
        self.number()
