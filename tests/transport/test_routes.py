"""Doors come and go while they are used."""

import asyncio

from portico.transport.client_connection import Endpoint
from portico.transport.routes import Routes
from tests.support.messages import initialize, request
from tests.support.stage import Stage
from tests.support.web import WAIT_S, serving, soon, tool_call

DOOR = "/servers/a/mcp"
STREAM = {"accept": "text/event-stream"}


class House:
    """What is behind a door, which may be something else at any time."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.behind: Endpoint | None = self.stage.server.endpoint()
        self.app = Routes(Stage().server.endpoint(), self._find)

    def _find(self, path: str) -> Endpoint | None:
        return self.behind if path == DOOR else None


async def test_behind_a_door_that_is_replaced_calls_finish_and_streams_end() -> None:
    registry = House()
    async with serving(registry.app) as site:
        begun = await site.post(initialize(), path=DOOR)
        headers = {"mcp-session-id": begun.headers["mcp-session-id"]}
        async with site.streamed(None, {**headers, **STREAM}, "GET", DOOR) as stream:
            held = asyncio.create_task(site.post(tool_call("wait"), headers, DOOR))
            await soon(registry.stage.entered)
            registry.behind = Stage().server.endpoint()
            registry.app.retire_stale()
            await asyncio.wait_for(stream.events(), WAIT_S)
            unknown = await site.post(request("ping"), headers, DOOR)
            # Its client begins a new session, as it is told to.
            assert unknown.status_code == 404
            assert (await site.post(initialize(), path=DOOR)).status_code == 200
        registry.stage.go_on.set()
        assert "waited" in (await held).text


async def test_what_runs_behind_a_door_that_is_gone_is_waited_for_at_the_end() -> None:
    registry = House()
    async with serving(registry.app, drain_s=WAIT_S) as site:
        begun = await site.post(initialize(), path=DOOR)
        headers = {"mcp-session-id": begun.headers["mcp-session-id"]}
        held = asyncio.create_task(site.post(tool_call("wait"), headers, DOOR))
        await soon(registry.stage.entered)
        registry.behind = None
        assert (await site.post(request("ping"), headers, DOOR)).status_code == 404
        ending = asyncio.create_task(registry.app.drain(WAIT_S))
        assert not (await asyncio.wait({ending}, timeout=0.3))[0]
        registry.stage.go_on.set()
        assert "waited" in (await held).text
        await ending
