"""The keywords of JSON Schema that contain schemas, and the known dialects."""

from collections.abc import Iterator
from typing import Any

Location = tuple[str | int, ...]
"""The keys and indexes from the root of a document to a value in it."""

TYPES = ("null", "boolean", "object", "array", "number", "integer", "string")

LATEST = "https://json-schema.org/draft/2020-12/schema"
"""The dialect of a schema without `$schema` (MCP since 2025-11-25)."""
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
REF_ONLY_DIALECTS = frozenset({DRAFT_4, DRAFT_6, DRAFT_7})
"""Dialects in which a `$ref` overrides the keywords beside it."""

_SINGLE = """
    additionalItems additionalProperties contains contentSchema else if items not propertyNames then
    unevaluatedItems unevaluatedProperties
"""
SINGLE_SCHEMAS = frozenset(_SINGLE.split())
"""Keywords whose value is a schema."""
SCHEMA_LISTS = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
"""Keywords whose value is a list of schemas (`items` up to 2019-09)."""
SCHEMA_STORES = frozenset({"$defs", "definitions"})
"""Keywords that store schemas for references, without applying them."""
_APPLIED_MAPS = {"dependencies", "dependentSchemas", "patternProperties", "properties"}
SCHEMA_MAPS = SCHEMA_STORES | _APPLIED_MAPS
"""Keywords whose value is an object of schemas."""
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def dialect(schema: Any) -> str:
    """Return the dialect of a schema, known or not."""
    named = schema.get("$schema", LATEST) if isinstance(schema, dict) else LATEST
    return named.removesuffix("#") if isinstance(named, str) else ""


def subschemas(schema: dict[str, Any]) -> Iterator[tuple[Location, Any]]:
    """Yield the schemas directly inside a schema, each with its relative location."""
    for keyword, value in schema.items():
        if isinstance(value, dict):
            if keyword in SCHEMA_MAPS:
                for name, inner in value.items():
                    if not isinstance(inner, list):  # `dependencies` also lists names
                        yield (keyword, name), inner
            elif keyword in SINGLE_SCHEMAS:
                yield (keyword,), value
        elif isinstance(value, list):
            if keyword in SCHEMA_LISTS:
                for index, inner in enumerate(value):
                    yield (keyword, index), inner
        elif isinstance(value, bool) and keyword in SINGLE_SCHEMAS:
            yield (keyword,), value


def walk_json(*values: Any) -> Iterator[Any]:
    """Yield these JSON values and all values inside them."""
    pending = list(values)
    while pending:
        one = pending.pop()
        yield one
        if isinstance(one, dict | list):
            pending.extend(one.values() if isinstance(one, dict) else one)
