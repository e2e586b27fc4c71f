"""A server that says where it runs, and has a tool for each `.tool` file of its project."""

import asyncio
import os
import time
from pathlib import Path

from portico import Server
from portico.gateway.app import serve_stdio

server = Server("placed", "1")


@server.tool
async def where() -> str:
    """Say in which folder this process runs, and which process it is."""
    return f"{Path.cwd()} {os.getpid()}"


@server.tool
async def hold() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return ""


@server.tool(task=True)
def wait(file: str) -> str:
    """Wait for a file of this folder, and say where that is."""
    while not Path(file).exists():
        time.sleep(0.02)
    return f"found in {Path.cwd()}"


def _of_project(name: str) -> None:
    @server.tool(name=name)
    async def of_project() -> str:
        """Do a thing of this project."""
        return f"{name} in {Path.cwd()}"


for file in sorted(Path.cwd().glob("*.tool")):
    _of_project(file.stem)

serve_stdio(server)
