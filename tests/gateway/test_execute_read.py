"""`execute_read_tool`: calls of tools that are read-only, now and when they were last shown."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec
import pytest

from portico import Answer, Context, Handler, Link, Offer, Only, Request, Response, Server
from portico.agents.delegation.delegate_definitions import delegate_definition
from portico.core.config.agents_schema import AgentsConfig
from portico.core.config.schema import Group
from portico.core.config.schema import ServerEntry as Entry
from portico.core.model.context import LOCAL
from portico.gateway.endpoints.metatool_definitions import RESERVED
from portico.gateway.members.in_process_server import InProcessEntry
from portico.gateway.registry.registry import Registry
from portico.library.chain.endpoint import ChainEndpoint
from tests.gateway.registries import LEGACY, MODERN, Client, World, config, registry

ERAS = pytest.mark.parametrize("version", [LEGACY, MODERN])
HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
READS, WRITES = {"readOnlyHint": True}, {"readOnlyHint": False}
OBJECT: dict[str, Any] = {"type": "object", "properties": {"id": {"type": "integer"}}}
REFUSED = "is not marked as read-only, or the config does not trust its server's marks"
UNSEEN = "was not shown to you as read-only; call describe_tool first"


def tool(name: str, annotations: Any = None) -> dict[str, Any]:
    more = {} if annotations is None else {"annotations": annotations}
    return {"name": name, "description": f"{name} a page", "inputSchema": OBJECT, **more}


def pages(**hints: Any) -> Server:
    """A server with a tool for each of these annotations."""
    server = Server("pages", "1")
    for name, annotations in hints.items():
        server.add_tool(tool(name, annotations), partial(answer, name))
    return server


def answer(name: str, given: dict[str, Any]) -> str:
    return f"{name} {given}"


@asynccontextmanager
async def gateway_of(*links: Link, **more: Any) -> AsyncGenerator[Registry, None]:
    """A gateway in front of a server that reads and writes."""
    servers = {"pages": more.pop("server", None) or pages(look=READS, erase=WRITES, guess=None)}
    fields = {"groups": {"team": Group(servers=("pages",))}, **more.pop("fields", {})}
    names = () if "servers" in fields else ("pages",)
    settings = config(*names, **fields)
    async with registry(World(servers), settings, expose="search", links=links, **more) as gateway:
        await gateway.refresh(gateway.members)
        yield gateway


async def read(client: Client, name: str, /, **arguments: Any) -> dict[str, Any]:
    return await client.call("execute_read_tool", name=name, arguments=arguments)


def why(result: dict[str, Any]) -> str:
    """The text of a refusal."""
    assert result["isError"], result
    text: str = result["content"][0]["text"]
    return text


@ERAS
async def test_each_meta_tool_says_what_it_may_do(version: str) -> None:
    async with gateway_of() as gateway:
        listed = (await Client(gateway.endpoint(), version).result("tools/list"))["tools"]
    said = {one["name"]: tuple(one["annotations"][hint] for hint in HINTS) for one in listed}
    reads = (True, False, True, False)
    assert said == {
        "search_tools": reads,
        "describe_tool": reads,
        "execute_tool": (False, True, False, True),
        "execute_read_tool": (True, False, True, True),
        "refresh_tools": (False, False, True, True),
        "gateway_status": reads,
    }


@ERAS
@pytest.mark.parametrize("group", [None, "team"])
async def test_search_and_describe_say_which_tool_to_call(version: str, group: str | None) -> None:
    calls = {"look": "execute_read_tool", "erase": "execute_tool", "guess": "execute_tool"}
    async with gateway_of() as gateway:
        client = Client(gateway.endpoint(group), version)
        for detail in ("brief", "full"):
            found = await client.call("search_tools", query="a page", detail=detail)
            (result,) = found["structuredContent"]["results"]
            assert {one["name"]: one["call"] for one in result["tools"]} == {
                f"pages__{name}": call for name, call in calls.items()
            }
            assert "call: execute_read_tool" in found["content"][0]["text"]
        for name, call in calls.items():
            assert f"call: {call}\n" in await client.said("describe_tool", name=f"pages__{name}")


@ERAS
async def test_a_tool_that_was_shown_as_read_only_is_called_like_any_other(version: str) -> None:
    seen: list[tuple[str, Any]] = []
    recorded: list[tuple[str, str]] = []

    class Watch:
        def __call__(self, next: Handler) -> Handler:
            def handle(request: Request, context: Context) -> Answer:
                if request.method == "tools/call":
                    seen.append((request.name, request.decode()["arguments"]))
                return next(request, context)

            return handle

    def witness(request: Request, context: Context, server: str, name: str, *_: Any) -> None:
        recorded.append((server, name))

    async with gateway_of(Watch(), witness=witness) as gateway:
        client = Client(gateway.endpoint(), version)
        await client.call("describe_tool", name="pages__look")
        seen.clear()
        recorded.clear()
        first = await read(client, "pages__look", id=1)
        assert first == await client.call("execute_tool", name="pages__look", arguments={"id": 1})
        wrong = [
            await client.call(tool, name="pages__look", arguments={"id": "x"})
            for tool in ("execute_read_tool", "execute_tool")
        ]
    assert wrong[0] == wrong[1]
    assert "id" in why(wrong[0])
    assert first["content"][0]["text"] == "look {'id': 1}"
    assert seen[0] == seen[1] == ("pages__look", {"id": 1})
    assert recorded == [("pages", "look")] * 4


class Noting:
    """A link that notes the calls that reach it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __call__(self, next: Handler) -> Handler:
        def handle(request: Request, context: Context) -> Answer:
            if request.method == "tools/call" and request.asked == "execute_read_tool":
                self.calls.append(request.name)
            return next(request, context)

        return handle


@ERAS
async def test_a_tool_that_is_not_marked_is_refused_before_any_link_sees_it(version: str) -> None:
    noting, recorded = Noting(), []

    def witness(request: Request, context: Context, server: str, name: str, *_: Any) -> None:
        recorded.append((server, name))

    async with gateway_of(noting, witness=witness) as gateway:
        client = Client(gateway.endpoint(), version)
        await client.call("describe_tool", names=["pages__erase", "pages__guess"])
        recorded.clear()
        for name in ("pages__erase", "pages__guess"):
            said = why(await read(client, name))
            assert said == f"{name} {REFUSED}; call it with execute_tool"
    assert noting.calls == []
    assert recorded == [("", "execute_read_tool")] * 2


@ERAS
async def test_a_tool_has_to_be_shown_first(version: str) -> None:
    async with gateway_of() as gateway:
        client = Client(gateway.endpoint(), version)
        assert why(await read(client, "pages__look")) == f"pages__look {UNSEEN}"
        await client.call("search_tools", query="look")
        assert "isError" not in await read(client, "pages__look")
        assert "isError" not in await client.call("execute_tool", name="pages__look")


@ERAS
async def test_a_tool_that_another_window_was_shown_was_not_shown_to_this_one(version: str) -> None:
    async with gateway_of() as gateway:
        one, other = (Client(gateway.endpoint(), version) for _ in range(2))
        await one.call("describe_tool", name="pages__look")
        assert UNSEEN in why(await read(other, "pages__look"))
        assert "isError" not in await read(one, "pages__look")
        elsewhere = Client(gateway.endpoint("team"), version)
        assert UNSEEN in why(await read(elsewhere, "pages__look"))


async def test_modern_clients_over_http_with_one_token_count_as_one() -> None:
    async with gateway_of() as gateway:
        one, other = (Stateless(gateway.endpoint()) for _ in range(2))
        stranger = Stateless(gateway.endpoint(), principal="stranger")
        await one.call("describe_tool", name="pages__look")
        assert "isError" not in await read(other, "pages__look")
        assert UNSEEN in why(await read(stranger, "pages__look"))


class Stateless(Client):
    """A modern client without a session."""

    def __init__(self, endpoint: ChainEndpoint, principal: str = LOCAL) -> None:
        super().__init__(endpoint, MODERN)
        self._principal = principal

    def context(self) -> Context:
        return Context(principal=self._principal, peer=self)


@ERAS
async def test_a_hidden_tool_is_answered_like_one_that_does_not_exist(version: str) -> None:
    hidden = Only(tools="pages__erase")
    async with gateway_of(hidden, server=pages(look=READS, erase=WRITES)) as gateway:
        client = Client(gateway.endpoint(), version)
        await client.call("search_tools", query="look")
        await client.call("describe_tool", names=["pages__look", "pages__erase"])
        answers = [
            json.dumps(await client.call(tool, name=f"pages__{name}")).replace(name, "TOOL")
            for tool in ("execute_read_tool", "execute_tool")
            for name in ("look", "zook")
        ]
    assert len(set(answers)) == 1
    assert "there is no tool" in answers[0]


@ERAS
async def test_a_link_that_hides_a_tool_after_it_was_shown_hides_it_from_readers(
    version: str,
) -> None:
    async with gateway_of() as gateway:
        client = Client(gateway.endpoint(), version)
        await client.call("describe_tool", name="pages__look")
        gateway.relink([Only(tools="pages__erase")])
        assert "there is no tool 'pages__look'" in why(await read(client, "pages__look"))


@ERAS
@pytest.mark.parametrize("name", [*RESERVED, "delegate_task"])
async def test_a_tool_that_calls_others_is_not_read_only(version: str, name: str) -> None:
    server = Server("agents", "1")
    server.add_tool(delegate_definition(AgentsConfig()), lambda given: "")
    local = {"agents": InProcessEntry(name="agents", server=server, is_builtin=True)}
    async with gateway_of(local=local) as gateway:
        client = Client(gateway.endpoint(), version)
        await client.call("describe_tool", name=name)
        said = why(await read(client, name, name="pages__erase", prompt="x"))
    assert (REFUSED if name == "delegate_task" else "is a meta-tool; call it directly") in said


@ERAS
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "execute_read_tool: `name` is missing"),
        ({"name": 7}, "execute_read_tool: "),
        ({"name": "pages__look", "id": 1}, "execute_read_tool: `id` must be inside `arguments`"),
        ({"name": "pages__look", "timeout_s": -1}, "execute_read_tool: timeout_s must be more"),
        ({"name": "pages__lok"}, "there is no tool 'pages__lok'; did you mean pages__look?"),
        ({"name": "look"}, "there is no tool 'look'"),
        ({"name": "nobody__look"}, "there is no tool 'nobody__look'"),
        ({"name": "pages__look", "arguments": "[1]"}, "pages__look: arguments must be a JSON"),
    ],
)
async def test_a_wrong_call_says_why(version: str, given: dict[str, Any], said: str) -> None:
    async with gateway_of() as gateway:
        client = Client(gateway.endpoint(), version)
        await client.call("describe_tool", name="pages__look")
        assert why(await client.call("execute_read_tool", **given)).startswith(said)


@ERAS
async def test_a_definition_that_changes_while_a_link_waits_is_noticed(version: str) -> None:
    """The check before the links is not the last one."""
    server = pages(look=READS)

    class Changing:
        def __call__(self, next: Handler) -> Handler:
            async def changed(request: Request, context: Context) -> Response:
                server.remove_tool("look")
                server.add_tool(tool("look", WRITES), lambda given: "written")
                await gateway.refresh(["pages"])
                return await next(request, context)

            def handle(request: Request, context: Context) -> Answer:
                is_read = request.asked == "execute_read_tool"
                return (changed if is_read else next)(request, context)

            return handle

    async with gateway_of(Changing(), server=server) as gateway:
        client = Client(gateway.endpoint(), version)
        await client.call("describe_tool", name="pages__look")
        assert REFUSED in why(await read(client, "pages__look"))


class Adding:
    """A link with a read-only tool of its own, which calls another one."""

    def __call__(self, next: Handler) -> Handler:
        def handle(request: Request, context: Context) -> Answer:
            if request.name == "digest" and request.method == "tools/call":
                return next(request.calling("pages__guess", {"id": 3}), context)
            return next(request, context)

        return handle

    def view(self, offer: Offer) -> Offer:
        return offer.adding(tools=[tool("digest", READS)])


@ERAS
async def test_a_tool_of_a_link_is_read_only_by_the_links_word(version: str) -> None:
    async with gateway_of(Adding()) as gateway:
        client = Client(gateway.endpoint(), version)
        described = await client.call("describe_tool", name="digest")
        assert described["structuredContent"]["tools"][0]["call"] == "execute_read_tool"
        assert "guess {'id': 3}" in str(await read(client, "digest"))


async def test_trust_is_changed_without_a_restart_of_the_server() -> None:
    entry = Entry(name="pages", command="pages")
    async with gateway_of(fields={"servers": {"pages": entry}}) as gateway:
        client, member = Client(gateway.endpoint()), gateway.members["pages"]
        await client.call("describe_tool", name="pages__look")
        assert "isError" not in await read(client, "pages__look")
        unsure = msgspec.structs.replace(entry, trust_hints=False)
        await gateway.apply(config(servers={"pages": unsure}))
        assert gateway.members["pages"] is member
        assert REFUSED in why(await read(client, "pages__look"))
        described = await client.call("describe_tool", name="pages__look")
        assert described["structuredContent"]["tools"][0]["call"] == "execute_tool"
        await gateway.apply(config(servers={"pages": entry}))
        assert UNSEEN in why(await read(client, "pages__look"))
