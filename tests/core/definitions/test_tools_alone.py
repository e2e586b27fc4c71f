"""Definitions as data, without a server."""

from pathlib import Path

import pytest

from portico import DefinitionError, load_prompts, load_resources, load_templates, load_tools

TOOLS = b"""[{"name": "add", "inputSchema": {"type": "object", "required": ["a"],
    "properties": {"a": {"type": "integer"}}}}]"""


def test_a_tool_checks_arguments_as_a_call_would() -> None:
    (add,) = load_tools(TOOLS)
    assert add.name == "add"
    assert add.validate({"a": 1}) == []
    assert [str(one) for one in add.validate({"a": "x"})] == ['a: expected integer, got string "x"']
    assert [str(one) for one in add.validate({})] == ["a: missing (required)"]


def test_all_kinds_are_loaded_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    file.write_text(
        '{"tools": [{"name": "add", "inputSchema": {"type": "object"}}],'
        '"resources": [{"uri": "a://b", "name": "b"}],'
        '"resourceTemplates": [{"uriTemplate": "a://{c}", "name": "c"}],'
        '"prompts": [{"name": "p"}]}'
    )
    assert [one.name for one in load_tools(file)] == ["add"]
    assert [one.uri for one in load_resources(file)] == ["a://b"]
    assert [one.uri for one in load_templates(file)] == ["a://{c}"]
    assert [one.name for one in load_prompts(file)] == ["p"]


def test_a_wrong_definition_is_named() -> None:
    with pytest.raises(DefinitionError, match=r'tool 1 \("x"\): inputSchema'):
        load_tools([{"name": "x", "inputSchema": {"type": "strin"}}])
