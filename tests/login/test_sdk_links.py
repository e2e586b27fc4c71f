"""The official SDK's client shows the link of a login by itself, and its call goes on."""

import asyncio
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.login.people import NO_KEYRING, Person
from tests.login.test_links_in_calls import OPEN
from tests.rigs.issuer import IssuerRig
from tests.serve.gateway import serve_command
from tests.support.browser import log_in
from tests.support.running import WAIT_S

pytestmark = pytest.mark.slow


async def test_the_sdk_shows_the_link_and_sends_its_call_again(tmp_path: Path) -> None:
    person = Person(tmp_path)
    shown: list[str] = []

    async def visit(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestURLParams)
        shown.append(params.message)
        await asyncio.to_thread(log_in, params.url, "ann", True)
        return types.ElicitResult(action="accept")

    with IssuerRig() as rig:
        rig.lets_in = OPEN
        config = person.config(f"mine {rig.url}", gateway='expose = "search"')
        command, *args = serve_command(person.home, config)
        server = StdioServerParameters(command=command, args=args, env=NO_KEYRING)
        call = {"name": "mine__whoami", "arguments": {}}
        with anyio.fail_after(2 * WAIT_S):
            async with Client(stdio_client(server), elicitation_callback=visit) as client:
                result = await client.call_tool("execute_tool", call)
                assert isinstance(result, types.CallToolResult)
                assert [getattr(one, "text", "") for one in result.content] == ["you are ann"]
    assert len(shown) == 1
    assert "mine requires a login" in shown[0]
