"""Middleware that answers with anything, calls `next` with anything, and asks without a grant."""

from pathlib import Path
from typing import Any

import pytest

from portico import Context, McpError, MemoryClient
from portico.core.model.context import Ask
from tests.library.wasm import building, hosting
from tests.library.wasm.hosting import said
from tests.library.wasm.test_middleware import client_behind, shop, text
from tests.library.wasm.wat_guests import saying, written

every_era = pytest.mark.parametrize("era", ["modern", "legacy"])
QUESTION = '{"a":{"method":"elicitation/create","params":{"message":"Your password?"}}}'
ASKING = f'"result":{{"resultType":"input_required","inputRequests":{QUESTION}}}'


def guest() -> Path:
    return building.javascript("scripted.js", building.WIT / "own", "middleware")


async def run(client: MemoryClient, code: str) -> str:
    return await text(client, "run", code=code)


BAD_ANSWERS = {
    "return 'not JSON'": "answered with text that is not a JSON object",
    "return says('a') + says('b')": "answered with text that is not a JSON object",
    "return says('a') + '\\n' + says('b')": "answered with text that is not a JSON object",
    "return `[${says('a')},${says('b')}]`": "answered with text that is not a JSON object",
    "return text": "with neither a result nor an error",
    'return \'{"jsonrpc":"2.0","result":{}}\'': "with text that is not a response",
    'return `{"id":${id}.5,"result":{}}`': "under another id than the request has",
    "return responds('\"result\":null')": "with neither a result nor an error",
    'return responds(\'"error":"no"\')': "without a code or a message that can be read",
    'return responds(\'"error":{"code":1e30,"message":""}\')': "without a code or a message",
    "return `{\"id\":${'['.repeat(500)}${']'.repeat(500)}}`": "nested deeper than",
    "return 42": "failed: ",
    "for (;;);": "took longer than 5 s",
    "return says('x'.repeat(17 * 1024 * 1024))": "is the limit of sandboxed middleware",
}
BAD_REQUESTS = {
    "return says(next('nope'))": "text that is not JSON",
    "return says(next('[]'))": "text that is not a request",
    'return says(next(\'{"method":"tools/list"}\'))': "text that is not a request",
    'return says(next(\'{"id":1,"method":5}\'))': "text that is not a request",
    'return says(next(\'{"id":1,"method":"tools/call","params":[]}\'))': "Expected `object`",
    "return calls('run', {})": "unknown tool: run",
    "return says(calls('echo', { text: 'x'.repeat(17 * 1024 * 1024) }))": "is the limit of",
    **{
        f'return says(next(\'{{"id":1,"method":"{method}"}}\'))': "middleware does not handle"
        for method in ("initialize", "ping", "logging/setLevel", "subscriptions/listen")
    },
}
BAD_NOTICES = {
    "sendProgress(NaN, undefined, undefined)": "must be finite numbers",
    "sendProgress(1, Infinity, undefined)": "must be finite numbers",
    "sendLog('shout', '1', undefined)": "is not a log level",
}


async def outcome(client: MemoryClient, code: str) -> str:
    try:
        return await run(client, code)
    except McpError as error:
        return str(error)


async def test_whatever_it_answers_or_passes_on_fails_its_request_and_no_other(
    tmp_path: Path,
) -> None:
    server, _ = shop()
    async with client_behind(server, tmp_path, path=guest(), time_s=5.0) as client:
        for code, why in (BAD_ANSWERS | BAD_REQUESTS | BAD_NOTICES).items():
            assert why in await outcome(client, code), code
            assert await text(client, "echo", text="hi") == "hi"


@every_era
async def test_what_it_replaces_in_a_list_is_replaced(era: Any, tmp_path: Path) -> None:
    server, calls = shop()
    async with client_behind(server, tmp_path, era, guest()) as client:
        tools = {tool.name: tool.description for tool in await client.list_tools()}
        assert tools["echo"] == "Another echo."
        assert list(tools) == ["echo", "secret", "slow", "run"]
        assert await run(client, "return calls('echo', { text: 'behind' })") == "behind"
    assert calls == ["behind"]


@every_era
async def test_its_answers_ask_nobody(era: Any, tmp_path: Path) -> None:
    server, _ = shop()
    asked: list[Any] = []

    async def surely(context: Context) -> str:
        """Ask the person."""
        ask = Ask("elicitation/create", FORM, "elicitation", "form")
        return str((await context.ask({"sure": ask}))["sure"]["action"])

    server.tool(surely)
    behind = client_behind(server, tmp_path, era, guest(), elicit_by=asked.append)
    async with behind as client:
        for answer, why in {
            ASKING: "of the type 'input_required' that next did not return",
            '"result":{"resultType":"task","taskId":"1"}': "of the type 'task' that next did not",
            '"result":{"resultType":5}': "that next did not return",
            '"error":{"code":-32042,"message":"","data":{"elicitations":[]}}': "code -32042 that",
        }.items():
            assert why in await outcome(client, f"return responds({answer!r})")
        assert asked == []
        # A question of a tool behind it may be written anew.
        code = "return JSON.stringify(JSON.parse(calls('surely', {})), null, 1)"
        assert await run(client, code) == "decline"
        assert [question["message"] for question in asked] == ["Sure?"]


FORM: dict[str, Any] = {
    "message": "Sure?",
    "requestedSchema": {"type": "object", "properties": {}},
}


async def test_a_tool_in_the_sandbox_asks_nobody_by_its_results(tmp_path: Path) -> None:
    listed = b'{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}'
    asking = f"{{{ASKING}}}".removeprefix('{"result":').removesuffix("}").encode()
    async with hosting.hosted(written(saying(listed, asking), tmp_path), tmp_path) as client:
        why = "guest returned a result of the type 'input_required'; it may ask only with elicit"
        assert (await said(client, "t")).startswith(f"failed: {why}")


async def test_a_tool_in_the_sandbox_asks_nobody_by_its_errors(tmp_path: Path) -> None:
    listed = b'{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}'
    error = b'{"code":-32042,"message":"no","data":{"elicitations":[]}}'
    file = written(saying(listed, error, fails=True), tmp_path)
    async with hosting.hosted(file, tmp_path) as client:
        with pytest.raises(McpError, match="no") as refusal:
            await client.call_tool("t")
        assert refusal.value.code == -32603
