"""Endpoints are replaced and removed while they are in use."""

import asyncio

from portico.core.model.types import Endpoint
from portico.edge.transport.routes import Routes
from tests.support.messages import initialize, request
from tests.support.stage import Stage
from tests.support.web import WAIT_S, serving, soon, tool_call

PATH = "/servers/a/mcp"
STREAM = {"accept": "text/event-stream"}


class Router:
    """An app with one more endpoint, which the test can replace."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.endpoint: Endpoint | None = self.stage.server.endpoint()
        self.app = Routes(Stage().server.endpoint(), self._find)

    def _find(self, path: str) -> Endpoint | None:
        return self.endpoint if path == PATH else None


async def test_behind_a_door_that_is_replaced_calls_finish_and_streams_end() -> None:
    routes = Router()
    async with serving(routes.app) as site:
        begun = await site.post(initialize(), path=PATH)
        headers = {"mcp-session-id": begun.headers["mcp-session-id"]}
        async with site.streamed(None, {**headers, **STREAM}, "GET", PATH) as stream:
            held = asyncio.create_task(site.post(tool_call("wait"), headers, PATH))
            await soon(routes.stage.entered)
            routes.endpoint = Stage().server.endpoint()
            routes.app.retire_stale()
            await asyncio.wait_for(stream.events(), WAIT_S)
            unknown = await site.post(request("ping"), headers, PATH)
            # The client begins a new session, as the spec requires.
            assert unknown.status_code == 404
            assert (await site.post(initialize(), path=PATH)).status_code == 200
        routes.stage.go_on.set()
        assert "waited" in (await held).text


async def test_what_runs_behind_a_door_that_is_gone_is_waited_for_at_the_end() -> None:
    routes = Router()
    async with serving(routes.app, drain_s=WAIT_S) as site:
        begun = await site.post(initialize(), path=PATH)
        headers = {"mcp-session-id": begun.headers["mcp-session-id"]}
        held = asyncio.create_task(site.post(tool_call("wait"), headers, PATH))
        await soon(routes.stage.entered)
        routes.endpoint = None
        assert (await site.post(request("ping"), headers, PATH)).status_code == 404
        ending = asyncio.create_task(routes.app.drain(WAIT_S))
        assert not (await asyncio.wait({ending}, timeout=0.3))[0]
        routes.stage.go_on.set()
        assert "waited" in (await held).text
        await ending
