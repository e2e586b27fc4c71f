"""Middleware of wasmcp's first interface: it adds a tool that calls three tools behind it."""

import json
from typing import Any

import wit_world.exports as base
from componentize_py_types import Err
from wit_world.imports import handler, mcp, notifications

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
    "required": ["a", "b"],
}
TOOL = mcp.Tool(
    "pythagorean",
    json.dumps(SCHEMA),
    mcp.ToolOptions(None, None, "The longest side of a triangle.", None, None),
)


def text(value: str) -> Any:
    return mcp.ContentBlock_Text(mcp.TextContent(mcp.TextData_Text(value), None))


class Handler(base.Handler):
    def handle_request(self, ctx: Any, request: Any, client_stream: Any) -> Any:
        asked, number = request
        if isinstance(asked, mcp.ClientRequest_ToolsCall) and asked.value.name == "pythagorean":
            return self.pythagorean(ctx, asked.value, number, client_stream)
        answer = handler.handle_request(ctx, request, client_stream)
        if isinstance(asked, mcp.ClientRequest_ToolsList):
            answer.value.tools.append(TOOL)
        return answer

    def pythagorean(self, ctx: Any, request: Any, number: Any, stream: Any) -> Any:
        given = json.loads(request.arguments or "{}")
        if not {"a", "b"} <= given.keys():
            why = mcp.Error(None, -32602, "a and b are missing", None)
            raise Err(mcp.ErrorCode_InvalidParams(why))

        def call(name: str, **arguments: float) -> float:
            inner = mcp.CallToolRequest(name, json.dumps(arguments))
            asked = (mcp.ClientRequest_ToolsCall(inner), number)
            answer = handler.handle_request(ctx, asked, stream)
            return float(answer.value.content[0].value.text.value)

        notifications.progress(stream, mcp.ProgressToken_Integer(0), 1.0, 3.0, "squares")
        squares = call("square", x=given["a"]), call("square", x=given["b"])
        total = call("add", a=squares[0], b=squares[1])
        notifications.log(stream, "nearly done", mcp.LogLevel.INFO, None)
        side = call("square_root", x=total)
        result = mcp.CallToolResult(None, [text(str(side))], None, json.dumps({"side": side}))
        return mcp.ServerResponse_ToolsCall(result)

    def handle_response(self, ctx: Any, response: Any) -> None:
        handler.handle_response(ctx, response)

    def handle_notification(self, ctx: Any, notification: Any) -> None:
        handler.handle_notification(ctx, notification)
