"""The tools that the conformance suite's scenarios for tasks call, and one for every outcome."""

import asyncio
import os
from collections import Counter
from dataclasses import dataclass

from portico import Context, McpError, Server, ToolError

server = Server("tasks", "1.0.0")
runs: Counter[str] = Counter()
CONFIRM = {"type": "object", "properties": {"confirm": {"type": "boolean"}}}


@server.tool
def greet(name: str) -> str:
    """Greet someone, at once."""
    return f"Hello, {name}!"


@server.tool(task=True)
async def slow_compute(seconds: float, context: Context, label: str = "") -> str:
    """Compute something for a while."""
    await context.progress(0, 1, f"computing {label}")
    await asyncio.sleep(seconds)
    return f"computed {label} in {seconds} s"


@server.tool(task="required")
async def failing_job() -> str:
    """Fail after a moment."""
    await asyncio.sleep(0.2)
    raise ToolError("the job failed")


@server.tool(task=True)
async def protocol_error_job() -> str:
    """End with an error of the protocol."""
    await asyncio.sleep(0.1)
    raise McpError("the machinery broke", -32603)


@server.tool(task=True)
async def confirm_delete(filename: str, context: Context) -> str:
    """Delete a file after confirmation."""
    answer = await context.elicit(f"Delete {filename}?", CONFIRM)
    return f"deleted {filename}" if answer.accepted else f"kept {filename}"


@server.tool(task=True)
async def multi_input(context: Context) -> str:
    """Ask two questions at once."""
    first, second = await asyncio.gather(
        context.elicit("First?", CONFIRM), context.elicit("Second?", CONFIRM)
    )
    return f"{first.action} {second.action}"


@server.tool(task="manual")
async def test_tool_with_task(context: Context) -> str:
    """Ask for a name, then work on it as a task."""
    form = {"type": "object", "properties": {"name": {"type": "string"}}}
    answer = await context.elicit("Your name?", form, key="user_name")
    await context.begin_task()
    await asyncio.sleep(0.1)
    return f"Hello, {answer.content.get('name')}!"


@server.tool(task=True)
async def ask_twice(context: Context, label: str = "") -> str:
    """Ask two questions, one after the other."""
    runs[label] += 1
    first = await context.elicit("First?", CONFIRM)
    second = await context.elicit("Second?", CONFIRM)
    return f"{first.action} {second.action}, run {runs[label]}"


@server.tool
def pid() -> int:
    """Return the id of this process."""
    return os.getpid()


@server.tool(task=True)
async def stages(context: Context, pause: float = 1.1) -> str:
    """Report progress twice, with a pause between."""
    await context.progress(1, 3, "one third")
    await asyncio.sleep(pause)
    await context.progress(2, 3, "two thirds")
    await asyncio.sleep(pause)
    return "all stages"


@server.tool(task=True)
async def large(megabytes: int) -> str:
    """Return a long text."""
    return "x" * (megabytes * 1_000_000)


@server.tool
async def wait(seconds: float, context: Context) -> str:
    """Wait; this tool does not run as a task."""
    await context.progress(0, 1, "waiting")
    await asyncio.sleep(seconds)
    return f"waited {seconds} s"


@server.tool(annotations={"readOnlyHint": True})
async def doze(seconds: float) -> str:
    """Wait; this tool is read-only."""
    await asyncio.sleep(seconds)
    return f"dozed {seconds} s"


@server.tool
async def wait_and_ask(seconds: float, context: Context) -> str:
    """Wait, then ask; this tool does not run as a task."""
    await asyncio.sleep(seconds)
    answer = await context.elicit("Go on?", CONFIRM)
    return f"answered {answer.action}"


@dataclass
class Reading:
    """A structured result."""

    degrees: float


@server.tool
async def measure(seconds: float) -> Reading:
    """Return a structured result after a while."""
    await asyncio.sleep(seconds)
    return Reading(degrees=21.5)


if __name__ == "__main__":
    server.run()
