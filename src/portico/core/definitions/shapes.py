"""Makes JSON Schemas of Python types. A given schema is checked and compiled in `schema.py`."""

import math
import typing
from collections.abc import Iterable
from enum import Enum
from typing import Annotated, Any

import msgspec

from portico.core.definitions.constraints import members
from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.keywords import walk_json
from portico.core.definitions.signatures import EMPTY, Parameter, Signature
from portico.core.definitions.wording import render

_UNSTRUCTURED = (str, bytes, bytearray, type(None), object)

JsonObject = dict[str, Any]


def input_schema(signature: Signature) -> JsonObject:
    """Return the schema of a function's arguments."""
    shapes, definitions = _shapes(signature)
    properties = {
        parameter.name: {**shape, **_annotations(parameter, shape)}
        for parameter, shape in zip(signature.parameters, shapes, strict=True)
    }
    schema: JsonObject = {"type": "object", "properties": properties}
    if required := [p.name for p in signature.parameters if p.required]:
        schema["required"] = required
    schema["additionalProperties"] = False
    if definitions:
        schema["$defs"] = definitions
    return schema


def output_schema(returns: Any) -> tuple[JsonObject | None, bool]:
    """Return the schema of a return type, and whether it wraps the value under the key `result`.

    Types that are, or may be, text, content or None have no schema.
    """
    if is_unstructured(returns):
        return None, False
    try:
        (shape,), definitions = schemas_of([returns], mode="serialization")
    except (TypeError, NameError, ValueError):
        return None, False
    shape = _inlined(shape, definitions)
    wraps = shape.get("type") != "object"
    if wraps:
        shape = {"type": "object", "properties": {"result": shape}, "required": ["result"]}
    return (shape | {"$defs": definitions} if definitions else shape), wraps


def schemas_of(kinds: list[Any], mode: str = "validation") -> tuple[list[JsonObject], JsonObject]:
    """Return the schemas of some types, and the definitions of their classes."""
    definitions: JsonObject = {}

    def hook(model: Any) -> JsonObject:
        if not hasattr(model, "model_json_schema"):
            raise NotImplementedError
        shape: JsonObject = model.model_json_schema(ref_template="#/$defs/{model}", mode=mode)
        _add(definitions, shape.pop("$defs", {}))
        return shape

    known = [Any if kind is EMPTY else kind for kind in kinds]
    # All at once, so that classes with the same name get different definitions.
    shapes, components = msgspec.json.schema_components(
        known, schema_hook=hook, ref_template="#/$defs/{name}"
    )
    _restore_order((*shapes, components), known)
    _add(definitions, components)
    return list(shapes), definitions


def decode_model(kind: Any, value: Any) -> Any:
    """Decode a type that msgspec does not know; `schemas_of` accepts only pydantic models."""
    return kind.model_validate(value)


def is_unstructured(kind: Any) -> bool:
    """True for text, bytes, None, Any and content, and for unions and lists with those."""
    kind = _bare(kind)
    if kind in (EMPTY, Any) or kind in _UNSTRUCTURED or _is_content(kind):
        return True
    several = members(kind)
    if several != (kind,):
        return any(map(is_unstructured, several))
    held = (inner for one in typing.get_args(kind) for inner in members(_bare(one)))
    return any(_is_content(_bare(inner)) for inner in held)


def _shapes(signature: Signature) -> tuple[list[JsonObject], JsonObject]:
    kinds = [parameter.type for parameter in signature.parameters]
    try:
        return schemas_of(kinds)
    except (TypeError, NameError, ValueError) as error:
        for parameter in signature.parameters:
            check_shape(signature, parameter)
        raise signature.error(_last_line(error)) from None


def check_shape(signature: Signature, parameter: Parameter) -> None:
    """Raise DefinitionError with the parameter if its type has no JSON Schema."""
    try:
        schemas_of([parameter.type])
    except (TypeError, NameError, ValueError) as error:
        why = f"its type has no JSON Schema: {_last_line(error)}"
        raise signature.error(why, parameter.name) from None


def _is_content(kind: Any) -> bool:
    return isinstance(kind, type) and bool(getattr(kind, "__mcp_content__", False))


def _bare(kind: Any) -> Any:
    """Return a type without annotations, aliases (3.12) and `NewType`."""
    while True:
        if typing.get_origin(kind) is Annotated:
            kind = kind.__origin__
        elif hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        elif type(kind).__name__ == "TypeAliasType":
            kind = kind.__value__
        else:
            return kind


def _add(definitions: JsonObject, more: JsonObject) -> None:
    for name, shape in more.items():
        if definitions.setdefault(name, shape) != shape:
            raise DefinitionError(f"two different types have the name {render(name)}")


def _inlined(shape: JsonObject, definitions: JsonObject) -> JsonObject:
    """Replace a reference at the root by its schema: legacy clients look for its type."""
    name = str(shape.get("$ref", "")).removeprefix("#/$defs/")
    if name not in definitions:
        return shape
    whole = {**definitions[name], **{k: v for k, v in shape.items() if k != "$ref"}}
    if f'"#/$defs/{name}"'.encode() not in msgspec.json.encode(definitions):
        del definitions[name]  # unless it is recursive
    return whole


def _annotations(parameter: Parameter, shape: JsonObject) -> JsonObject:
    """Return the description and default of a parameter."""
    annotations: JsonObject = {}
    words = _annotated_words(parameter) or parameter.description
    if words and "description" not in shape:
        annotations["description"] = words
    if not parameter.required:
        annotations.update(_default(parameter))
    return annotations


def _annotated_words(parameter: Parameter) -> str:
    """Return the description in `Annotated[int, "words"]`, or of another library's annotation."""
    if typing.get_origin(parameter.type) is not Annotated:
        return ""
    notes = [note for note in parameter.type.__metadata__ if not isinstance(note, msgspec.Meta)]
    found = (note if isinstance(note, str) else getattr(note, "description", "") for note in notes)
    return next((words for words in found if isinstance(words, str) and words), "")


def _default(parameter: Parameter) -> JsonObject:
    default = parameter.default
    try:
        plain = msgspec.to_builtins(default, enc_hook=_dumped, str_keys=True)
    except (TypeError, ValueError, RecursionError):
        return {}  # JSON cannot express it, but Python still applies it
    return {} if isinstance(plain, float) and not math.isfinite(plain) else {"default": plain}


def _dumped(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError


def _last_line(error: Exception) -> str:
    """Return the line of msgspec's message that names the type."""
    return str(error).strip().rpartition("\n")[2][:200]


_Choices = dict[frozenset[Any], list[Any]]
"""The options in source order, by their set."""


def _restore_order(schemas: Iterable[Any], kinds: Iterable[Any]) -> None:
    """Put the options of every `enum` in these schemas into the order of these types."""
    walked = (part for part in walk_json(*schemas) if isinstance(part, dict))
    found = [s for s in walked if isinstance(s.get("enum"), list) and len(s["enum"]) > 1]
    if not found:
        return
    choices: _Choices = {}
    seen: set[int] = set()
    for kind in kinds:
        _collect(kind, choices, seen)
    for schema in found:
        own = choices.get(_key(schema["enum"]))
        if own is not None:
            schema["enum"] = own


def _collect(kind: Any, choices: _Choices, seen: set[int]) -> None:
    if id(kind) in seen:
        return
    seen.add(id(kind))
    options = _options(kind)
    if options:
        choices.setdefault(_key(options), options)
        return
    for inner in (*typing.get_args(kind), *_fields(kind)):
        _collect(inner, choices, seen)


def _options(kind: Any) -> list[Any]:
    if typing.get_origin(kind) is typing.Literal:
        return list(typing.get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [member.value for member in kind]
    return []


def _fields(kind: Any) -> list[Any]:
    """Return the types inside a class, an alias or a `NewType`."""
    for name in ("__supertype__", "__value__"):
        if hasattr(kind, name):
            return [getattr(kind, name)]
    kind = typing.get_origin(kind) or kind
    if not isinstance(kind, type) or not hasattr(kind, "__annotations__"):
        return []
    try:
        return list(typing.get_type_hints(kind, include_extras=True).values())
    except (NameError, TypeError, AttributeError):
        return []  # msgspec can still make its schema


def _key(options: list[Any]) -> frozenset[Any]:
    # 1 and True are equal, but different options.
    return frozenset((type(one), one) for one in options if not isinstance(one, list | dict))
