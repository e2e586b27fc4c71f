"""Our client as the conformance suite drives it: the scenario in the environment, a URL last."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from portico.edge.client.client import Client
from portico.edge.client.client_answers import ClientAnswers
from portico.edge.client.connect import connect
from portico.upstream.wires.streamable_http import Url

STUBS = {"string": "x", "integer": 0, "number": 0, "boolean": False, "object": {}, "array": []}


async def accept_defaults(params: dict[str, Any]) -> dict[str, Any]:
    fields = params.get("requestedSchema", {}).get("properties", {})
    content = {name: field["default"] for name, field in fields.items() if "default" in field}
    return {"action": "accept", "content": content}


async def sample(_: dict[str, Any]) -> dict[str, Any]:
    content = {"type": "text", "text": ""}
    return {"role": "assistant", "content": content, "model": "stub"}


async def roots(_: dict[str, Any]) -> dict[str, Any]:
    return {"roots": []}


async def listing(client: Client) -> None:
    await client.list_tools()


async def add_numbers(client: Client) -> None:
    await client.list_tools()
    await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def call_everything(client: Client) -> None:
    for tool in await client.list_tools():
        schema = tool["inputSchema"]
        wanted = schema.get("required", [])
        fields = schema.get("properties", {})
        arguments = {name: STUBS[fields[name]["type"]] for name in wanted}
        await client.call_tool(tool["name"], arguments)


async def custom_headers(client: Client) -> None:
    await client.list_tools()
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        await client.call_tool(call["name"], call.get("arguments", {}))


async def echo_schema(client: Client) -> None:
    tools = {tool["name"]: tool for tool in await client.list_tools()}
    schema = tools["json_schema_2020_12_tool"]["inputSchema"]
    await client.call_tool("json_schema_echo", {"schema": schema})


async def reconnect(client: Client) -> None:
    await client.list_tools()
    await client.call_tool("test_reconnection", {})


async def call_all_plainly(client: Client) -> None:
    for tool in await client.list_tools():
        await client.call_tool(tool["name"], {})


SCENARIOS: dict[str, Callable[[Client], Awaitable[None]]] = {
    "initialize": listing,
    "tools_call": add_numbers,
    "sse-retry": reconnect,
    "elicitation-sep1034-client-defaults": call_all_plainly,
    "request-metadata": add_numbers,
    "http-standard-headers": add_numbers,
    "http-custom-headers": custom_headers,
    "http-invalid-tool-headers": call_everything,
    "json-schema-ref-no-deref": listing,
    "json-schema-2020-12-preservation": echo_schema,
    "sep-2322-client-request-state": call_all_plainly,
}


async def main() -> None:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    answers = ClientAnswers(elicit=accept_defaults, sample=sample, roots=roots)
    async with await connect(Url(sys.argv[-1]), answers=answers) as client:
        await SCENARIOS[scenario](client)


if __name__ == "__main__":
    asyncio.run(main())
