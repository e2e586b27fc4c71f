"""The same as `portico_server.py`, with a tool that runs as a task, and a store on disk."""

import os

from bench.servers.portico_server import echo
from portico import Server

server = Server("bench", version="1.0.0", tasks=os.environ["BENCH_TASKS"])
server.load_tools(os.environ["BENCH_TOOLS"])
server.handler("echo", echo)


@server.tool(task=True)
async def work(text: str) -> str:
    """Answer with the text that was sent, as a task."""
    return text
