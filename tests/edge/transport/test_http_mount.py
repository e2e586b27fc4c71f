"""The app is a bare ASGI callable, mounted anywhere, several times, or served alone."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from portico import Only, RegistrationError, Server
from portico.edge.transport.http_limits import HttpLimits
from tests.support.messages import initialize, modern, request
from tests.support.stage import Stage, staged
from tests.support.web import HEADERS, mirrored, modern_call, soon

LIST = modern("tools/list")


@asynccontextmanager
async def browsing(app: Any, base: str = "http://testserver") -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url=base, headers=HEADERS) as client:
        yield client


async def hello(_: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def test_two_mounts_with_different_links_and_tokens_live_in_one_application() -> None:
    stage = Stage()
    public = stage.server.asgi(links=[Only(tools=["echo"])], token="p" * 20, hosts=None)
    private = stage.server.asgi(token="s" * 20, hosts=None)
    app = Starlette(
        routes=[
            Route("/", hello),
            Mount("/public", public),
            Mount("/private", private),
        ]
    )
    async with browsing(app) as client:
        tools = {}
        for path, token in (("/public", "p" * 20), ("/private", "s" * 20)):
            headers = {**mirrored(LIST), "authorization": f"Bearer {token}"}
            response = await client.post(f"{path}/mcp", json=LIST, headers=headers)
            assert response.status_code == 200, response.text
            tools[path] = [tool["name"] for tool in response.json()["result"]["tools"]]
        wrong = await client.post(
            "/private/mcp",
            json=LIST,
            headers={**mirrored(LIST), "authorization": f"Bearer {'p' * 20}"},
        )
        health = await client.get("/private/healthz")
        other = await client.get("/")

    assert tools["/public"] == ["echo"]
    assert len(tools["/private"]) == 5
    assert wrong.status_code == 401
    assert (health.status_code, other.text) == (200, "hello")


async def test_a_session_of_one_mount_is_unknown_to_the_other() -> None:
    server = Server("x")
    routes = [Mount("/a", server.asgi(hosts=None)), Mount("/b", server.asgi(hosts=None))]
    async with browsing(Starlette(routes=routes)) as client:
        begun = await client.post("/a/mcp", json=initialize())
        headers = {"mcp-session-id": begun.headers["mcp-session-id"]}
        here = await client.post("/a/mcp", json=request("ping"), headers=headers)
        there = await client.post("/b/mcp", json=request("ping"), headers=headers)

    assert (here.status_code, there.status_code) == (200, 404)


@pytest.mark.parametrize("path", ["/mount", "/mount/"])
async def test_a_mount_can_be_the_endpoint_itself(path: str) -> None:
    app = Server("x").asgi(hosts=None, path="/")
    scope = {"path": path, "root_path": "/mount"}

    async def mounted(outer: Any, receive: Any, send: Any) -> None:
        await app({**outer, **scope}, receive, send)

    async with browsing(mounted) as client:
        response = await client.post(path, json=initialize())

    assert response.status_code == 200


async def test_a_framework_that_strips_the_prefix_will_do_too() -> None:
    app = Server("x").asgi(hosts=None)

    async def stripping(outer: Any, receive: Any, send: Any) -> None:
        await app({**outer, "path": "/mcp", "root_path": "/prefix"}, receive, send)

    async with browsing(stripping) as client:
        response = await client.post("/prefix/mcp", json=initialize())

    assert response.status_code == 200


async def test_a_mount_is_for_loopback_unless_told_otherwise() -> None:
    async with browsing(Server("x").asgi()) as client:
        refused = await client.post("/mcp", json=initialize())
    async with browsing(Server("x").asgi(hosts=["testserver"])) as client:
        allowed = await client.post("/mcp", json=initialize())

    assert (refused.status_code, allowed.status_code) == (403, 200)


async def test_health_needs_no_token_and_everything_else_does() -> None:
    async with staged(token="t" * 20) as (_, site):
        health = [
            (await site.client.get(site.url + path)).status_code for path in ("/healthz", "/readyz")
        ]
        paths = ("/mcp", "/mcp/", "/sse", "/messages", "/metrics", "/nope", "/", "/servers/x/mcp")
        answers = [
            await site.client.request(method, site.url + path, content=body)
            for path in paths
            for method, body in (("GET", None), ("POST", b"{}"), ("DELETE", None), ("PUT", b""))
        ]

    assert health == [200, 200]
    # Without the token, a client cannot learn which paths exist, or their methods.
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    assert len({tuple(sorted(answer.headers)) for answer in answers}) == 1


async def test_the_lifespan_of_the_host_is_lived_and_websockets_are_turned_away() -> None:
    app = Server("x").asgi()
    sent: list[Any] = []
    events = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(events)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    events = iter([{"type": "websocket.connect"}])
    await app({"type": "websocket", "path": "/mcp", "headers": []}, receive, send)

    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete", "websocket.close"]


class Foreign:
    """A server that is not ours: it reports a disconnect only by a message."""

    def __init__(self, body: bytes | None, headers: dict[str, str]) -> None:
        self.body = body
        self.left = asyncio.Event()
        self.sent: list[Any] = []
        lines = {"host": "localhost", "content-type": "application/json", **headers}
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "headers": [(name.encode(), value.encode()) for name, value in lines.items()],
        }

    async def receive(self) -> Any:
        if self.body is not None:
            body, self.body = self.body, None
            return {"type": "http.request", "body": body}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


async def test_on_a_foreign_server_a_client_that_leaves_cancels_its_call_too() -> None:
    stage = Stage()
    call = modern_call("wait")
    foreign = Foreign(json.dumps(call).encode(), mirrored(call))
    serving = asyncio.create_task(stage.server.asgi()(foreign.scope, foreign.receive, foreign.send))
    await soon(stage.entered)
    foreign.left.set()
    await soon(stage.cancelled)
    await serving

    assert foreign.sent == []


async def test_on_a_foreign_server_a_body_is_not_waited_for_either() -> None:
    foreign = Foreign(None, mirrored(LIST))
    app = Server("x").asgi(limits=HttpLimits(body_s=0.02))

    await app(foreign.scope, foreign.receive, foreign.send)

    assert foreign.sent[0]["status"] == 408


async def test_a_client_that_leaves_before_its_body_came_is_not_answered() -> None:
    foreign = Foreign(None, mirrored(LIST))
    foreign.left.set()

    await Server("x").asgi()(foreign.scope, foreign.receive, foreign.send)

    assert foreign.sent == []


def test_an_app_can_be_mounted_without_loading_a_server() -> None:
    code = (
        "import sys, portico.edge.transport.http_app;"
        "print([m for m in ('uvicorn', 'uvloop', 'httptools') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


async def test_an_app_that_was_shut_down_can_be_started_again() -> None:
    app = Server("x").asgi(hosts=["testserver"])

    for _ in range(2):
        sent: asyncio.Queue[Any] = asyncio.Queue()
        words: asyncio.Queue[Any] = asyncio.Queue()
        words.put_nowait({"type": "lifespan.startup"})
        lifespan = asyncio.create_task(app({"type": "lifespan"}, words.get, sent.put))
        await sent.get()
        async with browsing(app) as client:
            assert (await client.post("/mcp", json=initialize())).status_code == 200
            assert (await client.get("/readyz")).status_code == 200
            words.put_nowait({"type": "lifespan.shutdown"})
            await lifespan
            assert (await client.get("/readyz")).status_code == 503


async def test_a_principal_is_text_that_a_plain_function_gives() -> None:
    async def later(scope: Any) -> str:
        return "ana"

    with pytest.raises(RegistrationError, match="principal must be a plain function"):
        Server("x").asgi(principal=later)  # type: ignore[arg-type]
    with pytest.raises(RegistrationError, match="data must be a plain function"):
        Server("x").asgi(data=later)
    nobody: Any = lambda scope: None  # noqa: E731  (what a dict's get gives)
    async with browsing(Server("x").asgi(hosts=None, principal=nobody)) as client:
        with pytest.raises(TypeError, match="principal must be a string, not NoneType"):
            await client.post("/mcp", json=initialize())
