"""Calls while a link does not know its view yet: they wait for it."""

import asyncio
from weakref import WeakSet

import pytest

from portico import Handler
from portico.core.model.offer import Offer
from portico.library.chain.endpoint import ChainEndpoint
from portico.library.chain.views import UNLEARNED_S, Learner, ViewPending
from tests.gateway.registries import LEGACY, Client
from tests.gateway.test_links import MERGED, name_at, served
from tests.support.clock import Clock


class Slow(Learner):
    """A link that knows its view once the test says so."""

    def __init__(self) -> None:
        self.endpoints: WeakSet[ChainEndpoint] = WeakSet()
        self.known: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __call__(self, next: Handler) -> Handler:
        return next

    def view(self, offer: Offer) -> Offer:
        if not self.known.done():
            raise ViewPending("slow", self.known)
        return offer


@MERGED
async def test_every_call_waits_for_a_view_that_is_not_known_with_progress(
    door: str, clock: Clock
) -> None:
    link = Slow()
    async with served(link, door=door) as endpoint:
        link.known.set_result(None)
        client = Client(endpoint, LEGACY)
        await client.hello()
        # As after a changed catalog or file of the link.
        link.known = asyncio.get_running_loop().create_future()
        endpoint.views_changed()
        call = {"name": name_at(door), "arguments": {"a": 2, "b": 3}, "_meta": {"progressToken": 7}}
        calls = [
            asyncio.ensure_future(client.result("tools/call", call)),
            asyncio.ensure_future(
                client.call("execute_tool", name=name_at(door), arguments={"a": 2, "b": 3})
            ),
        ]
        await clock.advance(1)
        assert not any(call.done() for call in calls)
        (told,) = client.heard
        assert told["params"] == {"progressToken": 7, "progress": 1e-6, "message": "starting slow"}
        link.known.set_result(None)
        for result in await asyncio.gather(*calls):
            assert result["structuredContent"] == {"result": 5}


@pytest.mark.parametrize("door", ["all", "members", "alone", "wrap"])
async def test_a_client_is_greeted_before_the_view_is_known_and_notified_of_its_lists(
    door: str, clock: Clock
) -> None:
    link = Slow()
    async with served(link, door=door) as endpoint:
        client = Client(endpoint, LEGACY)
        greeting = asyncio.ensure_future(client.hello())
        await clock.advance(UNLEARNED_S["initialize"])
        declared = (await greeting)["result"]["capabilities"]
        assert {"tools", "resources", "prompts"} <= set(declared)
        listing = asyncio.ensure_future(client.names())
        await clock.advance(UNLEARNED_S["tools/list"] / 2)
        assert not listing.done()
        await clock.advance(UNLEARNED_S["tools/list"] / 2)
        assert name_at(door) not in await listing
        assert await client.names("prompts") == []  # which does not wait again
        assert not client.heard
        link.known.set_result(None)
        endpoint.views_changed()
        await clock.advance(0)
        assert {"notifications/tools/list_changed"} <= {one["method"] for one in client.heard}
        assert name_at(door) in await client.names()
        assert await client.names("prompts") == []  # which were declared
