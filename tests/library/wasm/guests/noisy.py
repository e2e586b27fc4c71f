"""Tools of wasmcp's interfaces that send messages to their client while they work."""

import json
from typing import Any

import wit_world.exports as base
from wit_world.imports import mcp, server_io

FRAME = server_io.MessageFrame(b"", b"")


class Tools(base.Tools):
    def list_tools(self, ctx: Any, request: Any) -> Any:
        return mcp.ListToolsResult(None, None, [mcp.Tool("told", '{"type": "object"}', None)])

    def call_tool(self, ctx: Any, request: Any) -> Any:
        if request.name != "told":
            return None
        half = mcp.ProgressNotification(mcp.ProgressToken_String("any"), 1.0, 2.0, "half")
        careful = json.dumps({"what": "careful"})
        log = mcp.LoggingMessageNotification(careful, mcp.LogLevel.WARNING, "guest")
        for one in (mcp.ServerNotification_Progress(half), mcp.ServerNotification_Log(log)):
            server_io.send_message(ctx.client_stream, mcp.ServerMessage_Notification(one), FRAME)
        text = mcp.TextContent(mcp.TextData_Text("told"), None)
        return mcp.CallToolResult(None, [mcp.ContentBlock_Text(text)], None, None)
