"""A server that writes down each of its starts, and says which of them it is."""

import asyncio
import os
import sys
from pathlib import Path

from portico import Server
from portico.gateway.app import serve_stdio

with Path(sys.argv[1]).open("a") as book:
    book.write(f"{os.getpid()}\n")

server = Server("counting", "1")


@server.tool
async def who() -> str:
    """Say which process this is."""
    return str(os.getpid())


@server.tool
async def work(seconds: float) -> str:
    """Take so long."""
    await asyncio.sleep(seconds)
    return f"worked {seconds:g} s"


@server.tool
async def hold() -> str:
    """Never answer."""
    await asyncio.Event().wait()
    return ""


serve_stdio(server)
