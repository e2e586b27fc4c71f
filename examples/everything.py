"""A server with every feature of the protocol, written with the public API.

It has the tools, resources and prompts that the official conformance suite requires:

    portico run examples/everything.py --http 127.0.0.1:8123 --auth none
"""

import asyncio
import json
from base64 import b64decode
from typing import Annotated, Any

from msgspec import Meta

from portico import (
    ROOTS,
    Audio,
    Context,
    Embedded,
    Image,
    Message,
    MissingCapability,
    Server,
    Text,
    elicitation,
    sampling,
)

PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WAV = b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=")

server = Server(
    "portico-everything",
    "1.0.0",
    title="Portico's everything server",
    instructions="Every feature of the protocol, each as a minimal example.",
)


# Tools that return each kind of content.


@server.tool
def test_simple_text() -> str:
    """Return plain text."""
    return "This is a simple text response for testing."


@server.tool
def test_image_content() -> Image:
    """Return an image."""
    return Image(PNG, "image/png")


@server.tool
def test_audio_content() -> Audio:
    """Return audio."""
    return Audio(WAV, "audio/wav")


@server.tool
def test_embedded_resource() -> Embedded:
    """Return a resource embedded in the result."""
    return Embedded("test://embedded-resource", "This is an embedded resource.", "text/plain")


@server.tool
def test_multiple_content_types() -> list[Text | Image | Embedded]:
    """Return several blocks of different kinds."""
    data = json.dumps({"test": "data", "value": 123})
    return [
        Text("Multiple content types test:"),
        Image(PNG, "image/png"),
        Embedded("test://mixed-content-resource", data, "application/json"),
    ]


@server.tool
def test_error_handling() -> str:
    """Fail with an error that the model can read."""
    raise RuntimeError("This tool intentionally returns an error for testing")


# Tools that send messages while they run.


@server.tool
async def test_tool_with_logging(context: Context) -> str:
    """Send log messages while running."""
    for step in ("started", "processing", "completed"):
        await context.log("info", f"Tool execution {step}")
        await asyncio.sleep(0.05)
    return "Logged three messages."


@server.tool
async def test_logging_tool(context: Context) -> str:
    """Send log messages of several levels; the client gets the levels it requested."""
    for level in ("debug", "info", "warning", "error"):
        await context.log(level, f"A message of level {level}", "everything")
    return "Logged four messages."


@server.tool
async def test_tool_with_progress(context: Context) -> str:
    """Report progress while running."""
    for done in (0, 50, 100):
        await context.progress(done, 100, f"Completed step {done} of 100")
        await asyncio.sleep(0.05)
    return "Reported progress three times."


@server.tool
async def test_reconnection(context: Context) -> str:
    """Close the stream during the call; a client that reconnects gets the rest."""
    await context.log("info", "Before disconnect")
    await context.close_stream()
    await asyncio.sleep(0.2)
    await context.log("info", "After reconnect")
    return "Reconnection test completed"


# Tools that ask the client questions, with the same code for both eras.


@server.tool
async def test_sampling(prompt: str, context: Context) -> str:
    """Request a completion from the client's model."""
    answer = await context.sample(prompt, max_tokens=100)
    return f"LLM response: {answer['content'].get('text', '')}"


@server.tool
async def test_elicitation(message: str, context: Context) -> str:
    """Ask the user a question."""
    schema = _form(response={"type": "string", "description": "User's response"})
    answer = await context.elicit(message, schema)
    return f"User response: action={answer.action}, content={json.dumps(answer.content)}"


@server.tool
async def test_streaming_elicitation(context: Context) -> str:
    """Report progress, then ask: a modern client gets the question in the result."""
    await context.progress(1, 2, "About to ask")
    answer = await context.elicit("What is your name?", NAME, key="user_name")
    return f"Hello, {answer.content.get('name', 'stranger')}!"


@server.tool
async def test_elicitation_sep1034_defaults(context: Context) -> str:
    """Ask with a default for every primitive type."""
    status = {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"}
    answer = await context.elicit(
        "Please provide user information",
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "default": "John Doe"},
                "age": {"type": "integer", "default": 30},
                "score": {"type": "number", "default": 95.5},
                "status": status,
                "verified": {"type": "boolean", "default": True},
            },
        },
    )
    return f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}"


@server.tool
async def test_elicitation_sep1330_enums(context: Context) -> str:
    """Ask with every form of enumeration."""
    titled = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
    plain = ["option1", "option2", "option3"]
    answer = await context.elicit(
        "Please choose",
        _form(
            untitledSingle={"type": "string", "enum": plain},
            titledSingle={"type": "string", "oneOf": titled},
            legacyEnum={
                "type": "string",
                "enum": plain,
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            untitledMulti={"type": "array", "items": {"type": "string", "enum": plain}},
            titledMulti={"type": "array", "items": {"anyOf": titled}},
        ),
    )
    return f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}"


@server.tool
def test_missing_capability(context: Context) -> str:
    """Reject clients that do not support sampling."""
    if "sampling" not in context.client_capabilities:
        raise MissingCapability("sampling")
    return "The client declared sampling."


@server.tool
async def test_input_required_result_elicitation(context: Context) -> str:
    """Ask for a name."""
    answer = await context.elicit("What is your name?", NAME, key="user_name")
    return f"Hello, {answer.content.get('name', 'stranger')}!"


@server.tool
async def test_input_required_result_sampling(context: Context) -> str:
    """Ask the client's model for a capital."""
    answer = await context.sample("What is the capital of France?", key="capital_question")
    return f"Model said: {answer['content'].get('text', '')}"


@server.tool
async def test_input_required_result_list_roots(context: Context) -> str:
    """Ask for the client's roots."""
    return f"Client exposed {len(await context.roots(key='client_roots'))} root(s)."


@server.tool
async def test_input_required_result_request_state(context: Context) -> str:
    """Keep state between rounds."""
    context.state["nonce"] = "kept"
    await context.elicit("Please confirm", CONFIRM, key="confirm")
    return f"state-ok: {context.state['nonce']}"


@server.tool
async def test_input_required_result_multiple_inputs(context: Context) -> str:
    """Ask three questions in one round."""
    await context.ask(
        {
            "user_name": elicitation("What is your name?", NAME),
            "greeting": sampling("Generate a greeting", 50),
            "client_roots": ROOTS,
        }
    )
    return "All inputs received."


@server.tool
async def test_input_required_result_multi_round(context: Context) -> str:
    """Ask two questions, one after the other."""
    name = await context.elicit("Step 1: What is your name?", NAME, key="step1")
    color = await context.elicit(
        "Step 2: What is your favorite color?", _form(color={"type": "string"}), key="step2"
    )
    return f"{name.content.get('name')} likes {color.content.get('color')}."


@server.tool
async def test_input_required_result_tampered_state(context: Context) -> str:
    """Ask once; a modified state is rejected before this function runs again."""
    await context.elicit("Please confirm", CONFIRM, key="confirm")
    return "state-ok"


@server.tool
async def test_input_required_result_capabilities(context: Context) -> str:
    """Ask only the questions that the client supports."""
    asks = {"sample": sampling("Say hello", 50), "ask": elicitation("What is your name?", NAME)}
    declared = context.client_capabilities
    supported = {key: ask for key, ask in asks.items() if ask.capability in declared}
    await context.ask(supported)
    return f"Asked: {', '.join(supported) or 'nothing'}"


# Tools with special definitions.


@server.tool
def test_x_mcp_header(
    region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})] = "none",
) -> str:
    """Take a parameter that HTTP clients mirror into a header."""
    return f"region={region}"


def json_schema_2020_12_tool(arguments: dict[str, Any]) -> str:
    """Return the arguments, which have been validated against the schema."""
    return json.dumps(arguments)


server.add_tool(
    {
        "name": "json_schema_2020_12_tool",
        "description": "A tool whose schema uses the keywords of JSON Schema 2020-12.",
        "inputSchema": {
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
        },
    },
    json_schema_2020_12_tool,
)


# Changes while the server runs.


@server.tool
def test_trigger_tool_change() -> str:
    """Add and remove a tool; subscribed clients are notified."""
    server.add_tool({"name": "passing", "inputSchema": {"type": "object"}}, lambda arguments: "")
    server.remove_tool("passing")
    return "tool list changed"


@server.tool
def test_trigger_prompt_change() -> str:
    """Add and remove a prompt; subscribed clients are notified."""
    server.prompt(lambda: "hello", name="passing")
    server.remove_prompt("passing")
    return "prompt list changed"


# Resources.


@server.resource("test://static-text", name="static-text", mime_type="text/plain")
def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", name="static-binary", mime_type="image/png")
def static_binary() -> bytes:
    """An image that never changes."""
    return PNG


@server.resource("test://watched-resource", name="watched-resource", mime_type="text/plain")
def watched() -> str:
    """A text to subscribe to."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", name="template", mime_type="application/json")
def template(id: str) -> str:
    """A resource with a variable in its URI."""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


# Prompts.


@server.prompt
def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with two arguments."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt
def test_prompt_with_embedded_resource(resourceUri: str) -> list[Message]:  # noqa: N803  (the suite's name)
    """A prompt with an embedded resource."""
    return [
        Message(Embedded(resourceUri, "Embedded resource content for testing.", "text/plain")),
        Message("Please process the embedded resource above."),
    ]


@server.prompt
def test_prompt_with_image() -> list[Message]:
    """A prompt with an image."""
    return [Message(Image(PNG, "image/png")), Message("Please analyze the image above.")]


@server.prompt
async def test_input_required_result_prompt(context: Context) -> str:
    """A prompt that first asks the user a question."""
    answer = await context.elicit(
        "What context should the prompt use?",
        _form(context={"type": "string"}),
        key="user_context",
    )
    return f"Use the following context: {answer.content.get('context')}"


@server.completion("test_prompt_with_arguments", "arg1")
def complete_arg1(value: str) -> list[str]:
    """Return the values that start with the typed text."""
    return [word for word in ("paris", "park", "party") if word.startswith(value)]


def _form(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


NAME = _form(name={"type": "string"})
CONFIRM = _form(ok={"type": "boolean"})
