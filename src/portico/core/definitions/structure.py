"""Checks for common mistakes in a JSON Schema, without compiling it.

They run for every schema of a file at startup, so they import no validator; the full check runs
when the schema is first used.
"""

from collections.abc import Callable
from typing import Any

from portico.core.definitions.definition_error import SchemaError
from portico.core.definitions.keywords import (
    DIALECTS,
    DRAFT_4,
    LATEST,
    REF_ONLY_DIALECTS,
    REFERENCES,
    SCHEMA_LISTS,
    SCHEMA_MAPS,
    SINGLE_SCHEMAS,
    TYPES,
    Location,
    dialect,
    subschemas,
)
from portico.core.definitions.references import References
from portico.core.definitions.wording import dotted, render, type_name

MAX_DEPTH = 128
"""The limit of nested JSON in a schema; fifty nested objects need about a hundred levels."""
MAX_NODES = 50_000
FOREIGN_NODES = 3_000
"""The limit for a schema of an upstream; a larger one takes too long to compile."""

_Fault = tuple[Location, str]


def structural_check(schema: Any, *, where: str = "", max_nodes: int = MAX_NODES) -> None:
    """Raise SchemaError if it is too large, misuses a keyword or has dangling references."""
    try:
        _check_size(schema, max_nodes)
        if _check_schemas(schema):
            References(schema).check()
    except SchemaError as error:
        raise error.inside(source=where) from None


def _check_size(root: Any, max_nodes: int) -> None:
    """Count all values, including data (`default`, `enum`), which is compiled too."""
    nodes = 0
    level: list[Any] = [root]
    for _ in range(MAX_DEPTH + 1):
        nodes += len(level)
        if nodes > max_nodes:
            raise SchemaError(f"has more than {max_nodes} values")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
        if not below:
            return
        level = below
    raise SchemaError(f"is nested deeper than {MAX_DEPTH} levels")


def _check_schemas(root: Any) -> bool:
    """Check the keywords of every schema; True if any of them refers to another."""
    named = dialect(root)
    refers = False
    pending: list[tuple[Location, Any]] = [((), root)]
    while pending:
        location, schema = pending.pop()
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, dict):
            raise _error(location, f"a schema is an object or a boolean, not {_got(schema)}")
        fault = _fault(schema, named)
        if fault is not None:
            raise _error((*location, *fault[0]), fault[1])
        refers = refers or any(keyword in schema for keyword in REFERENCES)
        pending.extend(((*location, *step), inner) for step, inner in subschemas(schema))
    return refers


def _error(location: Location, reason: str) -> SchemaError:
    return SchemaError(reason, field=dotted(location))


def _fault(schema: dict[str, Any], named: str) -> _Fault | None:
    if "$ref" in schema and named in REF_ONLY_DIALECTS:
        return None if isinstance(schema["$ref"], str) else (("$ref",), "must be a string")
    for keyword, value in schema.items():
        check = _CHECKS.get(keyword)
        if check is None or (named == DRAFT_4 and keyword in _BOOLEAN_IN_DRAFT_4):
            continue
        fault = check(value)
        if fault is None and keyword == "items" and named == LATEST and isinstance(value, list):
            fault = (), "must be a schema; in 2020-12 use prefixItems for a list of schemas"
        if fault is not None:
            return (keyword, *fault[0]), fault[1]
    return None


# One check for each kind of value. A fault is a location inside the value, and a reason.


def _is_type(value: Any) -> _Fault | None:
    names = value if isinstance(value, list) else [value]
    for index, name in enumerate(names):
        if not isinstance(name, str) or name not in TYPES:
            step = (index,) if isinstance(value, list) else ()
            return step, f"{render(name)} is not a JSON Schema type"
    return None if names else ((), "must name at least one type")


def _is_schema(value: Any) -> _Fault | None:
    if isinstance(value, dict | bool):
        return None
    return (), f"must be a schema (an object or a boolean), not {_got(value)}"


def _is_items(value: Any) -> _Fault | None:
    return None if isinstance(value, list) else _is_schema(value)


def _are_schemas(value: Any) -> _Fault | None:
    if not isinstance(value, list) or not value:
        return (), f"must be a non-empty list of schemas, not {_got(value)}"
    return None


def _are_named_schemas(value: Any) -> _Fault | None:
    if not isinstance(value, dict):
        return (), f"must be an object of schemas, not {_got(value)}"
    return None


def _are_names(value: Any) -> _Fault | None:
    if not isinstance(value, list):
        return (), f"must be a list of field names, not {_got(value)}"
    for index, name in enumerate(value):
        if not isinstance(name, str):
            return (index,), f"must be a field name (a string), not {_got(name)}"
    return None


def _are_named_names(value: Any) -> _Fault | None:
    if not isinstance(value, dict):
        return (), f"must be an object of lists of field names, not {_got(value)}"
    for name, needed in value.items():
        fault = _are_names(needed)
        if fault is not None:
            return (name, *fault[0]), fault[1]
    return None


def _is_list(value: Any) -> _Fault | None:
    return None if isinstance(value, list) else ((), f"must be a list, not {_got(value)}")


def _is_text(value: Any) -> _Fault | None:
    return None if isinstance(value, str) else ((), f"must be a string, not {_got(value)}")


def _is_flag(value: Any) -> _Fault | None:
    return None if isinstance(value, bool) else ((), f"must be true or false, not {_got(value)}")


def _is_number(value: Any) -> _Fault | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return None
    return (), f"must be a number, not {_got(value)}"


def _is_positive(value: Any) -> _Fault | None:
    fault = _is_number(value)
    return ((), "must be greater than 0") if fault is None and value <= 0 else fault


def _is_count(value: Any) -> _Fault | None:
    if type_name(value) == "integer" and value >= 0:
        return None
    return (), f"must be a whole number of at least 0, not {_got(value)}"


def _is_dialect(value: Any) -> _Fault | None:
    if isinstance(value, str) and value.removesuffix("#") in DIALECTS:
        return None
    return (), f"{render(value)} is not a supported dialect: {', '.join(DIALECTS.values())}"


def _got(value: Any) -> str:
    return render(value) if not isinstance(value, dict | list) else f"an {type_name(value)}"


_BOOLEAN_IN_DRAFT_4 = ("exclusiveMinimum", "exclusiveMaximum")
_CHECKS: dict[str, Callable[[Any], _Fault | None]] = {
    **dict.fromkeys(SINGLE_SCHEMAS, _is_schema),
    **dict.fromkeys(SCHEMA_LISTS, _are_schemas),
    **dict.fromkeys(SCHEMA_MAPS, _are_named_schemas),
    "items": _is_items,
    "$schema": _is_dialect,
    "type": _is_type,
    "required": _are_names,
    "dependentRequired": _are_named_names,
    "enum": _is_list,
    "multipleOf": _is_positive,
    **dict.fromkeys(("minimum", "maximum", *_BOOLEAN_IN_DRAFT_4), _is_number),
    **dict.fromkeys(
        (
            *("minLength", "maxLength", "minItems", "maxItems"),
            *("minProperties", "maxProperties", "minContains", "maxContains"),
        ),
        _is_count,
    ),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _is_flag),
    **dict.fromkeys(
        (
            *("$id", "$ref", "$dynamicRef", "$anchor", "$dynamicAnchor", "$comment"),
            *("title", "description", "pattern", "format", "contentEncoding", "contentMediaType"),
        ),
        _is_text,
    ),
}
