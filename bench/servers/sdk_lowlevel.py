"""The Python SDK at its fastest: its low-level server, every result made once."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

_DEFINED = json.loads(Path(sys.argv[1]).read_bytes())
_LIST = types.ListToolsResult.model_validate(_DEFINED)
_SCHEMAS = {tool.name: tool.input_schema for tool in _LIST.tools}


async def _list_tools(context: Any, params: Any) -> types.ListToolsResult:
    return _LIST


async def _call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    text = (params.arguments or {})["text"]
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


async def _over_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def _over_http(server: Server[Any], port: int) -> None:
    import uvicorn

    app = server.streamable_http_app(json_response=True, stateless_http=True)
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


# With `get_tool_input_schema` a call need not run the list handler to check its headers.
_server: Server[Any] = Server(
    "bench",
    version="1.0.0",
    on_list_tools=_list_tools,
    on_call_tool=_call_tool,
    get_tool_input_schema=_SCHEMAS.get,
)
if len(sys.argv) > 2:
    _over_http(_server, int(sys.argv[2]))
else:
    anyio.run(_over_stdio, _server)
