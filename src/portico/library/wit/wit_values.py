"""Checks JSON against the types of WIT, before a guest sees any of it.

The JSON of each type, which is also what a guest's values become:

| WIT | JSON |
|---|---|
| `bool`, integers, `string`, `char` | boolean, integer, string, string of one character |
| `f32`, `f64` | number; `"NaN"`, `"Infinity"` and `"-Infinity"`, which JSON lacks |
| `list<u8>` | a string of base64 |
| `list<T>`, `tuple<...>` | array |
| `record` | object; a field that is an option may be left out |
| `variant` | `{"tag": CASE, "value": ...}`, without a value where the case has none |
| `enum`, `flags` | string, array of distinct strings |
| `option<T>` | T or null; `{"some": T}` or null where T may be null itself |
| `result<T, E>` | `{"ok": T}` or `{"err": E}` |
"""

import base64
import binascii
from collections.abc import Callable
from typing import Any

from portico.core.model.errors import PorticoError
from portico.library.wit.wit_types import INTEGERS, Shape

Check = Callable[[Any], Any]
"""Returns a value as `lowering` takes it; raises Mismatch."""

NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_MAX_F32 = 3.4028234663852886e38
_EXACT = 2**53


class Mismatch(PorticoError):
    """A value does not have the type that a function takes."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.path: list[str] = []

    def __str__(self) -> str:
        return f"{'.'.join(reversed(self.path))}: {self.why}" if self.path else self.why


class Handle:
    """A resource, as the host passes it to a guest; it has no JSON."""

    def __init__(self, any: Any) -> None:
        """`any` is wasmtime's handle of it."""
        self.any = any
        self._is_read = False

    def number(self, store: Any) -> int:
        """Return the number of a resource of the host; it needs no `drop` then."""
        self._is_read = True
        return int(self.any.to_host(store).rep)

    def drop(self, store: Any) -> None:
        """Return what a guest has lent."""
        if not self._is_read:
            self.any.drop(store)


def checker(shape: Shape) -> Check:
    """Return the function that checks JSON of a type, with all lookups done."""
    if shape.kind in INTEGERS:
        return _integer(shape.kind)
    return _CHECKERS[shape.kind](shape)


def _integer(kind: str) -> Check:
    least, greatest = INTEGERS[kind]

    def check(value: Any) -> int:
        # JSON Schema counts 5.0 as an integer. Beyond 2**53 a float may not be the number meant.
        if type(value) is float and value.is_integer() and abs(value) <= _EXACT:
            value = int(value)
        if type(value) is not int:
            raise Mismatch(f"must be an integer, not {_said(value)}")
        if not least <= value <= greatest:
            raise Mismatch(f"{value} is out of range; a {kind} is {least} to {greatest}")
        return value

    return check


def _boolean(shape: Shape) -> Check:
    def check(value: Any) -> bool:
        if type(value) is not bool:
            raise Mismatch(f"must be true or false, not {_said(value)}")
        return value

    return check


def _float(shape: Shape) -> Check:
    greatest = _MAX_F32 if shape.kind == "f32" else float("inf")

    def check(value: Any) -> float:
        if type(value) is str and value in NOT_FINITE:
            return NOT_FINITE[value]
        if type(value) not in (int, float):
            raise Mismatch(f"must be a number, not {_said(value)}")
        try:
            number = float(value)
        except OverflowError:
            number = float("inf")
        if number in (float("inf"), float("-inf")) or abs(number) > greatest:
            raise Mismatch(f"{str(value)[:40]} is out of range; it must fit an {shape.kind}")
        return number

    return check


def _string(shape: Shape) -> Check:
    def check(value: Any) -> bytes:
        if type(value) is not str:
            raise Mismatch(f"must be a string, not {_said(value)}")
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise Mismatch("has half a surrogate pair, which is not a character") from None

    return check


def _char(shape: Shape) -> Check:
    def check(value: Any) -> int:
        if type(value) is not str or len(value) != 1:
            raise Mismatch(f"must be a string of one character, not {_said(value)}")
        if 0xD800 <= ord(value) <= 0xDFFF:
            raise Mismatch("has half a surrogate pair, which is not a character")
        return ord(value)

    return check


def _bytes(shape: Shape) -> Check:
    def check(value: Any) -> bytes:
        if type(value) is not str:
            raise Mismatch(f"must be a string of base64, not {_said(value)}")
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise Mismatch(f"is not base64: {error}") from None

    return check


def _list(shape: Shape) -> Check:
    element = _part(shape, 0)

    def check(value: Any) -> list[Any]:
        if type(value) is not list:
            raise Mismatch(f"must be an array, not {_said(value)}")
        return [_at(element, one, index) for index, one in enumerate(value)]

    return check


def _tuple(shape: Shape) -> Check:
    elements = [_part(shape, index) for index in range(len(shape.parts))]

    def check(value: Any) -> list[Any]:
        if type(value) not in (list, tuple):
            raise Mismatch(f"must be an array, not {_said(value)}")
        if len(value) != len(elements):
            raise Mismatch(f"must have {len(elements)} elements, not {len(value)}")
        pairs = zip(elements, value, strict=True)
        return [_at(element, one, index) for index, (element, one) in enumerate(pairs)]

    return check


def _record(shape: Shape) -> Check:
    checks = [(name, _part(shape, index)) for index, name in enumerate(shape.names)]
    optional = {
        name
        for name, part in zip(shape.names, shape.parts, strict=True)
        if part is not None and part.kind == "option"
    }
    known = frozenset(shape.names)

    def check(value: Any) -> list[Any]:
        if type(value) is not dict:
            raise Mismatch(f"must be an object, not {_said(value)}")
        checked = []
        for name, field in checks:
            if name in value:
                checked.append(_at(field, value[name], name))
            elif name in optional:
                checked.append(None)
            else:
                raise Mismatch(f"lacks {name!r}")
        if not value.keys() <= known:
            raise Mismatch(f"has no field {str(next(iter(value.keys() - known)))[:80]!r}")
        return checked

    return check


def _variant(shape: Shape) -> Check:
    cases = {
        name: (index, None if part is None else checker(part))
        for index, (name, part) in enumerate(zip(shape.names, shape.parts, strict=True))
    }

    def check(value: Any) -> tuple[int, Any]:
        if type(value) is not dict or not {"tag"} <= value.keys() <= {"tag", "value"}:
            raise Mismatch(f'must be an object {{"tag", "value"}}, not {_said(value)}')
        index, payload = cases.get(_known(value["tag"], cases), (0, None))
        if payload is None:
            if value.get("value") is not None:
                raise Mismatch(f"the case {value['tag']!r} has no value")
            return index, None
        if "value" not in value:
            raise Mismatch(f"the case {value['tag']!r} needs a value")
        return index, _at(payload, value["value"], "value")

    return check


def _enum(shape: Shape) -> Check:
    encoded = {name: name.encode() for name in shape.names}

    def check(value: Any) -> bytes:
        return encoded[_known(value, encoded)]

    return check


def _flags(shape: Shape) -> Check:
    encoded = {name: name.encode() for name in shape.names}

    def check(value: Any) -> list[bytes]:
        if type(value) is not list:
            raise Mismatch(f"must be an array of names, not {_said(value)}")
        checked = [
            _at(lambda one: encoded[_known(one, encoded)], one, i) for i, one in enumerate(value)
        ]
        if len(set(checked)) != len(checked):
            raise Mismatch("names a flag twice")
        return checked

    return check


def _option(shape: Shape) -> Check:
    payload, is_wrapped = _part(shape, 0), is_nullable(shape.parts[0])

    def check(value: Any) -> tuple[Any] | None:
        if value is None:
            return None
        if not is_wrapped:
            return (payload(value),)
        if type(value) is not dict or value.keys() != {"some"}:
            raise Mismatch(f'must be null or an object {{"some"}}, not {_said(value)}')
        return (_at(payload, value["some"], "some"),)

    return check


def _result(shape: Shape) -> Check:
    cases = dict(zip(shape.names, shape.parts, strict=True))
    checks = {name: None if part is None else checker(part) for name, part in cases.items()}

    def check(value: Any) -> tuple[bool, Any]:
        if type(value) is not dict or len(value) != 1 or not value.keys() <= checks.keys():
            raise Mismatch(f'must be an object {{"ok"}} or {{"err"}}, not {_said(value)}')
        ((name, content),) = value.items()
        payload = checks[name]
        if payload is None and content is not None:
            raise Mismatch(f"{name!r} has no value here, so it must be null")
        return name == "ok", None if payload is None else _at(payload, content, name)

    return check


def _resource(shape: Shape) -> Check:
    def check(value: Any) -> Handle:
        if type(value) is Handle:
            return value
        raise Mismatch("cannot be given from outside: it is a handle of the component's")

    return check


_CHECKERS: dict[str, Callable[[Shape], Check]] = {
    "bool": _boolean,
    "f32": _float,
    "f64": _float,
    "string": _string,
    "char": _char,
    "bytes": _bytes,
    "list": _list,
    "tuple": _tuple,
    "record": _record,
    "variant": _variant,
    "enum": _enum,
    "flags": _flags,
    "option": _option,
    "result": _result,
    "resource": _resource,
}


def is_nullable(shape: Shape | None) -> bool:
    """True if null is a value of a type, so that an option of it needs another form."""
    return shape is not None and shape.kind == "option"


def _part(shape: Shape, index: int) -> Check:
    part = shape.parts[index]
    assert part is not None
    return checker(part)


def _at(check: Check, value: Any, place: object) -> Any:
    try:
        return check(value)
    except Mismatch as mismatch:
        mismatch.path.append(str(place))
        raise


def _known(value: Any, names: Any) -> str:
    if type(value) is str and value in names:
        return value
    listed = ", ".join(list(names)[:20])
    raise Mismatch(f"must be one of {listed}, not {_said(value)}")


def _said(value: Any) -> str:
    if value is None or type(value) in (bool, int, float, str):
        text = repr(value) if type(value) is str else {None: "null"}.get(value, str(value).lower())
        return text if len(text) <= 40 else f"{text[:40]}..."
    return "an object" if type(value) is dict else "an array"
