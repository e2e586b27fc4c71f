"""Tasks of a server behind links, in memory: no answer of a task bypasses a link."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from examples.redact import links as redacting
from portico import Answer, Context, Handler, Link, McpError, Only, Request, Response, Server, after
from portico.core.model.session import Session
from portico.core.model.version import BY_TEXT
from portico.core.protocol.codec import encode
from portico.core.protocol.inbound import read
from portico.library.chain.endpoint import ChainEndpoint
from portico.library.tasks.store.record import COMPLETED
from portico.library.tasks.store.store import TaskStore, tasks_in_memory
from tests.support.messages import MODERN, modern, request
from tests.support.task_runners import seen
from tests.tasks_protocol.follower import ABLE

LEGACY = "2025-11-25"
SECRET = "ana@example.com"
ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])


def make(store: TaskStore) -> Server:
    """A server whose tools return an address, or refuse with one."""
    server = Server("book", "1", tasks=store)

    @server.tool(task=True)
    async def find(context: Context) -> str:
        """Find an address."""
        return f"write to {SECRET}"

    @server.tool(task=True)
    async def fail() -> str:
        """Fail with an address."""
        raise McpError(f"ask {SECRET}", code=-31000)

    @server.tool(task="manual")
    async def later(context: Context) -> str:
        """Find an address as a task, from some point on."""
        await context.begin_task()
        return f"write to {SECRET}"

    definition = {
        "name": "region",
        "inputSchema": {
            "type": "object",
            "properties": {"place": {"type": "string", "x-mcp-header": "Place"}},
        },
        "execution": {"taskSupport": "optional"},
    }
    server.add_tool(definition, lambda arguments: f"in {arguments['place']}")
    return server


class Caller:
    """A client of one endpoint, in either era."""

    def __init__(
        self,
        endpoint: ChainEndpoint,
        version: str,
        store: TaskStore,
        able: dict[str, Any] | None = None,
    ) -> None:
        self._able = {**ABLE, **(able or {})}
        self._endpoint = endpoint
        self._store = store
        self.modern = version == MODERN
        self._version = version

    async def ask(
        self, method: str, headers: dict[str, str] | None = None, **params: Any
    ) -> dict[str, Any]:
        """The whole answer to a request."""
        message = modern(method, params, self._able) if self.modern else request(method, params)
        session = None
        if not self.modern:
            session = Session(lambda _: None)
            session.capabilities = self._able
        context = Context(version=BY_TEXT[self._version], session=session)
        made = read(encode(message), BY_TEXT[self._version], None)
        assert isinstance(made, Request)
        context.headers = headers
        answer: dict[str, Any] = (await self._endpoint.handle(made, context)).decode()
        return answer

    async def call(self, tool: str, headers: Any = None, **arguments: Any) -> dict[str, Any]:
        """The whole answer to a call that may become a task."""
        more: dict[str, Any] = {} if self.modern else {"task": {}}
        return await self.ask("tools/call", headers, name=tool, arguments=arguments, **more)

    async def begin(self, tool: str, **arguments: Any) -> str:
        """Begin a task; its id."""
        result = (await self.call(tool, **arguments))["result"]
        id: str = (result if self.modern else result["task"])["taskId"]
        return id

    async def ended(self, id: str) -> dict[str, Any]:
        """A task as it has ended, with its result or error, whichever way the era has."""
        if not self.modern:
            return await self.ask("tasks/result", taskId=id)
        await seen(self._store, id, lambda task: task.is_finished)
        return await self.ask("tasks/get", taskId=id)


@asynccontextmanager
async def calling(
    version: str, *links: Link, store: TaskStore | None = None
) -> AsyncIterator[Caller]:
    """A client of a server behind links."""
    store = store or tasks_in_memory()
    server = make(store)
    endpoint = server.endpoint(links)
    async with server.running():
        yield Caller(endpoint, version, store)


def appending(next: Handler) -> Handler:
    """Add a word to each text, which shows how often a result passed."""

    def add(response: Response) -> Response:
        return Response(id=response.id, result=response.result.replace(b"write", b"please write"))

    def handle(request: Request, context: Context) -> Answer:
        answer = next(request, context)
        return after(answer, add) if request.method == "tools/call" else answer

    return handle


@ERAS
@pytest.mark.parametrize("tool", ["find", "later"])
async def test_a_result_passes_the_links_once_before_it_is_stored(version: str, tool: str) -> None:
    async with calling(version, *redacting, appending) as client:
        ended = json.dumps(await client.ended(await client.begin(tool)))
        assert "please write to [e-mail]" in ended
        assert ended.count("please") == 1
        assert SECRET not in ended


@ERAS
async def test_an_error_passes_the_links_too(version: str) -> None:
    async with calling(version, *redacting) as client:
        ended = json.dumps(await client.ended(await client.begin("fail")))
        assert "ask [e-mail]" in ended
        assert SECRET not in ended


@ERAS
async def test_a_result_that_passed_one_endpoint_passes_the_links_of_another(version: str) -> None:
    server = make(store := tasks_in_memory())
    private = Caller(server.endpoint(), version, store)
    public = Caller(server.endpoint(redacting), version, store)
    async with server.running():
        id = await private.begin("find")
        assert SECRET in json.dumps(await private.ended(id))
        shown = json.dumps(await public.ended(id))
        assert "write to [e-mail]" in shown
        assert SECRET not in shown


@ERAS
async def test_a_stored_call_runs_at_the_endpoint_that_received_it(version: str) -> None:
    server = make(store := tasks_in_memory())
    server.endpoint()
    public = Caller(server.endpoint([*redacting, appending]), version, store)
    async with server.running():
        ended = json.dumps(await public.ended(await public.begin("find")))
        assert "please write to [e-mail]" in ended


@ERAS
@pytest.mark.parametrize("links", [[Only(tools=["region"])], [*redacting, Only(tools=["region"])]])
async def test_a_hidden_tool_never_becomes_a_task(version: str, links: Sequence[Link]) -> None:
    store = tasks_in_memory()
    async with calling(version, *links, store=store) as client:
        plain = await client.ask("tools/call", name="find", arguments={})
        assert plain["error"]["message"] == "unknown tool: find"
        assert (await client.call("find"))["error"] == plain["error"]
        page = await store.page("local")
        assert page is not None
        assert page.tasks == []


async def test_a_call_with_a_wrong_header_never_becomes_a_task() -> None:
    store = tasks_in_memory()
    async with calling(MODERN, *redacting, store=store) as client:
        headers = {"mcp-param-place": "here"}
        refused = await client.call("region", headers, place="there")
        assert refused["error"]["code"] == -32020
        page = await store.page("local")
        assert page is not None
        assert page.tasks == []
        right = await client.call("region", {"mcp-param-place": "there"}, place="there")
        assert right["result"]["resultType"] == "task"


@ERAS
async def test_the_tasks_of_a_tool_that_is_hidden_later_are_unknown(version: str) -> None:
    server = make(store := tasks_in_memory())
    endpoint = server.endpoint()
    client = Caller(endpoint, version, store)
    async with server.running():
        id = await client.begin("find")
        await client.ended(id)
        endpoint.relink([Only(tools=["region"])])
        for method in ("tasks/get", "tasks/cancel"):
            answer = await client.ask(method, taskId=id)
            assert "task not found" in answer["error"]["message"]
        if not client.modern:
            assert "task not found" in (await client.ended(id))["error"]["message"]
            assert (await client.ask("tasks/list"))["result"]["tasks"] == []


@ERAS
async def test_a_link_that_refuses_a_resumed_call_ends_its_task(version: str) -> None:
    is_open = [True]

    def gate(next: Handler) -> Handler:
        def handle(request: Request, context: Context) -> Answer:
            if request.method == "tools/call" and not is_open[0]:
                raise McpError("closed by now", code=-31000)
            return next(request, context)

        return handle

    store = tasks_in_memory()
    async with calling(version, gate, store=store) as client:
        id = await client.begin("fail")
        await client.ended(id)
        is_open[0] = False
        again = await store.resume("local", id)
        assert again is not None
        assert "closed by now" in json.dumps(await client.ended(again.id))


@ERAS
async def test_a_result_that_an_older_portico_stored_passes_the_links_when_it_is_read(
    version: str,
) -> None:
    store = tasks_in_memory()
    async with calling(version, *redacting, store=store) as client:
        id = await client.begin("find")
        await client.ended(id)
        found = await store.get("local", id)
        assert found is not None
        input = await store.input(found)
        assert input is not None
        call = {**json.loads(input), "at": ""}
        old = {"result": {"content": [{"type": "text", "text": f"write to {SECRET}"}]}}
        kept = await stored(store, found.kind, json.dumps(call).encode(), json.dumps(old).encode())
        shown = json.dumps(await client.ended(kept))
        assert "write to [e-mail]" in shown
        assert SECRET not in shown


async def stored(store: TaskStore, kind: str, input: bytes, payload: bytes) -> str:
    """The id of a task that another worker has finished."""
    task = await store.adopt("local", kind, input, "another", 60.0, None, is_repeatable=False)
    assert task.lease is not None
    assert await store.finish(task.lease, COMPLETED, payload) is not None
    return task.id
