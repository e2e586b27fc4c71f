"""A component of Portico's interfaces in Python."""

import json
from typing import Any

import wit_world.exports as base
from componentize_py_types import Err


class ToolsCapability(base.ToolsCapability):
    def list_tools(self) -> str:
        schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        return json.dumps({"tools": [{"name": "reverse", "inputSchema": schema}]})

    def call_tool(self, name: str, arguments: str) -> str:
        if name != "reverse":
            return "null"
        given: dict[str, Any] = json.loads(arguments)
        if "text" not in given:
            raise Err("text is missing")
        return json.dumps({"content": [{"type": "text", "text": given["text"][::-1]}]})


class ResourcesCapability(base.ResourcesCapability):
    def list_resources(self) -> str:
        return json.dumps({"resources": [{"uri": "note://1", "name": "one"}]})

    def list_resource_templates(self) -> str:
        return json.dumps({"resourceTemplates": []})

    def read_resource(self, uri: str) -> str:
        return json.dumps({"contents": [{"uri": uri, "text": "hello"}]})


class PromptsCapability(base.PromptsCapability):
    def list_prompts(self) -> str:
        return json.dumps({"prompts": [{"name": "greet"}]})

    def get_prompt(self, name: str, arguments: str) -> str:
        content = {"type": "text", "text": f"Hello {json.loads(arguments)['who']}"}
        return json.dumps({"messages": [{"role": "user", "content": content}]})


class CompletionsCapability(base.CompletionsCapability):
    def complete(self, params: str) -> str:
        return json.dumps({"completion": {"values": ["Ada"]}})
