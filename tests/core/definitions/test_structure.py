"""Common mistakes in a schema are found without compiling it."""

from typing import Any

import msgspec
import pytest

from portico.core.definitions.schema import Schema, SchemaError, structural_check
from tests.support.shared import shared


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"properties": {"city": {"type": "strnig"}}}, 'properties.city.type: "strnig" is not'),
        ({"type": ["string", "nul"]}, 'type[1]: "nul" is not a JSON Schema type'),
        ({"type": []}, "type: must name at least one type"),
        ({"type": {"a": 1}}, "type: {"),
        ({"properties": []}, "properties: must be an object of schemas, not an array"),
        ({"properties": {"a": "string"}}, "properties.a: a schema is an object or a boolean"),
        ({"required": "city"}, 'required: must be a list of field names, not "city"'),
        ({"required": ["a", 1]}, "required[1]: must be a field name (a string), not 1"),
        ({"properties": {"a": {"required": True}}}, "properties.a.required: must be a list"),
        ({"items": "string"}, "items: must be a schema"),
        ({"items": [{}]}, "prefixItems"),
        ({"anyOf": []}, "anyOf: must be a non-empty list of schemas"),
        ({"anyOf": [1]}, "anyOf[0]: a schema is"),
        ({"enum": "a"}, "enum: must be a list"),
        ({"minLength": -1}, "minLength: must be a whole number"),
        ({"maxItems": "3"}, 'maxItems: must be a whole number of at least 0, not "3"'),
        ({"minimum": True}, "minimum: must be a number, not true"),
        ({"multipleOf": 0}, "multipleOf: must be greater than 0"),
        ({"uniqueItems": 1}, "uniqueItems: must be true or false"),
        ({"description": 1}, "description: must be a string"),
        ({"pattern": {}}, "pattern: must be a string, not an object"),
        ({"$ref": 1}, "$ref: must be a string"),
        ({"$ref": "#/$defs/x"}, '$ref: "#/$defs/x" is not in this schema'),
        ({"$schema": "http://json-schema.org/draft-02/schema"}, "$schema: "),
        ({"dependentRequired": {"a": [1]}}, "dependentRequired.a[0]: must be a field name"),
        ({"dependentRequired": []}, "dependentRequired: must be an object of lists"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": 1}, "$ref: must be a str"),
        ({"additionalProperties": "no"}, "additionalProperties: must be a schema"),
        ("string", 'a schema is an object or a boolean, not "string"'),
    ],
)
def test_a_mistake_is_named_with_its_place(schema: Any, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        structural_check(schema)

    assert message in str(caught.value)
    # The full check agrees that something is wrong.
    with pytest.raises(SchemaError):
        Schema(schema).check()


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": ["string", "null"], "minLength": 1.0},
        {"default": {"type": "nonsense"}, "enum": [{"required": 1}], "const": {"items": 3}},
        {"properties": {"type": {"type": "string"}, "required": {}, "$ref": {}}},
        {"x-anything": {"type": "nonsense"}},
        {"$schema": "http://json-schema.org/draft-04/schema#", "exclusiveMinimum": True},
        {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}]},
        {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
    ],
)
def test_what_is_right_or_only_data_is_left_alone(schema: Any) -> None:
    before = msgspec.json.encode(schema)
    structural_check(schema)
    assert msgspec.json.encode(schema) == before


def test_no_valid_schema_of_the_suite_is_refused() -> None:
    root = shared("corpora/json-schema/draft2020-12")
    refused = []
    for file in root.rglob("*.json"):
        for group in msgspec.json.decode(file.read_bytes()):
            try:
                structural_check(group["schema"])
            except SchemaError as error:
                if "never fetched" not in error.reason and "dialect" not in error.reason:
                    refused.append((file.name, group["description"], str(error)))

    assert refused == []
