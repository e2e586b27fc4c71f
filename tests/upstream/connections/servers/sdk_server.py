"""A server written with the official SDK, over the transport that its arguments name."""

import os
import socket
import sys
from typing import Annotated

import anyio
import uvicorn
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp.types import (
    CreateMessageResult,
    ImageContent,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel, Field

server = MCPServer("sdk", version="1.2.3", instructions="Ask me anything.")


class Person(BaseModel):
    name: str


class Sum(BaseModel):
    total: int


@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
def add(a: int, b: int = 1) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@server.tool()
def fail() -> str:
    """Always fails."""
    raise RuntimeError("it cannot be done")


@server.tool()
def picture() -> list[TextContent | ImageContent]:
    """A picture with a caption."""
    image = ImageContent(type="image", data="AAECAw==", mime_type="image/png")
    return [TextContent(type="text", text="caption"), image]


@server.tool()
async def work(ctx: Context) -> str:
    """Reports progress and logs."""
    for step in (1, 2, 3):
        await ctx.report_progress(step, 3, f"step {step}")
    await ctx.info("all steps taken")  # type: ignore[deprecated]
    return "worked"


@server.tool()
def region(
    where: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})],
) -> str:
    """Requires its argument in a header too."""
    return f"in {where}"


def ask_name() -> Elicit[Person]:
    return Elicit("What is your name?", Person)


@server.tool()
def greet(person: Annotated[ElicitationResult[Person], Resolve(ask_name)]) -> str:
    """Requests a name first."""
    if isinstance(person, AcceptedElicitation):
        return f"Hello, {person.data.name}!"
    return f"Hello, you who {person.action}!"


def ask_model() -> Sample:
    text = TextContent(type="text", text="capital of France?")
    return Sample([SamplingMessage(role="user", content=text)], max_tokens=10)


@server.tool()
def capital(answer: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
    """Requests a completion from the client's model."""
    assert isinstance(answer.content, TextContent)
    return answer.content.text


def ask_roots() -> ListRoots:
    return ListRoots()


@server.tool()
def where(roots: Annotated[ListRootsResult, Resolve(ask_roots)]) -> str:
    """Requests the client's roots."""
    return ", ".join(str(root.uri) for root in roots.roots)


@server.resource("note://hello")
def hello() -> str:
    """A note."""
    return "hello"


@server.prompt()
def describe(thing: str) -> str:
    """Describe a thing."""
    return f"Describe {thing}."


def main() -> None:
    transport = sys.argv[1]
    if transport == "stdio":
        server.run("stdio")
        return
    # The test reads the port from stdout, so that no two runs can use the same one.
    listener = socket.create_server(("127.0.0.1", 0))
    os.write(1, f"{listener.getsockname()[1]}\n".encode())
    app = server.sse_app() if transport == "sse" else server.streamable_http_app()
    config = uvicorn.Config(app, log_level="warning")
    anyio.run(lambda: uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
