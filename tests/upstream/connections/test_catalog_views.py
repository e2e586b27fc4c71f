"""The catalogs of clients with different capabilities: separate, and limited in number."""

import asyncio
import gc
import threading
from weakref import ref

import msgspec
import pytest

from portico.core.model.context import Context
from portico.core.model.message import Meta, Request
from portico.core.model.offer import Offer
from portico.core.model.session import Session
from portico.core.model.version import Version
from portico.library.chain.endpoint import ChainEndpoint
from portico.upstream.connections import catalog_views
from portico.upstream.connections.catalog_views import MAX_VIEWS, CatalogView
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.upstream import Upstream
from tests.support.backoff import until
from tests.support.running import WAIT_S
from tests.upstream.connections.fakes import Fake, FakeWire, Message, legacy, result

TOOL = {"name": "it", "inputSchema": {"type": "object"}}


def listing(message: Message) -> list[Message]:
    if message.get("method") == "tools/list":
        return [result(message, {"tools": [TOOL]})]
    return legacy(message, tools={})


def request(number: int) -> Request:
    """A modern request of a client like no other."""
    capabilities = msgspec.json.encode({"roots": {}, "experimental": {f"x{number}": {}}})
    return Request(
        method="tools/list",
        id=b"1",
        version=Version.V2026_07_28,
        meta=Meta(client_capabilities=capabilities, client_info=b'{"name":"test"}'),
    )


async def test_sorts_of_clients_without_end_are_not_all_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog_views, "REFRESH_S", 0)
    wires = [FakeWire(listing) for _ in range(2 * MAX_VIEWS)]
    upstream = Upstream(Fake([*wires]), UpstreamPolicy(max_children=2))
    endpoint = ChainEndpoint(upstream, [upstream], [], lambda request, error: None)
    subscriber = Session(lambda _: None)
    seen: list[ref[CatalogView]] = []
    try:
        for number in range(MAX_VIEWS + 20):
            response = await endpoint.handle(request(number), Context())
            assert b'"it"' in response.result
            seen.append(ref(upstream.view(request(number), Context())))
            if number == 3:
                upstream.view(request(number), Context()).hub.attach(subscriber)
        gc.collect()
        kept = [view() is not None for view in seen]
        assert sum(kept) <= MAX_VIEWS
        assert kept[:5] == [False, False, False, True, False]
        assert all(kept[-50:])
    finally:
        await upstream.close()


class Slow:
    """A memory that takes its time, one thing after the other."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def load(self, key: str) -> Offer | None:
        return None

    def save(self, key: str, offer: Offer) -> bool:
        self.begun.set()
        self.go_on.wait(WAIT_S)
        self.kept.append(key)
        return True


async def test_what_an_upstream_said_is_kept_although_it_is_closed_at_once() -> None:
    memory = Slow()
    upstream = Upstream(Fake([FakeWire(listing)]), UpstreamPolicy(), memory=memory)
    busy = [asyncio.to_thread(memory.go_on.wait, WAIT_S) for _ in range(64)]
    waiting = asyncio.gather(*busy)  # no thread is free to begin with it
    asking = asyncio.create_task(upstream.fetch_catalog())
    await until(lambda: upstream.offered() is not None)
    closing = asyncio.create_task(upstream.close())
    for _ in range(10):
        await asyncio.sleep(0)
    memory.go_on.set()
    await closing
    await asyncio.gather(waiting, asking, return_exceptions=True)
    assert memory.kept


class SlowAtFirst:
    """A memory whose first save takes longer than the next one."""

    def __init__(self) -> None:
        self.saved: list[Offer] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def load(self, key: str) -> Offer | None:
        return None

    def save(self, key: str, offer: Offer) -> bool:
        if not self.begun.is_set():
            self.begun.set()
            self.go_on.wait(WAIT_S)
        self.saved.append(offer)
        return True


async def test_a_slow_save_does_not_replace_a_later_one() -> None:
    memory = SlowAtFirst()
    upstream = Upstream(Fake([FakeWire(listing)]), UpstreamPolicy(), memory=memory)
    fetching = asyncio.create_task(upstream.fetch_catalog())
    await until(memory.begun.is_set)
    upstream.asked(frozenset({"elicitation"}))
    closing = asyncio.create_task(upstream.close())  # whoever closes it waits for all that it saves
    for _ in range(10):
        await asyncio.sleep(0)
    memory.go_on.set()
    await closing
    await asyncio.gather(fetching, return_exceptions=True)
    assert [offer.asks for offer in memory.saved] == [frozenset(), frozenset({"elicitation"})]


class Folder:
    """A memory that two processes share."""

    def __init__(self) -> None:
        self.kept: dict[str, Offer] = {}

    def load(self, key: str) -> Offer | None:
        return self.kept.get(key)

    def save(self, key: str, offer: Offer) -> bool:
        self.kept[key] = offer
        return True


async def test_of_two_processes_the_second_keeps_the_order_of_the_first() -> None:
    def lists(*names: str) -> FakeWire:
        def listing(message: Message) -> list[Message]:
            if message.get("method") != "tools/list":
                return legacy(message, tools={})
            tools = [{**TOOL, "name": name} for name in names]
            return [result(message, {"tools": tools})]

        return FakeWire(listing)

    memory = Folder()
    wires = [lists("b", "a", "c"), lists("c", "b", "a")]
    both = [Upstream(Fake([wire]), UpstreamPolicy(), memory=memory) for wire in wires]
    assert [upstream.offered() for upstream in both] == [None, None]  # none has read anything
    try:
        for upstream in both:
            await upstream.fetch_catalog()
            assert upstream.offer().listed("tools").keys == ("b", "a", "c")
        offers = [upstream.offer() for upstream in both]
        assert offers[0].same(offers[1])
    finally:
        for upstream in both:
            await upstream.close()
