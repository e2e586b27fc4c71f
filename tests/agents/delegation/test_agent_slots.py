"""Prompts get their slots in order, and no limit is ever exceeded."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.agents.delegation.agent_slots import AgentSlots
from portico.agents.routing.routing import Routing, RoutingRequest
from portico.core.state.store_error import StoreError

AGENTS = ("a", "b", "c")


class Crowd:
    """Prompts of agents with limits of their own; each runs until it is ended."""

    def __init__(self, limits: dict[str, int], most: int) -> None:
        self.limits = limits
        self.most = most
        self.slots = AgentSlots(self._admit, self._refund, lambda: most)
        self.counted = 0
        """The prompts that the quotas count."""
        self.begun: list[int] = []
        self.ends: dict[int, asyncio.Event] = {}
        self.agents: dict[int, str] = {}
        self.running: Counter[str] = Counter()
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def _admit(self, request: RoutingRequest) -> Routing:
        await asyncio.sleep(0)  # the quotas are read from a disk
        if request.agent_id == "broken":
            raise StoreError("the disk is full")
        is_busy = self.slots.running[request.agent_id] >= self.limits[request.agent_id]
        self.counted += not is_busy
        return Routing(agent=request.agent_id, waits=is_busy)

    async def _refund(self, chosen: Routing) -> None:
        self.counted -= 1

    def start(self, number: int, agent: str) -> None:
        self.ends[number] = asyncio.Event()
        self.agents[number] = agent
        self.tasks[number] = asyncio.create_task(self._run(number, agent))

    async def _run(self, number: int, agent: str) -> None:
        request = RoutingRequest(task_type="code", prompt="x", agent_id=agent)
        async with self.slots.taken(request, _ignore):
            self.begun.append(number)
            self.running[agent] += 1
            assert self.running[agent] <= self.limits[agent]
            assert self.running.total() <= self.most
            try:
                await self.ends[number].wait()
            finally:
                self.running[agent] -= 1

    async def settled(self) -> None:
        """Let everything happen that can."""
        for _ in range(20 * (len(self.tasks) + 1)):
            await asyncio.sleep(0)

    def waiting(self) -> list[int]:
        """The prompts that have not begun, in order."""
        alive = [number for number, task in self.tasks.items() if not task.done()]
        return [number for number in alive if number not in self.begun]

    def check(self) -> None:
        """No slot is free for a prompt that waits, and those of one agent began in order."""
        if self.running.total() < self.most:
            for number in self.waiting():
                agent = self.agents[number]
                assert self.running[agent] >= self.limits[agent], f"{number} could start"
        for agent in AGENTS:
            order = [number for number in self.begun if self.agents[number] == agent]
            assert order == sorted(order)


async def _ignore(reason: str) -> None:
    assert reason.startswith("waiting for ")


steps = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.sampled_from(AGENTS)),
        st.tuples(st.sampled_from(["end", "cancel"]), st.integers(0, 50)),
    ),
    max_size=40,
)


@given(st.tuples(*[st.integers(1, 3)] * 3), st.integers(1, 5), steps)
@settings(deadline=None)
def test_limits_are_kept_and_no_slot_is_wasted(
    limits: tuple[int, int, int], most: int, steps: list[tuple[str, object]]
) -> None:
    async def play() -> None:
        crowd = Crowd(dict(zip(AGENTS, limits, strict=True)), most)
        for number, (what, choice) in enumerate(steps):
            alive = [one for one, task in crowd.tasks.items() if not task.done()]
            if what == "start":
                crowd.start(number, str(choice))
            elif alive and isinstance(choice, int):
                chosen = alive[choice % len(alive)]
                if what == "end":
                    crowd.ends[chosen].set()
                else:
                    crowd.tasks[chosen].cancel()
            if number % 3:  # several things happen at once
                await crowd.settled()
                crowd.check()
        for event in crowd.ends.values():
            event.set()
        ended = await asyncio.gather(*crowd.tasks.values(), return_exceptions=True)
        wrong = [one for one in ended if one and not isinstance(one, asyncio.CancelledError)]
        assert wrong == []
        assert crowd.slots.running.total() == 0
        assert crowd.slots.claimable() == most
        assert crowd.counted == len(crowd.begun)

    asyncio.run(play())


async def test_tasks_of_a_busy_agent_let_others_be_claimed() -> None:
    crowd = Crowd({"a": 1, "b": 1, "c": 1}, 2)
    for number, agent in enumerate("aaab"):
        crowd.start(number, agent)
    await crowd.settled()
    assert crowd.begun == [0, 3]
    assert crowd.slots.claimable() == 4
    for task in crowd.tasks.values():
        task.cancel()
    await asyncio.gather(*crowd.tasks.values(), return_exceptions=True)
    assert crowd.slots.claimable() == 2


async def test_a_failure_of_the_choice_is_that_of_its_prompt_alone() -> None:
    crowd = Crowd({"a": 1, "b": 1, "c": 1}, 2)
    crowd.start(0, "broken")
    crowd.start(1, "a")
    with pytest.raises(StoreError):
        await crowd.tasks[0]
    await crowd.settled()
    assert crowd.begun == [1]
    crowd.ends[1].set()
    await crowd.tasks[1]
