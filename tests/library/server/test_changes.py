"""Registration and removal while running, and who is told."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from portico import Context, RegistrationError, Request, Server
from portico.core.model.offer import Listed, Offer
from portico.core.model.session import Session
from portico.core.model.types import Change
from portico.library.functions import functions
from tests.support.messages import error, initialize, modern, request, result

TOOL = {"name": "new", "inputSchema": {"type": "object"}}
ITEM = {"name": "late"}


class Listener:
    """A modern client with a listen stream."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.over = asyncio.Event()

    async def notify(self, message: bytes) -> None:
        self.messages.put_nowait(json.loads(message))

    async def ask(self, method: str, params: bytes) -> bytes:
        raise NotImplementedError

    async def closed(self) -> None:
        await self.over.wait()


async def listening(
    server: Server, notifications: dict[str, Any]
) -> tuple[Listener, "asyncio.Task[dict[str, Any]]", dict[str, Any]]:
    listener = Listener()
    message = modern("subscriptions/listen", {"notifications": notifications}, id="sub")
    task = asyncio.ensure_future(result(server, message, Context(peer=listener)))
    return listener, task, await listener.messages.get()


@pytest.fixture
def server() -> Server:
    server = Server("t", capabilities=["tools", "prompts", "resources"])
    server.resource("note://a")(lambda: "a")
    server.resource("note://b")(lambda: "b")
    return server


async def test_a_tool_can_come_and_go_while_the_server_runs(server: Server) -> None:
    assert (await result(server, modern("tools/list")))["tools"] == []
    server.add_tool(TOOL, lambda arguments: "hello")
    assert [t["name"] for t in (await result(server, modern("tools/list")))["tools"]] == ["new"]
    await result(server, modern("tools/call", {"name": "new"}))
    server.remove_tool("new")
    assert (await result(server, modern("tools/list")))["tools"] == []
    assert (await error(server, modern("tools/call", {"name": "new"})))["code"] == -32602
    with pytest.raises(RegistrationError):
        server.remove_tool("new")


async def test_a_legacy_session_is_told_of_lists_and_of_what_it_subscribed_to(
    server: Server,
) -> None:
    told: list[dict[str, Any]] = []
    session = Session(lambda message: told.append(json.loads(message)))
    context = Context(session=session)
    await result(server, initialize(), context)
    server.add_tool(TOOL, lambda arguments: "")
    server.resource_updated("note://a")
    await result(server, request("resources/subscribe", {"uri": "note://a"}), context)
    server.resource_updated("note://a")
    server.resource_updated("note://b")
    await result(server, request("resources/unsubscribe", {"uri": "note://a"}), context)
    server.resource_updated("note://a")
    assert [message["method"] for message in told] == [
        "notifications/tools/list_changed",
        "notifications/resources/updated",
    ]
    assert told[1]["params"] == {"uri": "note://a"}


async def test_subscribing_to_what_nobody_has_is_refused(server: Server) -> None:
    context = Context(session=Session(lambda message: None))
    await result(server, initialize(), context)
    refused = await error(server, request("resources/subscribe", {"uri": "nope://x"}), context)
    assert refused["code"] == -32002
    assert (await error(server, request("resources/subscribe", {}), context))["code"] == -32602


async def test_a_modern_listener_is_told_only_of_what_it_asked_for(server: Server) -> None:
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://a", "nope://x"]}
    listener, task, first = await listening(server, wanted)
    assert first["method"] == "notifications/subscriptions/acknowledged"
    assert first["params"]["notifications"] == {
        "toolsListChanged": True,
        "resourceSubscriptions": ["note://a"],
    }
    server.resource_updated("note://b")
    server.prompt(lambda: "hi", name="p")
    server.resource_updated("note://a")
    server.add_tool(TOOL, lambda arguments: "")
    told = [await listener.messages.get() for _ in range(2)]
    assert [m["method"] for m in told] == [
        "notifications/resources/updated",
        "notifications/tools/list_changed",
    ]
    subscription = "io.modelcontextprotocol/subscriptionId"
    assert all(m["params"]["_meta"][subscription] == "sub" for m in (first, *told))
    listener.over.set()
    ended = await task
    assert ended == {"resultType": "complete", "_meta": {subscription: "sub"}}
    assert listener.messages.empty()


async def test_a_storm_of_changes_is_told_once(server: Server) -> None:
    listener, task, _ = await listening(server, {"toolsListChanged": True})
    for _ in range(100):
        server.add_tool(TOOL, lambda arguments: "")
        server.remove_tool("new")
    await listener.messages.get()
    listener.over.set()
    await task
    assert listener.messages.empty()


async def test_a_change_from_a_thread_reaches_the_listener(server: Server) -> None:
    listener, task, _ = await listening(server, {"toolsListChanged": True})
    await asyncio.to_thread(server.add_tool, TOOL, lambda arguments: "")
    told = await listener.messages.get()
    assert told["method"] == "notifications/tools/list_changed"
    listener.over.set()
    await task


async def test_a_malformed_listen_is_invalid_params(server: Server) -> None:
    context = Context(peer=Listener())
    for params in ({}, {"notifications": 5}, {"notifications": {"resourceSubscriptions": "x"}}):
        refused = await error(server, modern("subscriptions/listen", params), context)
        assert refused["code"] == -32602


class Meddled:
    """A provider of which another thread changes something just as it is asked what it offers."""

    name = "meddled"

    def __init__(self) -> None:
        self.changed: Callable[[Change], None] | None = None
        self.there = False

    def offer(self) -> Offer:
        known = Offer.of(tools=[ITEM]) if self.there else Offer()
        if self.changed is not None and not self.there:
            self.there = True
            self.changed(Change("tools"))
        return known

    def provide(self, request: Request, context: Context) -> None:
        return None

    def watch(self, changed: Callable[[Change], None]) -> None:
        self.changed = changed


def test_a_change_while_the_catalog_is_made_is_not_missed() -> None:
    server = Server.compose("t", Meddled())
    assert server.catalog().offer.listed("tools").keys == ()
    assert server.catalog().offer.listed("tools").keys == ("late",)
    assert server.catalog() is server.catalog()


def test_a_change_while_functions_are_listed_is_not_missed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = functions.listed_entries

    def meddle(entries: Any) -> Listed:
        items = listed(entries)
        monkeypatch.undo()
        server.add_tool(TOOL, lambda arguments: "hello")
        return items

    server.remove_resource("note://a")
    monkeypatch.setattr(functions, "listed_entries", meddle)
    assert server.catalog().offer.listed("tools").keys == ()
    assert server.catalog().offer.listed("tools").keys == ("new",)
