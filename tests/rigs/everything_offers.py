"""The offer of the everything server on the SDK, without the questions."""

import asyncio
import json
from base64 import b64decode
from typing import Annotated, Any

from mcp.server import ServerRequestContext
from mcp.server.mcpserver import Context, MCPServer, RequestStateSecurity
from mcp.server.mcpserver.prompts.base import Prompt, UserMessage
from mcp.shared.exceptions import MCPError
from mcp.types import (
    AudioContent,
    Completion,
    CompletionArgument,
    CompletionContext,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    LoggingLevel,
    PromptReference,
    ResourceTemplateReference,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    UnsubscribeRequestParams,
)
from pydantic import Field

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
WATCHED = "test://watched-resource"
IMAGE = ImageContent(type="image", data=PNG, mime_type="image/png")

server = MCPServer(
    "sdk-everything",
    title="Everything, on the SDK",
    version="1.0.0",
    instructions="Every feature of the protocol, each in its smallest form.",
    log_level="WARNING",
    request_state_security=RequestStateSecurity(keys=[b"a key for tests, of no use elsewhere"]),
)


def text(words: str) -> TextContent:
    """A block of text."""
    return TextContent(type="text", text=words)


def embedded(uri: str, words: str, mime_type: str = "text/plain") -> EmbeddedResource:
    """A resource inside a result."""
    contents = TextResourceContents(uri=uri, mime_type=mime_type, text=words)
    return EmbeddedResource(type="resource", resource=contents)


async def log(ctx: Context, level: LoggingLevel, words: str) -> None:
    """Send a log message on the stream of the request."""
    await ctx.log(level, words)  # type: ignore[deprecated]


@server.tool()
def test_simple_text() -> str:
    """Return plain text."""
    return "This is a simple text response for testing."


@server.tool()
def test_image_content() -> list[ImageContent]:
    """Return a picture."""
    return [IMAGE]


@server.tool()
def test_audio_content() -> list[AudioContent]:
    """Return a sound."""
    return [AudioContent(type="audio", data=WAV, mime_type="audio/wav")]


@server.tool()
def test_embedded_resource() -> list[EmbeddedResource]:
    """Return a resource inside the result."""
    return [embedded("test://embedded-resource", "This is an embedded resource.")]


@server.tool()
def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
    """Return several blocks of different kinds."""
    data = json.dumps({"test": "data", "value": 123})
    mixed = embedded("test://mixed-content-resource", data, "application/json")
    return [text("Multiple content types test:"), IMAGE, mixed]


@server.tool()
def test_error_handling() -> str:
    """Fail, so that the model is told why."""
    raise RuntimeError("This tool intentionally returns an error for testing")


@server.tool()
async def test_tool_with_logging(ctx: Context) -> str:
    """Send log messages on the way."""
    for step in ("started", "processing", "completed"):
        await log(ctx, "info", f"Tool execution {step}")
        await asyncio.sleep(0.05)
    return "Logged three messages."


@server.tool()
async def test_logging_tool(ctx: Context) -> str:
    """Send a log message of every level that the suite knows."""
    levels: tuple[LoggingLevel, ...] = ("debug", "info", "warning", "error")
    for level in levels:
        await log(ctx, level, f"A message of level {level}")
    return "Logged four messages."


@server.tool()
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress on the way."""
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(0.05)
    return "Reported progress three times."


@server.tool()
async def test_reconnection(ctx: Context) -> str:
    """Hang up in the middle; a client that comes back gets the rest."""
    await log(ctx, "info", "Before disconnect")
    await ctx.close_sse_stream()
    await asyncio.sleep(0.2)
    await log(ctx, "info", "After reconnect")
    return "Reconnection test completed"


@server.tool()
def test_missing_capability(ctx: Context) -> str:
    """Refuse a client whose model cannot be used."""
    if ctx.client_capabilities is None or ctx.client_capabilities.sampling is None:
        needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(-32021, "This tool needs the client's model", needed)
    return "The client declared sampling."


@server.tool()
def test_x_mcp_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "none",  # noqa: PT028
) -> str:
    """Take a parameter that HTTP clients mirror into a header."""
    return f"region={region}"


@server.tool()
async def test_trigger_tool_change(ctx: Context) -> str:
    """Announce a change of tools to listeners of both eras, though nothing has changed."""
    await ctx.notify_tools_changed()
    await ctx.session.send_tool_list_changed()
    return "tool list changed"


@server.tool()
async def test_trigger_prompt_change(ctx: Context) -> str:
    """Announce a change of prompts to listeners of both eras, though nothing has changed."""
    await ctx.notify_prompts_changed()
    await ctx.session.send_prompt_list_changed()
    return "prompt list changed"


@server.tool()
async def toggle_tool(ctx: Context) -> str:
    """Add a tool, or remove it the next time; the suite does not use it, tests of a proxy do."""
    if any(tool.name == "passing" for tool in await server.list_tools()):
        server.remove_tool("passing")
    else:
        server.add_tool(lambda: "", name="passing", description="Comes and goes.")
    return await test_trigger_tool_change(ctx)


@server.tool()
async def toggle_prompt(ctx: Context) -> str:
    """Add a prompt, or remove it the next time; the suite does not use it, tests of a proxy do."""
    if any(prompt.name == "passing" for prompt in await server.list_prompts()):
        server.remove_prompt("passing")
    else:
        server.add_prompt(
            Prompt.from_function(lambda: "hello", name="passing", description="Comes and goes.")
        )
    return await test_trigger_prompt_change(ctx)


@server.tool()
async def test_trigger_resource_update(ctx: Context) -> str:
    """Tell those who watch the watched resource; the suite does not use it, tests of a proxy do."""
    await ctx.notify_resource_updated(WATCHED)
    await ctx.session.send_resource_updated(WATCHED)
    return "resource updated"


@server.tool()
def json_schema_2020_12_tool() -> str:
    """A tool whose schema uses the keywords of JSON Schema 2020-12."""
    return "It is the schema that matters."


SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@server.resource("test://static-text", name="static-text", mime_type="text/plain")
def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", name="static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """A picture that never changes."""
    return b64decode(PNG)


@server.resource(WATCHED, name="watched-resource", mime_type="text/plain")
def watched() -> str:
    """A text to subscribe to."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", name="template", mime_type="application/json")
def template(id: str) -> str:
    """One of a family of resources."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@server.prompt()
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt()
def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803  (the suite's name)
    """A prompt that carries a resource."""
    carried = embedded(resourceUri, "Embedded resource content for testing.")
    return [UserMessage(carried), UserMessage("Please process the embedded resource above.")]


@server.prompt()
def test_prompt_with_image() -> list[UserMessage]:
    """A prompt that carries a picture."""
    return [UserMessage(IMAGE), UserMessage("Please analyze the image above.")]


async def complete(
    ref: PromptReference | ResourceTemplateReference,
    argument: CompletionArgument,
    context: CompletionContext | None,
) -> Completion:
    """Values that begin like what was typed."""
    words = [word for word in ("paris", "park", "party") if word.startswith(argument.value)]
    return Completion(values=words, total=len(words), has_more=False)


async def _accept(ctx: ServerRequestContext[Any, Any], params: Any) -> EmptyResult:
    return EmptyResult()


def add_to(server: MCPServer) -> None:
    """Add what the SDK's front has no way, or no typed way, to say."""
    completion: Any = server.completion
    completion()(complete)
    server._tool_manager._tools["json_schema_2020_12_tool"].parameters = SCHEMA_2020_12
    low = server._lowlevel_server
    low.add_request_handler("logging/setLevel", SetLevelRequestParams, _accept)
    low.add_request_handler("resources/subscribe", SubscribeRequestParams, _accept)
    low.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, _accept)
