"""A server written with the official SDK, whose tools all have an output schema."""

import anyio
from mcp.server.mcpserver import MCPServer
from pydantic import BaseModel

server = MCPServer("structured")


class Reading(BaseModel):
    degrees: float
    place: str


@server.tool()
async def measure(seconds: float) -> Reading:
    """Measure the temperature for a while."""
    await anyio.sleep(seconds)
    return Reading(degrees=21.5, place="Kraków")


@server.tool()
async def count(seconds: float) -> int:
    """Count for a while."""
    await anyio.sleep(seconds)
    return 42


server.run()
