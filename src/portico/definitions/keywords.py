"""Where a JSON Schema holds other schemas, and the dialects we know."""

from collections.abc import Iterator
from typing import Any

Location = tuple[str | int, ...]
"""The way from the root of a document to a value in it."""

TYPES = ("null", "boolean", "object", "array", "number", "integer", "string")

LATEST = "https://json-schema.org/draft/2020-12/schema"
"""The dialect of a schema that names none (MCP since 2025-11-25)."""
DRAFT_4 = "http://json-schema.org/draft-04/schema"
DRAFT_6 = "http://json-schema.org/draft-06/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema"
DIALECTS = {
    LATEST: "2020-12",
    "https://json-schema.org/draft/2019-09/schema": "2019-09",
    DRAFT_7: "draft-07",
    DRAFT_6: "draft-06",
    DRAFT_4: "draft-04",
}
REF_STANDS_ALONE = frozenset({DRAFT_4, DRAFT_6, DRAFT_7})
"""Dialects in which whatever stands beside a `$ref` is ignored."""

_ONE = """
    additionalItems additionalProperties contains contentSchema else if items not propertyNames then
    unevaluatedItems unevaluatedProperties
"""
ONE = frozenset(_ONE.split())
"""Keywords whose value is a schema."""
MANY = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
"""Keywords whose value is a list of schemas (`items` up to 2019-09)."""
STORES = frozenset({"$defs", "definitions"})
"""Keywords that keep schemas for others to point at, and apply none of them."""
NAMED = STORES | {"dependencies", "dependentSchemas", "patternProperties", "properties"}
"""Keywords whose value is an object of schemas."""
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def dialect(schema: Any) -> str:
    """The dialect a schema names, known or not."""
    named = schema.get("$schema", LATEST) if isinstance(schema, dict) else LATEST
    return named.removesuffix("#") if isinstance(named, str) else ""


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[Location, Any]]:
    """The schemas directly inside a schema, each with the way to it."""
    for keyword, value in schema.items():
        if isinstance(value, dict):
            if keyword in NAMED:
                for name, inner in value.items():
                    if not isinstance(inner, list):  # `dependencies` also lists names
                        yield (keyword, name), inner
            elif keyword in ONE:
                yield (keyword,), value
        elif isinstance(value, list):
            if keyword in MANY:
                for index, inner in enumerate(value):
                    yield (keyword, index), inner
        elif isinstance(value, bool) and keyword in ONE:
            yield (keyword,), value


def parts_of(*values: Any) -> Iterator[Any]:
    """These values of JSON, and all that is in them."""
    waiting = list(values)
    while waiting:
        one = waiting.pop()
        yield one
        if isinstance(one, dict | list):
            waiting.extend(one.values() if isinstance(one, dict) else one)
