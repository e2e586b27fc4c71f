"""`x-mcp-header` annotations: which are valid, and their headers."""

from typing import Any

import pytest
from mcp.shared.inbound import find_invalid_x_mcp_header

from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.header_params import header_params


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def mirrored(header: Any, **more: Any) -> dict[str, Any]:
    return {"type": "string", "x-mcp-header": header, **more}


def test_annotated_parameters_are_found_in_document_order() -> None:
    found = header_params(
        schema(
            region=mirrored("Region"),
            plain={"type": "string"},
            inner=schema(
                count=mirrored("Count", type="integer"), on=mirrored("On", type="boolean")
            ),
        )
    )

    assert [(p.header, p.path, p.kind) for p in found] == [
        ("mcp-param-region", ("region",), "string"),
        ("mcp-param-count", ("inner", "count"), "integer"),
        ("mcp-param-on", ("inner", "on"), "boolean"),
    ]


@pytest.mark.parametrize("found", [{}, True, None, [], "x", schema(), {"properties": 1}])
def test_a_schema_without_annotations_has_none(found: Any) -> None:
    assert header_params(found) == ()


def test_what_only_looks_like_an_annotation_is_none() -> None:
    looks = schema(**{"x-mcp-header": {"type": "string"}, "a": {"default": mirrored("A")}})
    looks["x-other"] = mirrored("B")
    looks["enum"] = [mirrored("C")]

    assert header_params(looks) == ()


INVALID = {
    "empty": schema(a=mirrored("")),
    "not text": schema(a=mirrored(1)),
    "space": schema(a=mirrored("My Region")),
    "colon": schema(a=mirrored("Region:Primary")),
    "non-ascii": schema(a=mirrored("Région")),
    "control": schema(a=mirrored("a\r\nb")),
    "object": schema(a=mirrored("A", type="object")),
    "array": schema(a=mirrored("A", type="array")),
    "null": schema(a=mirrored("A", type="null")),
    "number": schema(a=mirrored("A", type="number")),
    "several types": schema(a=mirrored("A", type=["string", "null"])),
    "no type": schema(a={"x-mcp-header": "A"}),
    "twice": schema(a=mirrored("Region"), b=mirrored("Region")),
    "twice, other case": schema(a=mirrored("MyField"), b=schema(c=mirrored("myfield"))),
    "root": mirrored("A", type="object"),
    "items": schema(a={"type": "array", "items": mirrored("A")}),
    "anyOf": {"anyOf": [schema(a=mirrored("A"))]},
    "then": {"then": schema(a=mirrored("A"))},
    "$defs": {"$defs": {"d": mirrored("A")}, **schema(a={"$ref": "#/$defs/d"})},
    "additional": {"additionalProperties": mirrored("A")},
    "below a pattern": {"patternProperties": {"x": schema(a=mirrored("A"))}},
    "not": {"not": schema(a=mirrored("A"))},
}


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_annotation_spoils_the_tool(name: str) -> None:
    with pytest.raises(DefinitionError, match="x-mcp-header"):
        header_params(INVALID[name])
    assert find_invalid_x_mcp_header(INVALID[name]), "the official SDK takes it"


def test_the_error_names_both_parameters_of_one_header() -> None:
    with pytest.raises(DefinitionError) as caught:
        header_params(schema(a=schema(b=mirrored("X")), c=mirrored("x")))

    assert str(caught.value) == 'properties.c.x-mcp-header: "x" is already the header of a.b'


def test_a_bottomless_schema_from_elsewhere_does_no_harm() -> None:
    deep: Any = {}
    for _ in range(10_000):
        deep = {"properties": {"a": deep}}

    assert header_params(deep) == ()
