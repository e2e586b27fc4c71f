"""Components that answer with anything, and types that are made to be costly."""

import json
from pathlib import Path
from typing import Any

import pytest

from portico.core.model.errors import INTERNAL_ERROR, McpError, TargetError
from tests.library.wasm.hosting import hosted, said
from tests.library.wasm.wat_guests import saying, written

MB = 1024 * 1024


def tools(*names: str, **more: Any) -> bytes:
    schema = {"type": "object"}
    listed = [{"name": name, "inputSchema": schema, **more} for name in names]
    return json.dumps({"tools": listed}).encode()


def nested_tuples(levels: int) -> str:
    """Return a component with a function whose type has two to the power of `levels` parts."""
    types = ["(type $t0 (tuple u8 u8))"]
    types += [f"(type $t{n} (tuple $t{n - 1} $t{n - 1}))" for n in range(1, levels)]
    return f"""
(component
  {" ".join(types)}
  (core module $m
    (memory (export "memory") 1)
    (func (export "f") (param i32 i32))
    (func (export "g") (param i32) (result i32) (local.get 0))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 8)))
  (core instance $i (instantiate $m))
  (func (export "costly") (param "x" (list $t{levels - 1}))
    (canon lift (core func $i "f") (memory (core memory $i "memory"))
      (realloc (core func $i "realloc"))))
  (func (export "cheap") (param "x" u32) (result u32) (canon lift (core func $i "g"))))
"""


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        (b"\xff\xfe{}", "invalid utf-8"),
        (b'{"tools": [' + b"[" * 5000 + b"]" * 5000 + b"]}", "not a JSON object or null"),
        (b"[" * 100_000, "not a JSON object or null"),
        (b"[]", "not a JSON object or null"),
        (tools("big", description="x" * 5 * MB), "more than the limit of 4 MB"),
    ],
)
async def test_a_list_that_cannot_be_used_is_refused_in_words(
    tmp_path: Path, listed: bytes, why: str
) -> None:
    with pytest.raises(TargetError) as caught:
        async with hosted(written(saying(listed, b"null"), tmp_path), tmp_path) as client:
            await client.list_tools()
    assert why in str(caught.value)
    assert "Traceback" not in str(caught.value)


async def test_entries_of_a_list_that_are_not_valid_are_left_out(tmp_path: Path) -> None:
    entries = [1, None, {}, {"name": 5}, {"name": "a"}, {"name": "", "inputSchema": {}}]
    listed = [*entries, *json.loads(tools("ok", "ok"))["tools"]]
    source = saying(json.dumps({"tools": listed, "nextCursor": "again"}).encode(), b"null")
    async with hosted(written(source, tmp_path), tmp_path) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["ok"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b'{"_meta": 3}', "its result has a _meta that is not an object"),
        (b'"text"', "not a JSON object or null"),
        (b"", "not a JSON object or null"),
    ],
)
async def test_a_result_that_is_not_one_is_an_error_in_words(
    tmp_path: Path, answer: bytes, why: str
) -> None:
    source = written(saying(tools("t"), answer), tmp_path)
    async with hosted(source, tmp_path) as client:
        with pytest.raises(McpError, match=why):
            await client.call_tool("t")


async def test_an_error_is_limited_as_an_answer_is(tmp_path: Path) -> None:
    large = {"message": "no", "data": "x" * 5 * MB}
    source = written(saying(tools("t"), json.dumps(large).encode(), fails=True), tmp_path)
    async with hosted(source, tmp_path) as client:
        assert "more than the limit of 4 MB" in await said(client, "t")


async def test_a_code_that_no_client_can_read_is_replaced(tmp_path: Path) -> None:
    error = {"message": "no", "code": 10**20}
    source = written(saying(tools("t"), json.dumps(error).encode(), fails=True), tmp_path)
    async with hosted(source, tmp_path) as client:
        with pytest.raises(McpError, match="no") as caught:
            await client.call_tool("t")
        assert caught.value.code == INTERNAL_ERROR


async def test_a_function_of_a_huge_type_is_left_out(tmp_path: Path) -> None:
    async with hosted(written(nested_tuples(18), tmp_path), tmp_path) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["cheap"]
        assert await said(client, "cheap", x=5) == "5"
