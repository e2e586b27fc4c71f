"""Middleware of wasmcp's interfaces that reaches its client, for the versions named by date."""

import json
from typing import Any

import wit_world.exports as base
from componentize_py_types import Err, Ok
from wit_world.imports import mcp, server_handler, server_io, sessions

FRAME = server_io.MessageFrame(b"", b"")
TOOLS = ["told", "asked", "again", "raised"]


def text(value: str) -> Any:
    return mcp.ContentBlock_Text(mcp.TextContent(mcp.TextData_Text(value), None))


def said(value: str) -> Any:
    return Ok(mcp.ServerResult_ToolsCall(mcp.CallToolResult(None, [text(value)], None, None)))


def tool(name: str) -> Any:
    return mcp.Tool(name, '{"type": "object"}', None)


def tell(ctx: Any, notification: Any) -> None:
    message = mcp.ServerMessage_Notification(notification)
    server_io.send_message(ctx.client_stream, message, FRAME)


def tell_all(ctx: Any) -> Any:
    token = mcp.ProgressToken_String("any")
    tell(ctx, mcp.ServerNotification_Progress(mcp.ProgressNotification(token, 1.0, 2.0, "half")))
    careful = json.dumps({"what": "careful"})
    log = mcp.LoggingMessageNotification(careful, mcp.LogLevel.WARNING, "guest")
    tell(ctx, mcp.ServerNotification_Log(log))
    updated = mcp.ResourceUpdatedNotification(None, "note:one")
    tell(ctx, mcp.ServerNotification_ResourcesUpdated(updated))
    nothing = mcp.NotificationOptions(None, None)
    tell(ctx, mcp.ServerNotification_ToolsListChanged(nothing))
    server_io.flush_buffer(ctx.client_stream)
    try:
        tell_request(ctx)
    except Err as error:
        return said(f"told, and not: {error.value.value}")
    return said("told")


def tell_request(ctx: Any) -> None:
    roots = mcp.ServerRequest_RootsList(mcp.ListRootsRequest(None, None))
    message = mcp.ServerMessage_Request((mcp.RequestId_Number(1), roots))
    server_io.send_message(ctx.client_stream, message, FRAME)


def form() -> Any:
    fields = [
        ("sure", mcp.PrimitiveSchemaDefinition_BooleanSchema(boolean("Sure?"))),
        ("age", mcp.PrimitiveSchemaDefinition_NumberSchema(number())),
        ("colour", mcp.PrimitiveSchemaDefinition_EnumSchema(choice())),
    ]
    schema = mcp.RequestedSchema(fields, ["sure"])
    if hasattr(mcp, "ElicitRequest_Form"):
        return mcp.ElicitRequest_Form(mcp.ElicitFormRequest("Really?", schema))
    return mcp.ElicitRequest("Really?", schema)


def boolean(title: str) -> Any:
    return mcp.BooleanSchema(None, None, title)


def number() -> Any:
    whole = mcp.NumberSchemaType.INTEGER
    if hasattr(mcp, "ElicitRequest_Form"):
        return mcp.NumberSchema(None, None, 99.0, 0.0, None, whole)
    return mcp.NumberSchema(None, 99.0, 0.0, None, whole)


def choice() -> Any:
    if hasattr(mcp, "ElicitRequest_Form"):
        options = [mcp.EnumOption("r", "Red"), mcp.EnumOption("g", "Green")]
        titled = mcp.TitledSingleSelectEnumSchema(options, None, None, None)
        return mcp.EnumSchema_TitledSingleSelect(titled)
    return mcp.EnumSchema(None, ["r", "g"], ["Red", "Green"], None)


def asked(ctx: Any) -> Any:
    session = sessions.Session.open(ctx.session.session_id, ctx.session.store_id)
    try:
        future = session.elicit(ctx.client_stream, form())
    except Err as error:
        return said(f"refused: {error.value.value}")
    with future.subscribe() as pollable:
        pollable.block()
    result = future.elicit_result()
    content = [[name, type(one).__name__, one.value] for name, one in result.content or []]
    return said(json.dumps([result.action.name, content]))


def again(ctx: Any, message: Any) -> Any:
    """Pass the same call on twice, in the name of another tool."""
    number, request = message.value
    call = mcp.CallToolRequest("echo", request.value.arguments)
    passed = mcp.ClientMessage_Request((number, mcp.ClientRequest_ToolsCall(call)))
    server_handler.handle(ctx, passed)
    return server_handler.handle(ctx, passed)


def called(ctx: Any, message: Any) -> Any:
    _, request = message.value
    if request.value.name == "told":
        return tell_all(ctx)
    if request.value.name == "asked":
        return asked(ctx)
    if request.value.name == "again":
        return again(ctx, message)
    if request.value.name == "raised":
        raise ValueError("this guest is broken")
    return server_handler.handle(ctx, message)


class ServerHandler(base.ServerHandler):
    def handle(self, ctx: Any, message: Any) -> Any:
        if not isinstance(message, mcp.ClientMessage_Request):
            return None
        request = message.value[1]
        if isinstance(request, mcp.ClientRequest_ToolsCall):
            return called(ctx, message)
        outcome = server_handler.handle(ctx, message)
        if isinstance(request, mcp.ClientRequest_ToolsList) and isinstance(outcome, Ok):
            outcome.value.value.tools += [tool(name) for name in TOOLS]
        return outcome
