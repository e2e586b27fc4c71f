"""The tokens by client: which parts of a request a model reads."""

import json

from bench.clients import lookup, read_by_model


def test_deferred_definitions_are_not_read() -> None:
    tools = [
        {"name": "own"},
        {"name": "later", "defer_loading": True},
        {"type": "namespace", "name": "some", "tools": [{"name": "x", "defer_loading": True}]},
        {"functionDeclarations": [{"name": "whole"}]},
    ]
    read = json.loads(read_by_model({"model": "m", "tools": tools, "messages": ["hi"]}))
    assert read["messages"] == ["hi"]
    assert [tool.get("name") for tool in read["tools"]] == ["own", "some", None]
    assert read["tools"][1]["tools"] == []
    assert json.loads(read_by_model({"model": "m"}))["tools"] == []


def test_the_lookup_is_measured() -> None:
    assert lookup().measured.endswith("x")
