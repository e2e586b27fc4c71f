"""The Python SDK as its documentation has it: `MCPServer`, with the tools' definitions given.

Over HTTP it has sessions and answers with event streams unless started in its fast mode.
"""

import json
import sys
from pathlib import Path

import mcp_types as types
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.tools.base import Tool


async def echo(text: str) -> types.CallToolResult:
    """Answer with the text that was sent."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


_ECHO = Tool.from_function(echo)
_TOOLS = [
    _ECHO.model_copy(
        update={
            "name": tool.name,
            "title": tool.title,
            "description": tool.description,
            "parameters": tool.input_schema,
            "annotations": tool.annotations,
        }
    )
    for tool in map(types.Tool.model_validate, json.loads(Path(sys.argv[1]).read_bytes())["tools"])
]

_server = MCPServer("bench", version="1.0.0", tools=_TOOLS, log_level="WARNING")
match sys.argv[2:]:
    case [port, "fastest"]:
        _server.run("streamable-http", port=int(port), json_response=True, stateless_http=True)
    case [port]:
        _server.run("streamable-http", port=int(port))
    case _:
        _server.run()
