"""A component whose results have an address.

`lookup` fails until the file `ready` exists, and waits until the file `gate` does; `region` takes a
parameter that is also a header; `denied` is for a config that denies it.
"""

import time
from pathlib import Path

from portico import Server, ToolError

SECRET = "ana@example.com"
server = Server("book", "1.0.0")


@server.tool(task=True)
def lookup(ready: str = "/", gate: str = "/") -> str:
    """Find an address."""
    while not Path(gate).exists():
        time.sleep(0.01)
    if not Path(ready).exists():
        raise ToolError(f"not yet, ask {SECRET}")
    return f"write to {SECRET}"


@server.tool
def plain(gate: str = "/") -> str:
    """Find an address, without a task."""
    return lookup(gate=gate)


@server.tool(task=True)
def denied() -> str:
    """Say that it ran."""
    return "it ran"


server.add_tool(
    {
        "name": "region",
        "inputSchema": {
            "type": "object",
            "properties": {"place": {"type": "string", "x-mcp-header": "Place"}},
        },
        "execution": {"taskSupport": "optional"},
    },
    lambda arguments: f"in {arguments.get('place')}",
)
