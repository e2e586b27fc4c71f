"""A server that asks, samples, reads roots and logs, as Python servers do it, in both eras.

    python tests/rigs/asking.py mcp|fastmcp [--http]

It is on the official SDK or on FastMCP. Over HTTP it prints its port first, and speaks at /mcp.
"""

import os
import socket
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import mcp_types as types
import uvicorn
from pydantic import BaseModel

library = sys.argv[1]
server: Any
if library == "mcp":
    from mcp.server.mcpserver import Context, MCPServer

    server = MCPServer("asking")
else:
    from fastmcp import Context, FastMCP  # type: ignore[assignment]

    server = FastMCP("asking")

Tool = TypeVar("Tool", bound=Callable[..., Any])
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


def tool(run: Tool) -> Tool:
    """Add a tool to the server."""
    server.tool()(run)
    return run


class Name(BaseModel):
    """What is asked for."""

    name: str


@tool
async def ask(ctx: Context) -> str:
    """Ask the person a question in the middle of the call."""
    answer: Any = await ctx.elicit("Your name?", Name)
    return f"{answer.action} {answer.data.name}" if answer.action == "accept" else "nothing"


@tool
async def ask_in_result(ctx: Context) -> str | types.InputRequiredResult:
    """Ask the person a question in the result of the call, which only the modern era has."""
    answers = ctx.input_responses
    if answers:
        answer: Any = answers["who"]
        return f"{answer.action} {answer.content['name']}"
    params = types.ElicitRequestFormParams(message="Your name?", requested_schema=FORM)
    return types.InputRequiredResult(input_requests={"who": types.ElicitRequest(params=params)})


@tool
async def sample(ctx: Context) -> str:
    """Have the client's model say something."""
    content = types.TextContent(type="text", text="hi")
    prompt = types.SamplingMessage(role="user", content=content)
    said: Any = await ctx.session.create_message([prompt], max_tokens=5)
    return str(said.content.text)


@tool
async def roots(ctx: Context) -> str:
    """Read the client's roots."""
    found = await ctx.session.list_roots()
    return " ".join(str(root.uri) for root in found.roots)


@tool
async def log(ctx: Context) -> str:
    """Log a message, and report progress."""
    logged: Any = ctx
    await logged.warning("half")
    await ctx.report_progress(1, 2)
    return "done"


@tool
def pid() -> str:
    """Return the process that answers."""
    return str(os.getpid())


if "--http" not in sys.argv:
    server.run(**({} if library == "mcp" else {"show_banner": False}))
else:
    app = server.streamable_http_app() if library == "mcp" else server.http_app(path="/mcp")
    door = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{door.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[door])
