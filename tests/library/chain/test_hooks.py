"""Links made of hooks: what they see is what the tool gets, however it was written."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico import (
    Answer,
    Context,
    McpError,
    NextCall,
    Request,
    Response,
    Server,
    ToolError,
    ToolRequest,
    Version,
    hooks,
)

ERAS = [Version.V2025_11_25, Version.V2026_07_28]
each_era = pytest.mark.parametrize("version", ERAS, ids=["legacy", "modern"])


def echo() -> Server:
    """A server that returns the arguments of its only tool, as it reads them."""
    server = Server("echo")
    schema = {"type": "object"}
    server.add_tool({"name": "echo", "inputSchema": schema}, json.dumps)
    server.add_tool({"name": "fail", "inputSchema": schema}, _fail)
    return server


def _fail(_: dict[str, Any]) -> str:
    raise McpError("no", code=-31000, data={"why": "secret"})


def call(arguments: bytes, version: Version = ERAS[0], name: str = "echo") -> Request:
    params = b'{"name":"%b","arguments":%b}' % (name.encode(), arguments)
    return Request(method="tools/call", id=b"1", name=name, params=params, version=version)


async def answered(link: Any, request: Request, context: Context | None = None) -> dict[str, Any]:
    answer = await echo().endpoint([link]).handle(request, context or Context())
    return answer.decode()


def text_of(answer: dict[str, Any]) -> str:
    text: str = answer["result"]["content"][0]["text"]
    return text


def guard(call: ToolRequest, next: NextCall) -> Answer:
    if "PRIVATE KEY" in str(call.arguments):
        raise ToolError("private keys stay on this machine")
    return next(call)


@each_era
@pytest.mark.parametrize(
    "arguments",
    [
        rb'{"city":"PRIVATE KEY"}',
        rb'{"city":"PRIVATE\u0020KEY"}',
        rb'{"city":"\u0050RIVATE KEY"}',
        rb'{ "c\u0069ty" : "x" , "deep" : [ { "PRIVATE KEY" : 1 } ] }',
        rb'{"city":"Oslo","city":"PRIVATE KEY"}',
    ],
)
async def test_a_guard_sees_a_text_however_it_is_written(
    arguments: bytes, version: Version
) -> None:
    answer = await answered(hooks(on_call=guard), call(arguments, version))
    assert answer["result"]["isError"] is True
    assert text_of(answer) == "private keys stay on this machine"
    assert ("resultType" in answer["result"]) == version.modern


async def test_of_two_equal_keys_the_tool_gets_the_one_that_the_hook_saw() -> None:
    seen: list[bytes] = []

    def record(next: Any) -> Any:
        def handle(request: Request, context: Context) -> Any:
            seen.append(request.params)
            return next(request, context)

        return handle

    request = call(b'{"city":"PRIVATE KEY","city":"Oslo","n":1e2,"in":{"a":1,"a":2}}')
    await echo().endpoint([hooks(on_call=guard), record]).handle(request, Context())
    assert seen == [b'{"name":"echo","arguments":{"city":"Oslo","n":100.0,"in":{"a":2}}}']


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_a_hook_that_changes_nothing_changes_no_value(arguments: dict[str, Any]) -> None:
    link = hooks(on_call=lambda call, next: next(call))
    answer = asyncio.run(answered(link, call(json.dumps(arguments).encode())))
    assert json.loads(text_of(answer)) == arguments


@each_era
async def test_a_hook_changes_name_and_arguments(version: Version) -> None:
    def renamed(call: ToolRequest, next: NextCall) -> Answer:
        call.name = "echo"
        call.arguments["more"] = [1]
        return next(call)

    answer = await answered(hooks(on_call=renamed), call(b'{"a":1}', version, "other"))
    assert json.loads(text_of(answer)) == {"a": 1, "more": [1]}


@each_era
async def test_results_and_errors_reach_their_hooks(version: Version) -> None:
    def shout(_: ToolRequest, result: dict[str, Any]) -> dict[str, Any]:
        result["content"][0]["text"] = result["content"][0]["text"].upper()
        return result

    def hide(_: ToolRequest, error: dict[str, Any]) -> dict[str, Any]:
        return {"code": -31001, "message": f"hidden: {error['message']}"}

    link = hooks(on_result=shout, on_error=hide)
    assert text_of(await answered(link, call(b'{"a":"b"}', version))) == '{"A": "B"}'
    answer = await echo().endpoint([link]).handle(call(b"{}", version, "fail"), Context())
    assert answer.code == -31001
    assert answer.decode()["error"] == {"code": -31001, "message": "hidden: no"}


async def test_hooks_that_wait_see_the_same() -> None:
    async def on_call(call: ToolRequest, next: NextCall) -> Response:
        if "no" in call.arguments:
            raise ToolError("refused")
        return await next(call)

    async def on_result(_: ToolRequest, result: dict[str, Any]) -> dict[str, Any] | None:
        return {**result, "_meta": {"seen": True}} if not result.get("isError") else None

    link = hooks(on_call=on_call, on_result=on_result)
    assert (await answered(link, call(b'{"a":1}')))["result"]["_meta"] == {"seen": True}
    refused = await answered(link, call(b'{"no":1}'))
    assert text_of(refused) == "refused"


async def test_a_result_that_stays_the_same_keeps_its_bytes() -> None:
    raw = b'{"content" : [ ],"n":1.50}'

    def server(_: Any) -> Any:
        return lambda request, context: Response(id=request.id, result=raw)

    for same in (lambda call, result: None, lambda call, result: result):
        endpoint = echo().endpoint([hooks(on_result=same), server])
        assert (await endpoint.handle(call(b"{}"), Context())).result == raw


@pytest.mark.parametrize("arguments", [b"[1]", b'"x"', b"5", b'{"a":1e400}'])
async def test_arguments_that_cannot_be_read_are_refused(arguments: bytes) -> None:
    answer = await answered(hooks(on_call=guard), call(arguments))
    assert answer["error"]["code"] == -32602


async def test_other_requests_pass_by() -> None:
    def fail(call: ToolRequest, next: NextCall) -> Answer:
        raise AssertionError

    request = Request(method="tools/list", id=b"1", version=ERAS[1])
    answer = await echo().endpoint([hooks(on_call=fail)]).handle(request, Context())
    assert [tool["name"] for tool in answer.decode()["result"]["tools"]] == ["echo", "fail"]


async def test_a_wrong_header_is_still_refused_behind_a_hook() -> None:
    server = Server("headers")
    city = {"type": "string", "x-mcp-header": "City"}
    schema = {"type": "object", "properties": {"city": city}}
    server.add_tool({"name": "echo", "inputSchema": schema}, lambda arguments: "ran")
    endpoint = server.endpoint([hooks(on_call=guard)])
    context = Context(headers={"mcp-param-city": "Rome"})
    answer = await endpoint.handle(call(b'{"city":"Oslo"}', ERAS[1]), context)
    assert "error" in answer.decode()
