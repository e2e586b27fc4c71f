"""Tool parameters that clients mirror into HTTP headers (`x-mcp-header`, 2026-07-28)."""

from collections.abc import Iterator
from string import ascii_letters, digits
from typing import Any

from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.keywords import Location, subschemas
from portico.core.definitions.wording import dotted, render
from portico.core.model.offer import HeaderParam

KEYWORD = "x-mcp-header"
KINDS = ("string", "integer", "boolean")
_TOKEN = frozenset(ascii_letters + digits + "!#$%&'*+-.^_`|~")  # RFC 9110, 5.6.2
_MAX_DEPTH = 500
"""The limit of nesting, because an upstream's schema may be nested without bound."""


def header_params(input_schema: Any) -> tuple[HeaderParam, ...]:
    """Return the parameters to mirror; raise DefinitionError if any annotation is invalid."""
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
    """Yield every annotated schema in document order, with the path of its value if static."""
    pending: list[tuple[Location, tuple[str, ...] | None, Any]] = [((), (), root)]
    while pending:
        location, path, schema = pending.pop()
        if not isinstance(schema, dict) or len(location) > _MAX_DEPTH:
            continue
        if KEYWORD in schema:
            yield location, path, schema
        inside = list(subschemas(schema))
        for step, inner in reversed(inside):
            # Other keywords than `properties` apply only to some calls.
            static = None if path is None or step[0] != "properties" else (*path, str(step[1]))
            pending.append(((*location, *step), static, inner))
