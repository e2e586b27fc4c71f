"""The everything server on the SDK, used directly: a proxy in front must match this."""

from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.rigs.conformance import count, run_suite
from tests.rigs.running import everything, listening
from tests.support.running import WAIT_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("era", "requirements", "least"),
    [
        ("both", "2025-11-25", 84),
        ("both", "2026-07-28", 152),
        ("legacy", "2025-11-25", 84),
        ("modern", "2026-07-28", 152),
    ],
)
def test_the_official_suite_passes(era: str, requirements: str, least: int, tmp_path: Path) -> None:
    with listening(everything("--http", "0", "--era", era)) as url:
        table = run_suite(url, requirements, tmp_path)
    assert [check for check, status in table.items() if status == "FAILURE"] == []
    assert count(table, "SUCCESS") >= least


ASKING = {
    "test_input_required_result_elicitation": "Hello, Ada!",
    "test_input_required_result_sampling": "Model said: 42",
    "test_input_required_result_list_roots": "Client exposed 1 root(s).",
    "test_input_required_result_request_state": "state-ok: kept",
    "test_input_required_result_multiple_inputs": "All inputs received.",
    "test_input_required_result_multi_round": "Ada likes blue.",
    "test_input_required_result_tampered_state": "state-ok",
    "test_input_required_result_capabilities": "Asked: sample, ask",
    "test_streaming_elicitation": "Hello, Ada!",
}


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_what_asks_ends_in_the_same_result_in_both_eras(era: str, transport: str) -> None:
    with anyio.fail_after(WAIT_S):
        if transport == "stdio":
            command, *args = everything("--stdio", "--era", era)
            opened = stdio_client(StdioServerParameters(command=command, args=args))
            assert await answers(opened, era) == ASKING
        else:
            with listening(everything("--http", "0", "--era", era)) as url:
                assert await answers(streamable_http_client(url), era) == ASKING


async def answers(opened: Any, era: str) -> dict[str, str]:
    """The final result of each tool with questions, for a client that detects the era."""
    async with Client(
        opened,
        mode="auto",
        elicitation_callback=elicited,
        sampling_callback=sampled,
        list_roots_callback=rooted,
    ) as client:
        assert client.protocol_version == {"legacy": "2025-11-25", "modern": "2026-07-28"}[era]
        prompt = await client.get_prompt("test_input_required_result_prompt")
        assert "Use the following context: tests" in str(prompt.messages[0].content)
        return {tool: await said(client, tool) for tool in ASKING}


async def said(client: Client, tool: str) -> str:
    (block,) = (await client.call_tool(tool)).content
    assert isinstance(block, types.TextContent)
    return block.text


async def elicited(
    context: ClientRequestContext, params: types.ElicitRequestParams
) -> types.ElicitResult:
    assert isinstance(params, types.ElicitRequestFormParams)
    filled: dict[str, str | int] = {"name": "Ada", "color": "blue", "ok": True, "context": "tests"}
    wanted = params.requested_schema["properties"]
    return types.ElicitResult(action="accept", content={key: filled[key] for key in wanted})


async def sampled(
    context: ClientRequestContext, params: types.CreateMessageRequestParams
) -> types.CreateMessageResult:
    text = types.TextContent(type="text", text="42")
    return types.CreateMessageResult(role="assistant", content=text, model="tiny")


async def rooted(context: ClientRequestContext) -> types.ListRootsResult:
    return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///work"}]})
