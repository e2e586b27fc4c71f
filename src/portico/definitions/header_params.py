"""Tool parameters that clients mirror into HTTP headers (`x-mcp-header`, 2026-07-28)."""

from collections.abc import Iterator
from string import ascii_letters, digits
from typing import Any

from portico.definitions.definition_error import DefinitionError
from portico.definitions.keywords import Location, subschemas
from portico.definitions.wording import dotted, render
from portico.model.offer import HeaderParam

KEYWORD = "x-mcp-header"
KINDS = ("string", "integer", "boolean")
_TOKEN = frozenset(ascii_letters + digits + "!#$%&'*+-.^_`|~")  # RFC 9110, 5.6.2
_DEEPEST = 500
"""A schema that came from elsewhere may be nested beyond reason."""


def header_params(input_schema: Any) -> tuple[HeaderParam, ...]:
    """The parameters to mirror, or DefinitionError: one wrong annotation spoils the tool."""
    found: dict[str, HeaderParam] = {}
    for location, path, schema in _annotated(input_schema):
        field = dotted((*location, KEYWORD))
        token = schema[KEYWORD]
        if not isinstance(token, str) or not token or not _TOKEN.issuperset(token):
            raise DefinitionError(f"{render(token)} is not an HTTP token", field=field)
        if not path:
            why = "only a parameter reached through `properties` alone can be mirrored"
            raise DefinitionError(why, field=field)
        kind = schema.get("type")
        if kind not in KINDS:
            why = f"only a string, integer or boolean can be mirrored, not {render(kind)}"
            raise DefinitionError(why, field=field)
        header = f"mcp-param-{token.lower()}"
        if header in found:
            why = f"{render(token)} is already the header of {dotted(found[header].path)}"
            raise DefinitionError(why, field=field)
        found[header] = HeaderParam(header, path, kind)
    return tuple(found.values())


def _annotated(root: Any) -> Iterator[tuple[Location, tuple[str, ...] | None, dict[str, Any]]]:
    """Every annotated schema, in document order, with the way to its value if that is static."""
    waiting: list[tuple[Location, tuple[str, ...] | None, Any]] = [((), (), root)]
    while waiting:
        location, path, schema = waiting.pop()
        if not isinstance(schema, dict) or len(location) > _DEEPEST:
            continue
        if KEYWORD in schema:
            yield location, path, schema
        inside = list(subschemas(schema))
        for way, inner in reversed(inside):
            # Through anything but `properties`, whether the value is there depends on the call.
            static = None if path is None or way[0] != "properties" else (*path, str(way[1]))
            waiting.append(((*location, *way), static, inner))
