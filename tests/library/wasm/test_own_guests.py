"""Components built against Portico's own WIT, in JavaScript and Python."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.library.wasm import building
from tests.library.wasm.instances import component, engine, entered

OWN = building.WIT / "own"


def call(source: Path, interface: str, function: str, *args: str) -> Any:
    return entered(source).call(f"portico:mcp/{interface}-capability@0.1.0", function, *args)


def javascript() -> Path:
    return building.javascript("own.js", OWN, "everything")


def test_a_javascript_component_of_our_wit_imports_nothing() -> None:
    assert list(component(javascript()).type.imports(engine())) == []


def test_a_javascript_component_answers_in_all_our_interfaces() -> None:
    source = javascript()
    added = call(source, "tools", "call-tool", "add", '{"a": 1, "b": 2}')
    assert json.loads(added["ok"])["structuredContent"] == {"sum": 3}
    assert call(source, "tools", "call-tool", "fail", "{}") == {"err": "it failed"}
    assert call(source, "tools", "call-tool", "nobody", "{}") == {"ok": "null"}
    read = call(source, "resources", "read-resource", "note://1")
    assert json.loads(read["ok"])["contents"][0]["text"] == "hello"
    prompt = call(source, "prompts", "get-prompt", "greet", '{"who": "Ada"}')
    assert json.loads(prompt["ok"])["messages"][0]["content"]["text"] == "Hello Ada"
    completed = call(source, "completions", "complete", '{"argument": {"value": "A"}}')
    assert json.loads(completed["ok"]) == {"completion": {"values": ["Ada"]}}


@pytest.mark.slow
def test_a_python_component_answers_in_all_our_interfaces() -> None:
    source = building.python("own.py", OWN, "everything")
    turned = call(source, "tools", "call-tool", "reverse", '{"text": "hello"}')
    assert json.loads(turned["ok"])["content"][0]["text"] == "olleh"
    assert call(source, "tools", "call-tool", "reverse", "{}") == {"err": "text is missing"}
    read = call(source, "resources", "read-resource", "note://1")
    assert json.loads(read["ok"])["contents"][0]["text"] == "hello"
    prompt = call(source, "prompts", "get-prompt", "greet", '{"who": "Ada"}')
    assert json.loads(prompt["ok"])["messages"][0]["content"]["text"] == "Hello Ada"
    completed = call(source, "completions", "complete", "{}")
    assert json.loads(completed["ok"]) == {"completion": {"values": ["Ada"]}}


def test_a_component_can_be_built_that_uses_every_function_of_the_host() -> None:
    source = building.javascript("asking_portico.js", OWN, "asking")
    imported = set(component(source).type.imports(engine()))
    names = ("call", "config", "secrets", "http")
    assert imported == {f"portico:mcp/{name}@0.1.0" for name in names}
