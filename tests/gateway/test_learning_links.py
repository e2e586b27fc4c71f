"""Calls while a link does not know its view yet: they wait for it."""

import asyncio
from weakref import WeakSet

from portico import Handler
from portico.core.model.offer import Offer
from portico.library.chain.endpoint import ChainEndpoint
from portico.library.chain.views import Learner, ViewPending
from tests.gateway.registries import LEGACY, Client
from tests.gateway.test_links import MERGED, name_at, served


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
async def test_every_call_waits_for_a_view_that_is_not_known(door: str) -> None:
    link = Slow()
    async with served(link, door=door) as endpoint:
        link.known.set_result(None)
        client = Client(endpoint, LEGACY)
        await client.hello()
        # As after a changed catalog or file of the link.
        link.known = asyncio.get_running_loop().create_future()
        endpoint.views_changed()
        calls = [
            asyncio.ensure_future(client.call(name_at(door), a=2, b=3)),
            asyncio.ensure_future(
                client.call("execute_tool", name=name_at(door), arguments={"a": 2, "b": 3})
            ),
        ]
        await asyncio.sleep(0)
        assert not any(call.done() for call in calls)
        link.known.set_result(None)
        for result in await asyncio.gather(*calls):
            assert result["structuredContent"] == {"result": 5}
