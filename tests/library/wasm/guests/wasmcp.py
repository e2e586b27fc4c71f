"""A component of wasmcp's interfaces in Python."""

import json
from typing import Any

import wit_world.exports as base
from componentize_py_types import Err
from wit_world.imports import mcp


def text(value: str) -> Any:
    return mcp.ContentBlock_Text(mcp.TextContent(mcp.TextData_Text(value), None))


def refused(message: str) -> Err[Any]:
    return Err(mcp.ErrorCode_InvalidParams(mcp.Error(-32602, message, None)))


class Tools(base.Tools):
    def list_tools(self, ctx: Any, request: Any) -> Any:
        schema = '{"type": "object", "properties": {"text": {"type": "string"}}}'
        return mcp.ListToolsResult(None, None, [mcp.Tool("reverse", schema, None)])

    def call_tool(self, ctx: Any, request: Any) -> Any:
        if request.name != "reverse":
            return None
        given = json.loads(request.arguments or "{}")
        if "text" not in given:
            raise refused("text is missing")
        return mcp.CallToolResult(None, [text(given["text"][::-1])], None, None)


class Resources(base.Resources):
    def list_resources(self, ctx: Any, request: Any) -> Any:
        return mcp.ListResourcesResult(None, None, [mcp.McpResource("note://1", "one", None)])

    def read_resource(self, ctx: Any, request: Any) -> Any:
        content = mcp.TextResourceContents(request.uri, mcp.TextData_Text("hello"), None)
        return mcp.ReadResourceResult(None, [mcp.ResourceContents_Text(content)])

    def list_resource_templates(self, ctx: Any, request: Any) -> Any:
        return mcp.ListResourceTemplatesResult(None, None, [])


class Prompts(base.Prompts):
    def list_prompts(self, ctx: Any, request: Any) -> Any:
        return mcp.ListPromptsResult(None, None, [mcp.Prompt("greet", None)])

    def get_prompt(self, ctx: Any, request: Any) -> Any:
        who = json.loads(request.arguments or "{}")["who"]
        message = mcp.PromptMessage(text(f"Hello {who}"), mcp.Role.USER)
        return mcp.GetPromptResult(None, None, [message])


class Completions(base.Completions):
    def complete(self, ctx: Any, request: Any) -> Any:
        return mcp.CompleteResult(None, None, None, ["Ada"])
