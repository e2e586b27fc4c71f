"""A change is told to every subscriber, some in each turn of the loop."""

import asyncio
import json
from collections import Counter
from itertools import pairwise

import pytest

from portico.core.model.session import Session
from portico.core.model.types import Change
from portico.core.state.hub import ChangeHub

MANY, FEW_HUNDRED = 2_000, 500


class Crowd:
    """Many sessions at one hub, and what each was told."""

    def __init__(self, hub: ChangeHub, count: int = MANY) -> None:
        self.told: Counter[str] = Counter()
        self.order: dict[int, list[str]] = {number: [] for number in range(count)}
        self.sessions = [self._session(hub, number) for number in range(count)]

    def _session(self, hub: ChangeHub, number: int) -> Session:
        def send(message: bytes) -> None:
            method = json.loads(message)["method"].removeprefix("notifications/")
            self.told[method] += 1
            self.order[number].append(method)

        session = Session(send)
        hub.attach(session)
        return session


async def until_told(crowd: Crowd, method: str, count: int) -> list[int]:
    """Give the loop turns until so many were told; how many were after each turn."""
    seen = [crowd.told[method]]
    while seen[-1] < count:
        await asyncio.sleep(0)
        seen.append(crowd.told[method])
        assert len(seen) < MANY
    return seen


async def test_other_work_runs_between_the_subscribers_of_one_change() -> None:
    hub = ChangeHub()
    crowd = Crowd(hub)
    hub.publish(Change("tools"))
    seen = await until_told(crowd, "tools/list_changed", MANY)
    assert max(after - before for before, after in pairwise([0, *seen])) <= FEW_HUNDRED
    await asyncio.sleep(0)
    assert crowd.told == {"tools/list_changed": MANY}


async def test_a_few_subscribers_are_told_at_once() -> None:
    hub = ChangeHub()
    crowd = Crowd(hub, 3)
    hub.publish(Change("tools"))
    assert crowd.told == {"tools/list_changed": 3}


async def test_changes_are_told_in_their_order_and_the_last_of_two_alike() -> None:
    hub = ChangeHub()
    crowd = Crowd(hub)
    hub.publish(Change("tools"))
    for kind in ("prompts", "tools", "prompts"):
        hub.publish(Change(kind))
    await until_told(crowd, "tools/list_changed", 2 * MANY)
    every = ["tools/list_changed", "prompts/list_changed", "tools/list_changed"]
    assert all(order == every for order in crowd.order.values())


async def test_a_subscriber_that_fails_keeps_no_later_change_from_the_others() -> None:
    hub = ChangeHub()
    fails = [True]

    def send(message: bytes) -> None:
        if fails.pop():
            raise ValueError("broken")

    broken = Session(send)
    hub.attach(broken)
    with pytest.raises(ValueError, match="broken"):
        hub.publish(Change("tools"))
    fails.append(False)
    crowd = Crowd(hub, 3)
    hub.publish(Change("tools"))
    assert crowd.told["tools/list_changed"] == 3


def test_a_hub_works_on_after_its_loop_has_ended_in_the_middle() -> None:
    hub = ChangeHub()

    async def begin() -> Crowd:
        crowd = Crowd(hub)
        hub.publish(Change("tools"))
        return crowd

    first = asyncio.run(begin())
    assert 0 < first.told["tools/list_changed"] < MANY

    async def again() -> Crowd:
        crowd = Crowd(hub, 3)
        hub.publish(Change("prompts"))
        await until_told(crowd, "prompts/list_changed", 3)
        return crowd

    assert asyncio.run(again()).told["prompts/list_changed"] == 3
