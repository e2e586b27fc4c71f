"""Portico, as `portico run` finds it: a server whose list changes when its tool is called."""

from itertools import count

from portico import Server

server = Server("announcing")
numbers = count()
tool = {"inputSchema": {"type": "object"}}


@server.tool
def announce() -> str:
    """Add a tool."""
    server.add_tool({**tool, "name": f"tool-{next(numbers)}"}, lambda arguments: "")
    return "announced"


@server.tool
def echo(text: str) -> str:
    """Answer with the text that was sent."""
    return text
