"""Tools with a page in search mode: listed with short definitions, in a bounded room."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.tokens import LIMIT, TOKENIZER, count
from portico.core.model.offer import Listed
from portico.core.protocol.codec import encode
from portico.gateway.endpoints.short_tools import MAX_BYTES, shortened_tools
from tests.gateway.observed import Window, prepared
from tests.support.node import node
from tests.support.shared import unavailable

_SERVER = '''
from portico import Server

server = Server("apps")

for number in range({count}):

    def show(region: str, days: int = 7) -> str:
        """Show the sales of a region. {filler}"""
        return f"{{region}} {{days}}"

    uri = f"ui://apps/page-{{number}}.html"
    server.tool(show, name=f"show-{{number}}", meta={{"ui": {{"resourceUri": uri}}}})
'''


def listed(*definitions: dict[str, Any]) -> Listed:
    items = tuple(json.dumps(one).encode() for one in definitions)
    return Listed(items=items, keys=tuple(one["name"] for one in definitions))


def tool(name: str, **more: Any) -> dict[str, Any]:
    page = {"ui": {"resourceUri": f"ui://apps/{name}.html"}, "other": "x" * 500}
    return {"name": name, "inputSchema": {"type": "object"}, "_meta": page, **more}


def shown(*definitions: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(raw) for raw in shortened_tools(listed(*definitions)).items]


def test_a_short_definition_has_the_page_the_first_sentence_and_the_arguments() -> None:
    region = {"type": "string", "description": "x" * 900, "x-mcp-header": "Region"}
    nested = {"type": "object", "properties": {"a": {"type": "string"}}}
    unit = {"enum": ["day", "week"], "title": "Unit"}
    schema = {
        "type": "object",
        "properties": {"region": region, "nested": nested, "unit": unit, "any": True},
        "required": ["region"],
    }
    (found,) = shown(
        tool("a", description="Show sales.\nMore " * 99, inputSchema=schema, outputSchema=nested)
    )
    assert found == {
        "name": "a",
        "_meta": {"ui": {"resourceUri": "ui://apps/a.html"}},
        "description": "Show sales",
        "inputSchema": {
            "type": "object",
            "properties": {
                "region": {"type": "string", "x-mcp-header": "Region"},
                "nested": {"type": "object"},
                "unit": {"enum": ["day", "week"]},
                "any": {},
            },
            "required": ["region"],
        },
    }


def test_many_become_bare_and_very_many_are_left_to_the_search() -> None:
    few = shown(*(tool(f"t{n}", description="Show it") for n in range(3)))
    more = shown(*(tool(f"t{n}", description="y" * 100) for n in range(20)))
    most = shown(*(tool(f"t{n}", description="y" * 100) for n in range(50)))
    assert all("description" in one for one in few)
    assert len(more) == 20
    assert not any("description" in one for one in more)
    assert 20 < len(most) < 50
    for found in (few, more, most):
        assert sum(len(json.dumps(one, separators=(",", ":"))) for one in found) <= MAX_BYTES


def test_the_longest_short_definitions_are_a_thousand_tokens() -> None:
    node()
    if not TOKENIZER.exists():
        unavailable("gpt-tokenizer is not installed: `make setup` does that")
    many = {f"参数{number}": {"type": "string"} for number in range(9)}
    schema = {"type": "object", "properties": many}
    story = "显示一个地区的销售情况🙂" * 20
    most = [
        shown(*(tool(f"工具-{n}-✓", description=story) for n in range(60))),
        shown(*(tool(f"9f8e7d6c-{n * 7919:x}") for n in range(60))),
        shown(*(tool(f"工{n}", description=story) for n in range(9))),
        shown(*(tool(f"t{n}", description=story, inputSchema=schema) for n in range(6))),
    ]
    counted = count([encode(one).decode() for one in most])
    assert 500 < max(counted) <= LIMIT


@pytest.mark.parametrize(
    "broken",
    [
        {"name": "a", "inputSchema": [], "_meta": []},
        {"name": "a", "description": 7, "inputSchema": {"properties": [], "required": 3}},
        {"name": "a", "inputSchema": {"properties": {"x": 7}}, "annotations": "x"},
    ],
)
def test_a_broken_definition_breaks_nothing(broken: dict[str, Any]) -> None:
    (found,) = shown(broken)
    assert found["name"] == "a"
    assert found["inputSchema"]["type"] == "object"


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 8, 45])
def test_a_real_gateway_lists_them_within_a_thousand_tokens(tmp_path: Path, count: int) -> None:
    code = _SERVER.format(count=count, filler="It is a long story. " * 60)
    (tmp_path / "apps.py").write_text(code)
    path = json.dumps(str(tmp_path / "apps.py"))
    prepared(tmp_path, f"[components.apps]\npath = {path}\n[gateway]\nexpose = 'search'\n")
    with Window(tmp_path) as window:
        window.ready()
        tools = window.ask("tools/list", {})["result"]["tools"]
        apps = [one for one in tools if one["name"].startswith("apps__")]
        own = [one for one in tools if one not in apps]
        first = apps[0]["name"]
        answer = window.call(first, region="north", days=3)
        described = window.call("describe_tool", name=first)
    assert len(json.dumps(apps, separators=(",", ":"))) <= MAX_BYTES + 100
    assert len(json.dumps(own, separators=(",", ":"))) <= 4 * 1000
    assert len(apps) == min(count, len(apps)) > 0
    assert apps[0]["_meta"]["ui"]["resourceUri"] == "ui://apps/page-0.html"
    assert answer["content"][0]["text"] == "north 3"
    whole = described["structuredContent"]["tools"][0]["definition"]
    assert len(whole["description"]) > 1000
