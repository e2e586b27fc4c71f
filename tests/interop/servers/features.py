"""One of everything that a client can use, in pages of two, for the interoperability tests."""

import asyncio
from collections import defaultdict
from typing import Any

from msgspec import Struct

from portico import (
    ROOTS,
    Audio,
    Context,
    Embedded,
    Image,
    Message,
    ResourceLink,
    Server,
    Text,
    ToolError,
    ToolResult,
    elicitation,
    sampling,
)

PIXEL = b"\x89PNG\r\n\x1a\n"
TICK = b"RIFF\x00\x00\x00\x00WAVE"
NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}

server = Server(
    "features",
    "1.2.3",
    title="Features",
    instructions="Use everything once.",
    page_size=2,
    ttl_ms=5000,
    cache_scope="public",
)


# Every kind of content.


@server.tool(title="Plain text", annotations={"readOnlyHint": True})
def text() -> str:
    """Return text."""
    return "plain"


@server.tool
def picture() -> Image:
    """Return a picture."""
    return Image(PIXEL, "image/png")


@server.tool
def sound() -> Audio:
    """Return a sound."""
    return Audio(TICK, "audio/wav")


@server.tool
def embedded() -> Embedded:
    """Return a resource inside the result."""
    return Embedded("note://inside", "inside", "text/plain")


@server.tool
def pointer() -> ResourceLink:
    """Return a link to a resource."""
    return ResourceLink("note://one", "one", "text/plain")


@server.tool
def several() -> list[Text | Image | Embedded]:
    """Return several blocks."""
    return [Text("first"), Image(PIXEL, "image/png"), Embedded("note://x", b"\x00\xff")]


# Structured output.


class Weather(Struct):
    city: str
    degrees: float


@server.tool
def weather(city: str) -> Weather:
    """Return an object that has a schema."""
    return Weather(city, 21.5)


@server.tool
def primes(count: int) -> list[int]:
    """Return data that is no object."""
    return [2, 3, 5, 7, 11][:count]


def _echo(arguments: dict[str, Any]) -> ToolResult:
    return ToolResult(structured=arguments)


server.add_tool(
    {"name": "echo", "description": "Give back what came.", "inputSchema": {"type": "object"}},
    _echo,
)


def _break_promise(arguments: dict[str, Any]) -> dict[str, str]:
    return {"number": "not one"}


server.add_tool(
    {
        "name": "broken_promise",
        "inputSchema": {"type": "object"},
        "outputSchema": {
            "type": "object",
            "properties": {"number": {"type": "integer"}},
            "required": ["number"],
        },
    },
    _break_promise,
)


# Failures.


@server.tool
def fail() -> str:
    """Fail by accident."""
    raise RuntimeError("it broke")


@server.tool
async def refuse() -> str:
    """Fail on purpose."""
    raise ToolError("not today")


# Talking while at work.


@server.tool
async def steps(context: Context) -> str:
    """Report progress."""
    for done in (1, 2, 3):
        await context.progress(done, 3, f"step {done}")
    return "done"


@server.tool
async def chatter(context: Context) -> str:
    """Log at several levels."""
    for level in ("debug", "info", "warning", "error"):
        await context.log(level, {"said": level}, "features")
    return "said"


_cancelled: dict[str, asyncio.Event] = defaultdict(asyncio.Event)


@server.tool
async def wait_forever(token: str, context: Context) -> str:
    """Wait until cancelled, and remember it."""
    await context.progress(0)
    try:
        await asyncio.Event().wait()
    finally:
        _cancelled[token].set()
    return "never"


@server.tool
async def was_cancelled(token: str) -> str:
    """Return as soon as the call with this token has been cancelled."""
    await _cancelled[token].wait()
    return "it was"


# Questions to the client.


@server.tool
async def ask_name(context: Context) -> str:
    """Ask a person for a name."""
    answer = await context.elicit("Your name?", NAME)
    return f"{answer.action}: {answer.content.get('name')}"


@server.tool
async def ask_visit(context: Context) -> str:
    """Ask a person to visit a page."""
    answer = await context.elicit_url("Please sign in", "https://example.com/in", id="visit-1")
    return answer.action


@server.tool
async def ask_model(prompt: str, context: Context) -> str:
    """Ask the client's model."""
    answer = await context.sample(prompt, max_tokens=10)
    return f"{answer['model']}: {answer['content']['text']}"


@server.tool
async def ask_roots(context: Context) -> str:
    """Ask where the client works."""
    return " ".join(root["uri"] for root in await context.roots())


@server.tool
async def ask_all(context: Context) -> str:
    """Ask three things at once."""
    answers = await context.ask(
        {"name": elicitation("Your name?", NAME), "model": sampling("Hi", 10), "roots": ROOTS}
    )
    return " ".join(sorted(answers))


@server.tool
async def whoami(context: Context) -> ToolResult:
    """Tell what the server knows of its client."""
    known = {"client": context.client_info, "capabilities": context.client_capabilities}
    return ToolResult(content="known", structured=known)


# Changes while running.


@server.tool
async def grow(kind: str) -> str:
    """Add something to a list."""
    if kind == "tools":
        server.add_tool({"name": "grown", "inputSchema": {"type": "object"}}, _echo)
    elif kind == "prompts":
        server.prompt(name="grown")(lambda: "grown")
    else:
        server.resource("note://grown", name="grown")(lambda: "grown")
    return "grown"


@server.tool
async def shrink(kind: str) -> str:
    """Take it away again."""
    if kind == "tools":
        server.remove_tool("grown")
    elif kind == "prompts":
        server.remove_prompt("grown")
    else:
        server.remove_resource("note://grown")
    return "shrunk"


@server.tool
async def touch(uri: str) -> str:
    """Say that a resource has changed."""
    server.resource_updated(uri)
    return "touched"


# Resources.


@server.resource("note://one", name="one", mime_type="text/plain")
def one() -> str:
    """A text."""
    return "the first note"


@server.resource("note://two", name="two", mime_type="application/octet-stream")
def two() -> bytes:
    """Some bytes."""
    return b"\x00\x01\xff"


@server.resource("note://three", name="three")
def three() -> str:
    """A text to have a second page."""
    return "the third note"


@server.resource("day://{month}/{day}", name="day", mime_type="text/plain")
async def day(month: str, day: str) -> str:
    """One of many."""
    return f"{day} {month}"


@server.resource("year://{year}", name="year")
async def year(year: str) -> str:
    """Another family."""
    return year


@server.resource("age://{age}", name="age")
async def age(age: str) -> str:
    """A third, for a second page."""
    return age


# Prompts and completion.


@server.prompt
def greet(name: str, tone: str = "kind") -> str:
    """Greet somebody."""
    return f"Write a {tone} greeting for {name}."


@server.prompt
def show() -> list[Message]:
    """Show a picture and a resource."""
    return [
        Message(Image(PIXEL, "image/png")),
        Message(Embedded("note://x", "text", "text/plain"), role="assistant"),
    ]


@server.prompt
async def interview(context: Context) -> str:
    """Ask first."""
    answer = await context.elicit("Your name?", NAME)
    return f"Interview {answer.content.get('name')}."


@server.completion("greet", "tone")
def tones(value: str, known: dict[str, str]) -> list[str]:
    """Tones that begin like this; a known name makes one more."""
    words = ["kind", "keen", "cold", *(f"k for {name}" for name in known.values())]
    return [word for word in words if word.startswith(value)]


@server.completion("day://{month}/{day}", "month")
def months(value: str) -> list[str]:
    """Months that begin like this."""
    return [month for month in ("march", "may", "june") if month.startswith(value)]
