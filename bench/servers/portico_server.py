"""Portico, as `portico run` finds it: the tools as data, the echo answered by a function."""

import os
from typing import Any

from portico import Context, Server


async def echo(arguments: dict[str, Any], context: Context) -> str:
    """Answer with the text that was sent."""
    text: str = arguments["text"]
    return text


server = Server("bench", version="1.0.0")
server.load_tools(os.environ["BENCH_TOOLS"])
server.handler("echo", echo)
