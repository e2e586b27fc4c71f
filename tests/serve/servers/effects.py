"""A component whose tasks write each effect to a ledger, which is named by `LEDGER`.

A line is `EVENT TASK TIME PROCESS`, with the event `start` or `end`.
"""

import asyncio
import os
import time
from pathlib import Path

from portico import Context, Server

server = Server("effects")


def note(event: str, id: str) -> None:
    """Write one line, whole even if the process is killed."""
    handle = os.open(os.environ["LEDGER"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, f"{event} {id} {time.time()} {os.getpid()}\n".encode())
    os.close(handle)


@server.tool(task=True)
async def effect(context: Context, number: int, ms: int) -> str:
    """Have an effect, which takes a time."""
    id = context.task.id if context.task is not None else "none"
    note("start", id)
    await asyncio.sleep(ms / 1000)
    note("end", id)
    return f"effect {number}"


@server.tool(task=True)
async def gated(context: Context, gate: str) -> str:
    """Have an effect once a file exists."""
    id = context.task.id if context.task is not None else "none"
    note("start", id)
    while not Path(gate).exists():  # noqa: ASYNC110, ASYNC240  (another process makes it)
        await asyncio.sleep(0.01)
    note("end", id)
    return f"passed {gate}"


@server.tool
def plain() -> str:
    """Answer at once."""
    return str(os.getpid())
