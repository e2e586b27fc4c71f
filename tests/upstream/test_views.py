"""What an upstream offers to many sorts of clients: told apart, but not without end."""

import gc
from weakref import ref

import msgspec
import pytest

from portico.chain.endpoint import ChainEndpoint
from portico.model.context import Context
from portico.model.message import Meta, Request
from portico.model.session import Session
from portico.model.version import Version
from portico.upstream import views
from portico.upstream.plan import Plan
from portico.upstream.upstream import Upstream
from portico.upstream.views import MOST_VIEWS, View
from tests.upstream.fakes import Fake, FakeWire, Message, legacy, result

TOOL = {"name": "it", "inputSchema": {"type": "object"}}


def listing(message: Message) -> list[Message]:
    if message.get("method") == "tools/list":
        return [result(message, {"tools": [TOOL]})]
    return legacy(message, tools={})


def asked(number: int) -> Request:
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
    monkeypatch.setattr(views, "REFRESH_S", 0)
    wires = [FakeWire(listing) for _ in range(2 * MOST_VIEWS)]
    upstream = Upstream(Fake([*wires]), Plan(max_children=2))
    endpoint = ChainEndpoint(upstream, [upstream], [], lambda request, error: None)
    hears = Session(lambda _: None)
    seen: list[ref[View]] = []
    try:
        for number in range(MOST_VIEWS + 20):
            response = await endpoint.handle(asked(number), Context())
            assert b'"it"' in response.result
            seen.append(ref(upstream.view(asked(number), Context())))
            if number == 3:
                upstream.view(asked(number), Context()).hub.attach(hears)
        gc.collect()
        kept = [view() is not None for view in seen]
        assert sum(kept) <= MOST_VIEWS
        assert kept[:5] == [False, False, False, True, False]
        assert all(kept[-50:])
    finally:
        await upstream.close()
