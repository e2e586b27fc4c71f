"""Tools and prompts with questions to the client, for the everything server on the SDK.

Each is written once: in the legacy era `ask` sends requests, in the modern one it is the result.
"""

import asyncio
import json
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import Prompt
from mcp.shared.message import ServerMessageMetadata
from mcp.types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

Answers = dict[str, Any]

RESULTS: dict[str, type[ElicitResult | CreateMessageResult | ListRootsResult]] = {
    "elicitation/create": ElicitResult,
    "sampling/createMessage": CreateMessageResult,
    "roots/list": ListRootsResult,
}


async def ask(
    ctx: Context, requests: dict[str, InputRequest], state: str | None = None
) -> Answers | InputRequiredResult:
    """Return the answers, or the result that requests them."""
    if ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
        # Without the id, a request goes to the standalone stream, which may not be open.
        on = ServerMessageMetadata(related_request_id=ctx.request_id)
        answers = await asyncio.gather(
            *(
                ctx.session.send_request(request, RESULTS[request.method], metadata=on)
                for request in requests.values()
            )
        )
        return dict(zip(requests, answers, strict=True))
    given = ctx.input_responses or {}
    if requests.keys() <= given.keys():
        return dict(given)
    return InputRequiredResult(input_requests=requests, request_state=state)


def form(**properties: Any) -> dict[str, Any]:
    """The schema of a form whose fields are all required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def elicitation(message: str, schema: dict[str, Any]) -> ElicitRequest:
    """A question to the person."""
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(prompt: str, max_tokens: int = 100) -> CreateMessageRequest:
    """A question to the client's model."""
    message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    params = CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    return CreateMessageRequest(params=params)


NAME = elicitation("What is your name?", form(name={"type": "string"}))
CONFIRM = elicitation("Please confirm", form(ok={"type": "boolean"}))


def field(answer: ElicitResult, name: str) -> Any:
    """The submitted content, if any."""
    return (answer.content or {}).get(name, "stranger")


def said(answer: CreateMessageResult) -> str:
    """The model's text, if it returned text."""
    return answer.content.text if isinstance(answer.content, TextContent) else ""


def outcome(answer: ElicitResult) -> str:
    """An answer in words."""
    return f"action={answer.action}, content={json.dumps(answer.content)}"


async def test_sampling(prompt: str, ctx: Context) -> str | InputRequiredResult:
    """Have the client's model answer a prompt."""
    got = await ask(ctx, {"answer": sampling(prompt)})
    return f"LLM response: {said(got['answer'])}" if isinstance(got, dict) else got


async def test_elicitation(message: str, ctx: Context) -> str | InputRequiredResult:
    """Ask the person in front of the client."""
    schema = form(response={"type": "string", "description": "User's response"})
    got = await ask(ctx, {"answer": elicitation(message, schema)})
    return f"User response: {outcome(got['answer'])}" if isinstance(got, dict) else got


async def test_streaming_elicitation(ctx: Context) -> str | InputRequiredResult:
    """Report progress, then ask: in the modern era never by a request on the stream."""
    await ctx.report_progress(1, 2, "About to ask")
    return await test_input_required_result_elicitation(ctx)


async def test_elicitation_sep1034_defaults(ctx: Context) -> str | InputRequiredResult:
    """Ask with a default for every primitive type."""
    status = {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"}
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": status,
        "verified": {"type": "boolean", "default": True},
    }
    schema = {"type": "object", "properties": properties}
    got = await ask(ctx, {"answer": elicitation("Please provide user information", schema)})
    return f"Elicitation completed: {outcome(got['answer'])}" if isinstance(got, dict) else got


async def test_elicitation_sep1330_enums(ctx: Context) -> str | InputRequiredResult:
    """Ask with every form of enumeration."""
    titled = [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]
    plain = ["option1", "option2", "option3"]
    names = ["Option One", "Option Two", "Option Three"]
    schema = form(
        untitledSingle={"type": "string", "enum": plain},
        titledSingle={"type": "string", "oneOf": titled},
        legacyEnum={"type": "string", "enum": plain, "enumNames": names},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": plain}},
        titledMulti={"type": "array", "items": {"anyOf": titled}},
    )
    got = await ask(ctx, {"answer": elicitation("Please choose", schema)})
    return f"Elicitation completed: {outcome(got['answer'])}" if isinstance(got, dict) else got


async def test_input_required_result_elicitation(ctx: Context) -> str | InputRequiredResult:
    """Ask for a name."""
    got = await ask(ctx, {"user_name": NAME})
    return f"Hello, {field(got['user_name'], 'name')}!" if isinstance(got, dict) else got


async def test_input_required_result_sampling(ctx: Context) -> str | InputRequiredResult:
    """Ask the client's model for a capital."""
    got = await ask(ctx, {"capital_question": sampling("What is the capital of France?")})
    return f"Model said: {said(got['capital_question'])}" if isinstance(got, dict) else got


async def test_input_required_result_list_roots(ctx: Context) -> str | InputRequiredResult:
    """Ask for the client's roots."""
    got = await ask(ctx, {"client_roots": ListRootsRequest()})
    if not isinstance(got, dict):
        return got
    return f"Client exposed {len(got['client_roots'].roots)} root(s)."


async def test_input_required_result_request_state(ctx: Context) -> str | InputRequiredResult:
    """Keep something over a round."""
    got = await ask(ctx, {"confirm": CONFIRM}, state="kept")
    return f"state-ok: {ctx.request_state or 'kept'}" if isinstance(got, dict) else got


async def test_input_required_result_multiple_inputs(ctx: Context) -> str | InputRequiredResult:
    """Ask three things in one round."""
    asked: dict[str, InputRequest] = {
        "user_name": NAME,
        "greeting": sampling("Generate a greeting", 50),
        "client_roots": ListRootsRequest(),
    }
    got = await ask(ctx, asked, state="asked for three")
    return "All inputs received." if isinstance(got, dict) else got


async def test_input_required_result_multi_round(ctx: Context) -> str | InputRequiredResult:
    """Ask twice, the second question after the first answer."""
    name = json.loads(ctx.request_state or "{}").get("name")
    if name is None:
        step1 = elicitation("Step 1: What is your name?", form(name={"type": "string"}))
        got = await ask(ctx, {"step1": step1}, state=json.dumps({"round": 1}))
        if not isinstance(got, dict):
            return got
        name = field(got["step1"], "name")
    step2 = elicitation("Step 2: What is your favorite color?", form(color={"type": "string"}))
    got = await ask(ctx, {"step2": step2}, state=json.dumps({"round": 2, "name": name}))
    return f"{name} likes {field(got['step2'], 'color')}." if isinstance(got, dict) else got


async def test_input_required_result_tampered_state(ctx: Context) -> str | InputRequiredResult:
    """Ask once; a state that was changed on its way is refused before this runs again."""
    got = await ask(ctx, {"confirm": CONFIRM}, state="whole")
    return "state-ok" if isinstance(got, dict) else got


async def test_input_required_result_capabilities(ctx: Context) -> str | InputRequiredResult:
    """Ask only what the client can answer."""
    can = ctx.client_capabilities
    able: dict[str, InputRequest] = {}
    if can is not None and can.sampling is not None:
        able["sample"] = sampling("Say hello", 50)
    if can is not None and can.elicitation is not None:
        able["ask"] = NAME
    got = await ask(ctx, able)
    return f"Asked: {', '.join(able) or 'nothing'}" if isinstance(got, dict) else got


async def test_input_required_result_prompt(ctx: Context) -> str | InputRequiredResult:
    """A prompt that asks before it answers."""
    question = elicitation("What context should the prompt use?", form(context={"type": "string"}))
    got = await ask(ctx, {"user_context": question})
    if not isinstance(got, dict):
        return got
    return f"Use the following context: {field(got['user_context'], 'context')}"


TOOLS = (
    test_sampling,
    test_elicitation,
    test_streaming_elicitation,
    test_elicitation_sep1034_defaults,
    test_elicitation_sep1330_enums,
    test_input_required_result_elicitation,
    test_input_required_result_sampling,
    test_input_required_result_list_roots,
    test_input_required_result_request_state,
    test_input_required_result_multiple_inputs,
    test_input_required_result_multi_round,
    test_input_required_result_tampered_state,
    test_input_required_result_capabilities,
)


def add_to(server: MCPServer) -> None:
    """Add the tools and the prompt."""
    for tool in TOOLS:
        server.add_tool(tool)
    server.add_prompt(Prompt.from_function(test_input_required_result_prompt))
