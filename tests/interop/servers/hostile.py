"""Handlers that misbehave in every way, beside one that does not."""

import asyncio
import threading
from typing import Any

from portico import BlockingContext, Context, Server

server = Server("hostile", "1")
_never = threading.Event()


@server.tool
async def good() -> str:
    """Answer."""
    return "good"


@server.tool
async def raises() -> str:
    """Raise."""
    raise KeyError("what?")


@server.tool
def raises_in_thread() -> str:
    """Raise, as a plain function."""
    raise ZeroDivisionError("nothing to divide")


@server.tool
async def raises_stop_iteration() -> str:
    """Raise what generators use among themselves."""
    raise StopAsyncIteration


@server.tool
async def exits() -> str:
    """Try to end the whole process."""
    raise SystemExit(3)


@server.tool
def exits_in_thread() -> str:
    """Try to end the whole process, as a plain function."""
    raise SystemExit(3)


@server.tool
async def never_returns(context: Context) -> str:
    """Wait for what never comes."""
    await context.progress(0)
    await asyncio.Event().wait()
    return "never"


@server.tool
def never_returns_in_thread(context: BlockingContext) -> str:
    """Wait for what never comes, as a plain function."""
    context.progress(0)
    _never.wait()
    return "never"


@server.tool
async def ignores_cancellation(context: Context) -> str:
    """Swallow every cancellation."""
    await context.progress(0)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


def _wrong_type(arguments: dict[str, Any]) -> Any:
    return object()


def _no_json(arguments: dict[str, Any]) -> Any:
    return {"not json": {1, 2}, "nor": float("nan"), "self": object}


def _endless(arguments: dict[str, Any]) -> Any:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def _lone_surrogate(arguments: dict[str, Any]) -> Any:
    return "\ud800"


for _handler in (_wrong_type, _no_json, _endless, _lone_surrogate):
    server.add_tool({"name": _handler.__name__[1:], "inputSchema": {"type": "object"}}, _handler)


@server.resource("hostile://raises", name="raises")
async def read_raises() -> str:
    """Raise when read."""
    raise OSError("no disk")


@server.resource("hostile://wrong", name="wrong")
async def read_wrong() -> Any:
    """Return what no resource holds."""
    return object()


@server.prompt
def prompt_raises() -> str:
    """Raise when asked for."""
    raise LookupError("no words")


@server.prompt
def prompt_wrong(name: str = "") -> Any:
    """Return what no prompt is."""
    return object()


@server.completion("prompt_wrong", "name")
def complete_wrong(value: str) -> Any:
    """Return what no completion is."""
    return 7
