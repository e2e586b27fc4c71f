"""Definitions from files, bytes and objects."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import Tool as SdkTool

from portico import PorticoError
from portico.core.definitions.definition_error import DefinitionError
from portico.core.definitions.load import (
    load_file,
    load_prompts,
    load_resources,
    load_templates,
    load_tools,
)
from tests.support.shared import shared

TOOL = {"name": "get_weather", "inputSchema": {"type": "object"}}
RESOURCE = {"name": "notes", "uri": "file:///notes.txt"}
TEMPLATE = {"name": "note", "uriTemplate": "file:///{name}.txt"}
PROMPT = {"name": "greet"}


def error_of(load: Any, source: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        load(source)
    return str(caught.value)


def write(path: Path, content: Any) -> Path:
    data = content if isinstance(content, bytes) else msgspec.json.encode(content)
    path.write_bytes(data)
    return path


# Sources of definitions.


def test_a_bare_array_and_an_object_with_the_key_are_the_same(tmp_path: Path) -> None:
    bare = msgspec.json.encode([TOOL])
    keyed = msgspec.json.encode({"tools": [TOOL]})
    file = write(tmp_path / "tools.json", bare)

    for source in (
        bare,
        keyed,
        bytearray(bare),
        file,
        str(file),
        [TOOL],
        (TOOL,),
        {"tools": [TOOL]},
    ):
        assert load_tools(source) == [TOOL]


def test_every_field_is_kept_in_order() -> None:
    tool = {
        "x-first": {"b": 1, "a": [None]},
        "inputSchema": {
            "type": "object",
            "properties": {"z": {"type": "string", "x-anything": 1}, "a": {}},
            "$defs": {"d": {"$anchor": "here"}},
        },
        "name": "t",
        "title": "T",
        "annotations": {"readOnlyHint": True, "mine": 1},
        "_meta": {"k": "v"},
    }

    (loaded,) = load_tools(msgspec.json.encode([tool]))

    assert msgspec.json.encode(loaded) == msgspec.json.encode(tool)


def test_entries_keep_their_order() -> None:
    tools = [{**TOOL, "name": name} for name in ("z", "a", "m")]

    assert load_tools(tools) == tools


def test_one_file_may_hold_everything(tmp_path: Path) -> None:
    file = write(
        tmp_path / "all.json",
        {
            "$schema": "https://example.com/ours.json",
            "tools": [TOOL],
            "resources": [RESOURCE],
            "resourceTemplates": [TEMPLATE],
            "prompts": [PROMPT],
        },
    )

    found = load_file(file)

    assert (found.tools, found.resources) == ([TOOL], [RESOURCE])
    assert (found.templates, found.prompts) == ([TEMPLATE], [PROMPT])
    assert load_tools(file) == [TOOL]
    assert load_templates(file) == [TEMPLATE]


def test_a_file_that_is_a_bare_list_holds_tools(tmp_path: Path) -> None:
    assert load_file(write(tmp_path / "tools.json", [TOOL])).tools == [TOOL]


def test_a_byte_order_mark_is_passed_over() -> None:
    assert load_tools(b"\xef\xbb\xbf" + msgspec.json.encode([TOOL])) == [TOOL]


@dataclass
class Defined:
    name: str
    inputSchema: dict[str, Any]  # noqa: N815  (the field of the protocol)


def test_objects_with_fields_are_definitions_too() -> None:
    sdk = SdkTool(name="sdk", input_schema={"type": "object"})

    assert load_tools([Defined("mine", {"type": "object"}), sdk]) == [
        {"name": "mine", "inputSchema": {"type": "object"}},
        {"name": "sdk", "inputSchema": {"type": "object"}},
    ]


def test_loading_changes_nothing_of_what_it_was_given() -> None:
    (loaded,) = load_tools([TOOL])
    loaded["extra"] = 1

    assert "extra" not in TOOL


# Files that cannot be read.


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere.json")

    assert error_of(load_tools, path) == f"{path}: cannot be read: No such file or directory"


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    assert "cannot be read" in error_of(load_file, tmp_path)


def test_a_syntax_error_has_its_line_and_column(tmp_path: Path) -> None:
    file = write(tmp_path / "tools.json", b'[\n  {"name": "\xc3\xa9\xc3\xa9", oops}\n]')

    assert error_of(load_tools, file) == (
        f"{file}: is not JSON: object keys must be strings (line 2, column 18)"
    )


def test_a_file_that_ends_early_says_so() -> None:
    assert error_of(load_tools, b'[\n{"a": 1') == (
        "is not JSON: unexpected end of file (line 2, column 8)"
    )
    assert "unexpected end of file" in error_of(load_tools, b"")


def test_text_that_is_not_utf8_is_refused_with_its_place() -> None:
    assert error_of(load_tools, b'[\n"\xff"]') == "is not UTF-8 text (line 2, column 2)"
    assert "is not" in error_of(load_tools, '[{"name": "é"}]'.encode("utf-16"))


@pytest.mark.parametrize("bomb", [b"[" * 1_000_000, b'{"a":' * 500_000])
def test_a_nesting_bomb_is_refused(bomb: bytes) -> None:
    assert error_of(load_tools, bomb) == "is nested too deeply"


def test_no_broken_json_of_the_corpus_is_loaded() -> None:
    for file in shared("corpora/json-parsing").glob("n_*.json"):
        assert error_of(load_tools, file).startswith(str(file))


def test_valid_json_of_the_corpus_is_no_crash() -> None:
    for file in shared("corpora/json-parsing").glob("[yi]_*.json"):
        for load in (load_tools, load_resources, load_templates, load_prompts, load_file):
            try:
                load(file)
            except DefinitionError as error:
                assert error.source == str(file)  # noqa: PT017  (either outcome is fine)


# A broken file never gives an empty server.


def test_a_document_without_the_key_is_refused() -> None:
    assert error_of(load_tools, {"resources": []}) == 'has no "tools"'
    assert error_of(load_tools, b"{}") == 'has no "tools"'


def test_a_file_without_any_definitions_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "x.json", {"name": "x"})

    assert "has none of" in error_of(load_file, file)


def test_a_misspelt_key_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "x.json", {"tools": [TOOL], "promts": [PROMPT]})

    assert error_of(load_file, file) == (f'{file}: unknown key "promts" (did you mean "prompts"?)')


@pytest.mark.parametrize("document", [b"1", b'"tools"', b"null", b"true"])
def test_a_document_that_is_no_list_is_refused(document: bytes, tmp_path: Path) -> None:
    assert "must" in error_of(load_tools, document)
    assert "must be an object or a list" in error_of(
        load_file, write(tmp_path / "x.json", document)
    )


def test_a_list_that_is_none_is_refused() -> None:
    assert error_of(load_tools, {"tools": {}}) == "tools: must be a list of tools, not object"
    assert error_of(load_prompts, {"prompts": "x"}) == (
        "prompts: must be a list of prompts, not string"
    )


def test_an_empty_list_is_a_choice(tmp_path: Path) -> None:
    assert load_tools([]) == []
    assert load_file(write(tmp_path / "x.json", {"prompts": []})).prompts == []


# Entries.


def test_an_error_names_file_entry_and_field(tmp_path: Path) -> None:
    wrong = {"type": "object", "properties": {"city": {"type": "strnig"}}}
    tools = [{**TOOL, "name": "first"}, {"name": "get_weather", "inputSchema": wrong}]
    file = write(tmp_path / "tools.json", tools)

    with pytest.raises(DefinitionError) as caught:
        load_tools(file)

    error = caught.value
    assert str(error) == (
        f'{file}: tool 2 ("get_weather"): '
        'inputSchema.properties.city.type: "strnig" is not a JSON Schema type'
    )
    assert (error.source, error.entry) == (str(file), 'tool 2 ("get_weather")')
    assert error.field == "inputSchema.properties.city.type"
    assert error.reason == '"strnig" is not a JSON Schema type'
    assert isinstance(error, ValueError)
    assert isinstance(error, PorticoError)


def tool(**fields: Any) -> dict[str, Any]:
    return {**TOOL, **fields}


def inputs(**properties: Any) -> dict[str, Any]:
    return tool(inputSchema={"type": "object", "properties": properties})


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (1, "tool 1: must be an object, not integer"),
        ("x", "tool 1: must be an object, not string"),
        (None, "tool 1: must be an object, not null"),
        (object(), "tool 1: must be an object, not object"),
        ({"inputSchema": {"type": "object"}}, "tool 1: name: is missing"),
        (tool(name=""), "tool 1: name: must not be empty"),
        (tool(name=7), "tool 1: name: must be a string, not 7"),
        ({"name": "t"}, 'tool 1 ("t"): inputSchema: is missing'),
        (
            {"name": "t", "input_schema": {}},
            'is missing; found "input_schema" instead',
        ),
        ({"Name": "t"}, 'tool 1: name: is missing; found "Name" instead'),
        (tool(**{"x-y": object()}), "x-y: cannot be written as JSON"),
        (tool(description="\ud800"), "description: cannot be written as JSON"),
        (
            tool(inputSchema={"type": "object", "default": {1, object()}}),
            "inputSchema: cannot be written as JSON",
        ),
        (tool(title=1), "title: must be a string, not 1"),
        (tool(description=None), "description: must be a string, not null"),
        (tool(inputSchema=True), "inputSchema: must be an object, not true"),
        (
            tool(inputSchema={}),
            'inputSchema.type: must be "object" (arguments are named), not null',
        ),
        (tool(inputSchema={"type": "string"}), 'inputSchema.type: must be "object"'),
        (tool(outputSchema=[]), "outputSchema: must be an object, not array"),
        (tool(outputSchema={"type": "obj"}), 'outputSchema.type: "obj" is not'),
        (inputs(a={"$ref": "#/$defs/x"}), "inputSchema.properties.a.$ref: "),
        (inputs(a={"x-mcp-header": "A B", "type": "string"}), 'a.x-mcp-header: "A B" is not an'),
        (tool(annotations=[]), "annotations: must be an object, not array"),
        (tool(annotations={"readOnlyHint": "yes"}), "annotations.readOnlyHint: must be true or"),
        (tool(annotations={"title": 1}), "annotations.title: must be a string"),
        (tool(icons={}), "icons: must be a list, not object"),
        (tool(icons=["x"]), 'icons[0]: must be an object, not "x"'),
        (tool(icons=[{"src": "a:b"}, {}]), "icons[1].src: is missing"),
        (tool(icons=[{"src": "a:b", "sizes": "48x48"}]), "icons[0].sizes: must be a list"),
        (
            tool(icons=[{"src": "a:b", "theme": "blue"}]),
            'icons[0].theme: must be "light" or "dark"',
        ),
        (tool(_meta=1), "_meta: must be an object, not 1"),
    ],
)
def test_a_wrong_tool_is_refused_with_its_field(entry: Any, message: str) -> None:
    assert message in error_of(load_tools, [entry])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"uri": "notes.txt"}, 'uri: "notes.txt" is not a URI'),
        ({"uri": ""}, "uri: must not be empty"),
        ({"uri": "1a:b"}, "is not a URI"),
        ({"uri": ":b"}, "is not a URI"),
        ({"uri": None}, "uri: must be a string, not null"),
        ({"mimeType": 1}, "mimeType: must be a string, not 1"),
        ({"size": -1}, "size: must be a number of bytes, not -1"),
        ({"annotations": {"audience": ["all"]}}, 'annotations.audience[0]: must be "user" or'),
        ({"annotations": {"priority": 2}}, "annotations.priority: must be a number from 0 to 1"),
    ],
)
def test_a_wrong_resource_is_refused_with_its_field(change: Any, message: str) -> None:
    assert message in error_of(load_resources, [{**RESOURCE, **change}])


@pytest.mark.parametrize("uri", ["file:///a", "urn:isbn:1", "x-y+z.1:anything", "test://a b"])
def test_anything_with_a_scheme_is_a_uri(uri: str) -> None:
    assert load_resources([{**RESOURCE, "uri": uri}])


def test_a_wrong_template_is_refused_with_its_field() -> None:
    assert error_of(load_templates, [{**TEMPLATE, "uriTemplate": "a://{b"}]) == (
        'resource template 1 ("a://{b"): uriTemplate: "a://{b" has a { without a }'
    )
    assert "uriTemplate: is missing" in error_of(load_templates, [{"name": "x"}])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "arguments: must be a list, not object"),
        ([{}], "arguments[0].name: is missing"),
        ([{"name": ""}], "arguments[0].name: must not be empty"),
        ([{"name": "a", "required": "yes"}], "arguments[0].required: must be true or false, not"),
        ([{"name": "a", "description": 1}], "arguments[0].description: must be a string"),
        ([{"name": "a"}, {"name": "a"}], 'arguments[1].name: "a" is listed twice'),
    ],
)
def test_wrong_arguments_of_a_prompt_are_refused(arguments: Any, message: str) -> None:
    assert message in error_of(load_prompts, [{**PROMPT, "arguments": arguments}])


def test_a_pattern_that_is_no_regular_expression_is_refused_when_loaded() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}
    with pytest.raises(DefinitionError, match=r"inputSchema\.properties\.a\.pattern"):
        load_tools([{"name": "x", "inputSchema": schema}])


def test_a_name_can_be_used_once() -> None:
    assert error_of(load_tools, [TOOL, tool(name="other"), TOOL]) == (
        'tool 3 ("get_weather"): name: "get_weather" is already tool 1'
    )
    assert 'uri: "file:///notes.txt" is already resource 1' in error_of(
        load_resources, [RESOURCE, {**RESOURCE, "name": "again"}]
    )


def test_resources_may_share_a_name() -> None:
    assert len(load_resources([RESOURCE, {**RESOURCE, "uri": "file:///other"}])) == 2


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "uri", "uriTemplate", "inputSchema", "type", "properties", "icons"]
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@given(st.lists(anything, max_size=3) | anything)
def test_whatever_comes_is_loaded_or_refused_with_one_error(source: Any) -> None:
    encoded = msgspec.json.encode(source)
    for load in (load_tools, load_resources, load_templates, load_prompts):
        try:
            assert load(encoded) == msgspec.json.decode(encoded)
        except DefinitionError as error:
            assert error.reason  # noqa: PT017  (either outcome is fine)
