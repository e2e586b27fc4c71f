"""A worker hosts components of wasmcp's interfaces, and refuses versions that it does not know."""

from pathlib import Path

import pytest

from portico.core.model.errors import McpError, TargetError
from tests.library.wasm import building
from tests.library.wasm.hosting import hosted, said
from tests.library.wasm.wat_guests import written


def built() -> Path:
    return building.javascript("wasmcp.js", building.WIT / "v20251125", "everything")


async def test_a_wasmcp_component_answers_through_a_worker(tmp_path: Path) -> None:
    async with hosted(built(), tmp_path) as client:
        # Both pages of its list.
        assert [one["name"] for one in await client.list_tools()] == ["add", "media", "wrong"]
        added = await client.call_tool("add", {"a": 2, "b": 3})
        assert added["structuredContent"] == {"sum": 5}
        read = await client.request("resources/read", {"uri": "note://1"})
        assert [one["text"] for one in read["contents"]] == ["hello"]
        filled = await client.request("prompts/get", {"name": "greet", "arguments": {"who": "Ada"}})
        assert filled["messages"][0]["content"] == {"type": "text", "text": "Hello Ada"}
        asked = {
            "ref": {"type": "ref/prompt", "name": "greet"},
            "argument": {"name": "who", "value": "A"},
        }
        completed = await client.request("completion/complete", asked)
        assert completed["completion"]["values"][0] == "who:A"


async def test_errors_of_a_wasmcp_component_arrive_as_errors(tmp_path: Path) -> None:
    async with hosted(built(), tmp_path) as client:
        assert await said(client, "wrong") == "failed: it failed"
        with pytest.raises(McpError, match="unknown tool: nobody"):
            await client.call_tool("nobody")
        with pytest.raises(McpError, match="unknown resource: note://9"):
            await client.request("resources/read", {"uri": "note://9"})
        with pytest.raises(McpError, match="unknown prompt: nobody"):
            await client.request("prompts/get", {"name": "nobody"})
        assert await said(client, "wrong") == "failed: it failed"


UNKNOWN = """
(component
  (core module $m (func (export "f") (result i32) (i32.const 1)))
  (core instance $i (instantiate $m))
  (func $f (result u32) (canon lift (core func $i "f")))
  (instance $tools (export "list-tools" (func $f)) (export "call-tool" (func $f)))
  (export "EXPORT" (instance $tools)))
"""


@pytest.mark.parametrize(
    ("export", "known"),
    [
        ("portico:mcp/tools-capability@0.9.0", "portico:mcp@0.1.0"),
        ("portico:mcp/tools-capability", "portico:mcp@0.1.0"),
        ("wasmcp:mcp-v20251125/tools@0.2.0", "wasmcp:mcp-v20251125@0.1.1"),
    ],
)
async def test_an_unknown_version_is_refused_with_both_versions(
    tmp_path: Path, export: str, known: str
) -> None:
    source = written(UNKNOWN.replace("EXPORT", export), tmp_path)
    with pytest.raises(TargetError) as caught:
        async with hosted(source, tmp_path) as client:
            await client.list_tools()
    assert f"exports {export}, but Portico knows {known}" in str(caught.value)
