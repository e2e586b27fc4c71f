"""A server whose handlers tell what happens to them, and wait to be let go."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from portico import Context, Server
from portico.edge.transport.http_limits import HttpLimits
from tests.support.web import Site, serving


class Stage:
    """A server whose handlers tell what happens to them, and wait to be let go."""

    def __init__(self) -> None:
        self.server = Server("stage")
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.go_on = asyncio.Event()
        self.running = 0
        self.server.tool(self.echo)
        self.server.tool(self.talk)
        self.server.tool(self.wait)
        self.server.tool(self.fail)
        self.server.tool(self.ask)

    async def echo(self, text: str) -> str:
        return text

    async def talk(self, times: int, *, context: Context) -> str:
        for number in range(times):
            await context.progress(number, times)
        return "said"

    async def wait(self, *, context: Context, talk_first: bool = False) -> str:
        if talk_first:
            await context.progress(0)
        self.running += 1
        self.entered.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        finally:
            self.running -= 1
        return "waited"

    async def fail(self) -> str:
        raise RuntimeError("a secret of ours")

    async def ask(self, *, context: Context) -> str:
        answer = await context.elicit("Name?", {"type": "object", "properties": {}})
        return answer.action


@asynccontextmanager
async def staged(
    limits: HttpLimits | None = None, **options: Any
) -> AsyncIterator[tuple[Stage, Site]]:
    stage = Stage()
    async with serving(stage.server.asgi(limits=limits, **options)) as site:
        yield stage, site
