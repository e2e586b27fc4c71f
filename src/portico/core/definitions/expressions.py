"""The expressions `{...}` of URI templates (RFC 6570, levels 1 to 3)."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.wording import render

MAX_LENGTH = 4096
_OPERATORS = "+#/?&"
_UNSUPPORTED = ".;=,!@|"
_NAME_MARKS = str.maketrans("_.%-", "aaaa")  # hyphens are common, though not in the RFC
_RESERVED = ":/?#[]@!$&'()*+,;="
_HEX = frozenset("0123456789abcdefABCDEF")


class Expression(Struct, frozen=True):
    """One `{...}`: its operator, its names, and whether they are exploded (`*`)."""

    text: str
    operator: str
    names: tuple[str, ...]
    explode: bool

    def __str__(self) -> str:
        return f"{{{self.text}}}"

    def only_name(self) -> str:
        """Return the only name of an expression that must have one."""
        if len(self.names) > 1:
            raise DefinitionError(f"{self} can have only one variable")
        return self.names[0]

    def expand(self, values: Mapping[str, Any]) -> str:
        """Return the expanded text; names without a value are skipped (RFC 6570, 3.2.1)."""
        given = {n: str(values[n]) for n in self.names if values.get(n) is not None}
        if not given:
            return ""
        match self.operator:
            case "?" | "&":
                pairs = (f"{name}={_encode(value, '')}" for name, value in given.items())
                return self.operator + "&".join(pairs)
            case "/":
                safe = "/" if self.explode else ""
                return "".join("/" + _encode(value, safe) for value in given.values())
            case "+" | "#":
                mark = "#" if self.operator == "#" else ""
                return mark + ",".join(_encode_reserved(value) for value in given.values())
        return ",".join(_encode(v, "/" if self.explode else "") for v in given.values())


def parse(text: str) -> Iterator[tuple[str, Expression | None]]:
    """Yield each literal text with the expression after it; None after the last."""
    if len(text) > MAX_LENGTH:
        raise DefinitionError(f"is longer than {MAX_LENGTH} characters")
    if any(char <= " " or char == "\x7f" for char in text):
        raise DefinitionError(f"{render(text)} contains a space or a control character")
    rest = text
    while rest:
        literal, brace, rest = rest.partition("{")
        if "}" in literal:
            raise DefinitionError(f"{render(text)} has a }} without a {{")
        if not brace:
            yield literal, None
            return
        inner, brace, rest = rest.partition("}")
        if not brace:
            raise DefinitionError(f"{render(text)} has a {{ without a }}")
        yield literal, _expression(inner)


def _expression(text: str) -> Expression:
    operator = text[:1] if text[:1] in (*_OPERATORS, *_UNSUPPORTED) else ""
    if operator and operator in _UNSUPPORTED:
        raise DefinitionError(f"{{{text}}}: the operator {render(operator)} is not supported")
    specs = text[len(operator) :].split(",")
    explode = any(spec.endswith("*") for spec in specs)
    if explode and (len(specs) > 1 or operator not in ("", "/")):
        raise DefinitionError(f"{{{text}}}: * is only supported as in {{path*}} and {{/path*}}")
    names = tuple(spec.removesuffix("*") for spec in specs)
    for name in names:
        if ":" in name:
            raise DefinitionError(f"{{{text}}}: prefixes (:) are not supported")
        if not (name.isascii() and name.translate(_NAME_MARKS).isalnum()):
            raise DefinitionError(f"{{{text}}}: {render(name)} is not a variable name")
    if len(set(names)) < len(names):
        raise DefinitionError(f"{{{text}}} names a variable twice")
    return Expression(text, operator, names, explode)


def _encode(value: str, safe: str) -> str:
    from urllib.parse import quote

    return quote(value, safe=safe)


def _encode_reserved(value: str) -> str:
    """Encode all but reserved characters and existing escapes (RFC 6570, 3.2.3)."""
    first, *others = value.split("%")
    text = _encode(first, _RESERVED)
    for other in others:
        is_triplet = len(other) >= 2 and _HEX.issuperset(other[:2])
        text += ("%" if is_triplet else "%25") + _encode(other, _RESERVED)
    return text
