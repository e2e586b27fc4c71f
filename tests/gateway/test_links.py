"""Links in front of a gateway and of `wrap`: what they see, and what becomes of their answers."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico import Answer, Context, Handler, Link, McpError, Request, Response, Server, after
from portico.core.config.schema import Gateway, Group
from portico.core.config.schema import ServerEntry as Entry
from portico.core.model.session import Session
from portico.core.model.version import BY_TEXT
from portico.core.state.pending import Pending
from portico.gateway.members.in_process_server import in_process_entries
from portico.gateway.wrap_app import WrapApp, WrapOptions
from portico.library.chain.endpoint import ChainEndpoint
from portico.upstream.connections.policy import UpstreamPolicy
from tests.gateway.registries import LEGACY, MODERN, Client, Prompt, World, config, registry

ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])
Seen = list[tuple[str, str, Any]]


def shop(called: list[Any] | None = None) -> Server:
    server = Server("shop", "1")

    @server.tool
    async def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        if called is not None:
            called.append((a, b))
        return a + b

    return server


@asynccontextmanager
async def served(
    *links: Link, door: str = "search", server: Server | None = None, **more: Any
) -> AsyncGenerator[ChainEndpoint, None]:
    """A door of a gateway over one server; `wrap` and `members` are others."""
    world = World({"shop": server or shop()}, wire=Prompt)
    if door == "wrap":
        address = world.address(Entry(name="shop", command="shop"), None)
        asked = WrapOptions(
            address, UpstreamPolicy(), key=str, history="", cache=False, links=links
        )
        wrapped = WrapApp(asked, alone=False)
        if more.get("known", True):
            await wrapped.upstream.fetch_catalog()
        yield wrapped.endpoint
        await wrapped.upstream.close()
        return
    groups = {"team": Group(servers=("shop",))}
    local = door == "members"
    settings = config(*(() if local else ("shop",)), gateway=Gateway(), groups=groups)
    if local:
        more["local"] = in_process_entries(world.servers, settings)
    async with registry(world, settings, links=links, **more) as gateway:
        await gateway.refresh(gateway.members)
        doors: dict[str, Callable[[], ChainEndpoint | None]] = {
            "group": lambda: gateway.endpoint("team"),
            "alone": lambda: gateway.server_endpoint("shop"),
            "all": lambda: gateway.endpoint(searches=False),
        }
        endpoint = doors.get(door, gateway.endpoint)()
        assert endpoint is not None
        yield endpoint


DOORS = pytest.mark.parametrize("door", ["search", "all", "group", "alone", "members", "wrap"])
MERGED = pytest.mark.parametrize("door", ["search", "all", "group", "members"])


def name_at(door: str, *, shown: bool = False) -> str:
    """What the tool is called there, by clients or by links."""
    own = door == "wrap" or (door == "alone" and not shown)
    return "add" if own else "shop__add"


def noting(seen: Seen) -> Link:
    """A link that writes down the calls it sees."""

    def link(next: Handler) -> Handler:
        def handle(request: Request, context: Context) -> Answer:
            if request.method == "tools/call":
                seen.append((request.name, request.asked, request.decode().get("arguments")))
            return next(request, context)

        return handle

    return link


@ERAS
@MERGED
@pytest.mark.parametrize("given", [{"a": 2, "b": 3}, '{"a": 2, "b": 3}'], ids=["object", "string"])
async def test_execute_tool_is_seen_once_as_a_call_of_the_tool(
    version: str, door: str, given: Any
) -> None:
    seen: Seen = []
    async with served(noting(seen), door=door) as endpoint:
        client = Client(endpoint, version)
        if version == LEGACY:
            await client.hello()
        result = await client.call("execute_tool", name="shop__add", arguments=given)
    assert result["structuredContent"] == {"result": 5}
    assert seen == [("shop__add", "execute_tool", {"a": 2, "b": 3})]


@ERAS
@DOORS
async def test_a_call_is_seen_once_under_the_name_that_is_shown(version: str, door: str) -> None:
    seen: Seen = []
    async with served(noting(seen), door=door) as endpoint:
        client = Client(endpoint, version)
        if version == LEGACY:
            await client.hello()
        result = await client.call(name_at(door), a=2, b=3)
    assert result["structuredContent"] == {"result": 5}
    assert seen == [(name_at(door, shown=True), "", {"a": 2, "b": 3})]


@ERAS
@MERGED
async def test_a_call_of_another_meta_tool_is_seen_as_it_is(version: str, door: str) -> None:
    seen: Seen = []
    async with served(noting(seen), door=door) as endpoint:
        await Client(endpoint, version).call("search_tools", query="add")
    assert seen == [("search_tools", "search_tools", {"query": "add"})]


def named(request: Request) -> bool:
    return request.method == "tools/call" and request.name in ("add", "shop__add")


def answering(next: Handler) -> Handler:
    """A link that answers for the tool itself."""

    def handle(request: Request, context: Context) -> Answer:
        if named(request):
            text = {"content": [{"type": "text", "text": "mine"}], "resultType": "complete"}
            return Response(id=request.id, result=json.dumps(text).encode())
        return next(request, context)

    return handle


def refusing(next: Handler) -> Handler:
    def handle(request: Request, context: Context) -> Answer:
        if named(request):
            raise McpError("not today", code=-31000)
        return next(request, context)

    return handle


def changing(next: Handler) -> Handler:
    def change(response: Response) -> Response:
        return Response(id=response.id, result=response.result.replace(b"5", b"6"))

    def handle(request: Request, context: Context) -> Answer:
        answer = next(request, context)
        return after(answer, change) if named(request) else answer

    return handle


def refusing_late(next: Handler) -> Handler:
    def refuse(response: Response) -> Response:
        raise McpError("not today", code=-31000)

    def handle(request: Request, context: Context) -> Answer:
        answer = next(request, context)
        return after(answer, refuse) if named(request) else answer

    return handle


def waiting(next: Handler) -> Handler:
    """A link that is a coroutine."""

    async def handle(request: Request, context: Context) -> Response:
        return await next(request, context)

    return handle


async def answer_of(endpoint: ChainEndpoint, door: str, version: str, way: str) -> dict[str, Any]:
    """The answer to a call of the tool, directly or by `execute_tool`."""
    client = Client(endpoint, version)
    if version == LEGACY:
        await client.hello()
    given: dict[str, Any] = {"name": name_at(door), "arguments": {"a": 2, "b": 3}}
    if way == "execute":
        given = {"name": "execute_tool", "arguments": given}
    return await client.request("tools/call", given)


WAYS = pytest.mark.parametrize(
    ("door", "way"),
    [
        *((door, "direct") for door in ("search", "all", "group", "alone", "members", "wrap")),
        *((door, "execute") for door in ("search", "all", "group", "members")),
    ],
)


@ERAS
@WAYS
async def test_a_link_may_answer_itself(version: str, door: str, way: str) -> None:
    called: list[Any] = []
    async with served(answering, door=door, server=shop(called)) as endpoint:
        answer = await answer_of(endpoint, door, version, way)
    assert answer["result"]["content"][0]["text"] == "mine"
    assert called == []


@ERAS
@WAYS
async def test_a_link_may_refuse(version: str, door: str, way: str) -> None:
    called: list[Any] = []
    async with served(refusing, door=door, server=shop(called)) as endpoint:
        answer = await answer_of(endpoint, door, version, way)
    assert answer["error"] == {"code": -31000, "message": "not today"}
    assert called == []


@ERAS
@WAYS
async def test_a_link_may_change_an_answer(version: str, door: str, way: str) -> None:
    async with served(changing, door=door) as endpoint:
        answer = await answer_of(endpoint, door, version, way)
    assert answer["result"]["structuredContent"] == {"result": 6}


@ERAS
@WAYS
async def test_a_link_may_refuse_when_it_has_seen_the_answer(
    version: str, door: str, way: str
) -> None:
    async with served(refusing_late, door=door) as endpoint:
        answer = await answer_of(endpoint, door, version, way)
    assert answer["error"] == {"code": -31000, "message": "not today"}


@ERAS
@WAYS
async def test_a_link_may_be_a_coroutine(version: str, door: str, way: str) -> None:
    async with served(waiting, changing, waiting, door=door) as endpoint:
        answer = await answer_of(endpoint, door, version, way)
    assert answer["result"]["structuredContent"] == {"result": 6}


def guarding(next: Handler) -> Handler:
    """A link that lets nobody read a resource, which it knows by its URI."""

    def handle(request: Request, context: Context) -> Answer:
        if request.uri == "memo://own":
            raise McpError("not today", code=-31000)
        return next(request, context)

    return handle


@ERAS
@pytest.mark.parametrize("known", [True, False])
async def test_a_resource_asked_for_by_its_name_is_guarded_by_its_uri(
    version: str, known: bool
) -> None:
    server = shop()
    server.resource("memo://own", name="memo")(lambda: "own")
    server.resource("memo://free", name="free")(lambda: "free")
    async with served(guarding, door="wrap", server=server, known=known) as endpoint:
        client = Client(endpoint, version)
        if version == LEGACY:
            await client.hello()
        answers = [
            await client.request("resources/read", {"uri": "", "name": name})
            for name in ("memo", "free", "nothing")
        ]
    assert answers[0]["error"] == {"code": -31000, "message": "not today"}
    assert answers[1]["result"]["contents"][0]["text"] == "free"
    assert answers[2]["error"]["message"] == "unknown resource: nothing"


def noop(next: Handler) -> Handler:
    def handle(request: Request, context: Context) -> Answer:
        return next(request, context)

    return handle


@pytest.mark.parametrize("links", [(), (noop, noop)], ids=["plain", "linked"])
@pytest.mark.parametrize("door", ["search", "all", "group", "alone", "wrap"])
async def test_a_plain_link_keeps_the_kind_of_an_answer(door: str, links: tuple[Link, ...]) -> None:
    async with served(*links, door=door) as endpoint:
        session = Session(lambda _: None)
        session.version = BY_TEXT[LEGACY]

        def ask(method: str, **params: Any) -> Answer:
            sent = json.dumps(params).encode()
            request = Request(method=method, id=b"1", params=sent, name=params.get("name", ""))
            return endpoint.handle(request, Context(session=session))

        call = {"name": name_at(door), "arguments": {"a": 2, "b": 3}}
        await ask("tools/call", **call)  # from now on there is a connection
        assert type(ask("tools/list")) is Response
        answer = ask("tools/call", **call)
        assert isinstance(answer, Pending)
        assert b'"result":5' in (await answer).result
        if door not in ("alone", "wrap"):
            executed = ask("tools/call", name="execute_tool", arguments=call)
            assert isinstance(executed, Pending)
            assert b'"result":5' in (await executed).result


def raising(next: Handler) -> Handler:
    def handle(request: Request, context: Context) -> Answer:
        if named(request):
            raise RuntimeError("a secret of ours")
        return next(request, context)

    return handle


def raising_late(next: Handler) -> Handler:
    async def handle(request: Request, context: Context) -> Response:
        response = await next(request, context)
        if named(request):
            raise RuntimeError("a secret of ours")
        return response

    return handle


def forgetting(next: Handler) -> Any:
    def handle(request: Request, context: Context) -> Any:
        return None if named(request) else next(request, context)

    return handle


def forgetting_late(next: Handler) -> Any:
    async def handle(request: Request, context: Context) -> Any:
        response = await next(request, context)
        return None if named(request) else response

    return handle


def answering_nothing(next: Handler) -> Handler:
    def handle(request: Request, context: Context) -> Answer:
        return Response(id=request.id) if named(request) else next(request, context)

    return handle


def changing_into_nothing(next: Handler) -> Any:
    def forget(response: Response) -> Any:
        return None

    def handle(request: Request, context: Context) -> Answer:
        answer = next(request, context)
        return after(answer, forget) if named(request) else answer

    return handle


def failing_on_answers(next: Handler) -> Handler:
    def fail(response: Response) -> Response:
        raise RuntimeError("a secret of ours")

    def handle(request: Request, context: Context) -> Answer:
        answer = next(request, context)
        return after(answer, fail) if named(request) else answer

    return handle


BROKEN = [
    *(raising, raising_late, forgetting, forgetting_late, answering_nothing),
    *(changing_into_nothing, failing_on_answers),
]


@pytest.mark.parametrize("link", BROKEN, ids=lambda link: link.__name__)
@ERAS
@WAYS
async def test_a_broken_link_is_an_internal_error_and_reported(
    link: Link, version: str, door: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    failures: list[str] = []

    def report(_: Request, error: BaseException) -> None:
        failures.append(str(error))

    async with served(link, door=door, failed=report) as endpoint:
        answer = await answer_of(endpoint, door, version, way)
        assert (await Client(endpoint, MODERN).result("tools/list"))["tools"]
    assert answer["error"] == {"code": -32603, "message": "internal error"}
    failures += [str((record.exc_info or (None, None))[1]) for record in caplog.records]
    (failure,) = failures
    assert failure.startswith(("a secret", "a link or provider"))
