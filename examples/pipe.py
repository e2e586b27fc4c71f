"""A tool that calls two others: it gives the result of the first to the second.

So a long text goes from tool to tool without the model reading and repeating it. Put it before the
components whose tools it calls:

    portico run examples/pipe.py examples/quickstart.py examples/notes_database.py

In `portico serve` it runs in the gateway's process, and the tools have the gateway's names:

    [components.pipe]
    path = "examples/pipe.py"
    in_process = true
"""

from typing import Any

from portico import Context, Server, ToolResult

server = Server(
    "pipe",
    "1.0.0",
    instructions="Use `pipe` where a tool needs the whole result of another one.",
)


@server.tool
async def pipe(
    source: str,
    target: str,
    into: str,
    source_arguments: dict[str, Any] | None = None,
    target_arguments: dict[str, Any] | None = None,
    *,
    context: Context,
) -> ToolResult:
    """Call one tool, and pass the text of its result to another one.

    Args:
        source: The tool to call first.
        target: The tool that gets the text.
        into: The argument of the target that takes the text.
        source_arguments: The arguments of the source.
        target_arguments: The other arguments of the target.
    """
    first = await context.call_tool(source, source_arguments)
    if first.is_error:
        return first
    return await context.call_tool(target, {**(target_arguments or {}), into: first.text})
