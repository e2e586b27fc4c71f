"""Tasks of several principals at one server, in memory: each sees only its own."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from portico import Context, Server
from portico.core.model.version import BY_TEXT
from portico.library.tasks.store.record import Clocks, TaskLimits
from portico.library.tasks.store.store import TaskStore, tasks_in_memory
from tests.support.messages import MODERN, modern, request
from tests.support.running import WAIT_S
from tests.tasks_protocol.follower import ABLE

LEGACY = "2025-11-25"


def make(store: TaskStore | None = None) -> Server:
    """A server whose tools end when they are told to."""
    server = Server("memory", "1", tasks=store)

    @server.tool(task=True)
    async def supplied(context: Context) -> str:
        assert context.task is not None
        return str(await context.task.supplied_result())

    @server.tool(task=True)
    async def quick() -> str:
        return "quick"

    return server


class Principal:
    """A client of one principal, in either era."""

    def __init__(self, server: Server, name: str, version: str = MODERN) -> None:
        self._server = server
        self._name = name
        self._modern = version == MODERN
        self._version = version

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a request."""
        context = Context(principal=self._name, version=BY_TEXT[self._version])
        message = modern(method, params, ABLE) if self._modern else request(method, params)
        answer: dict[str, Any] = (await self._server.handle(message, context)).decode()
        return answer

    async def begin(self, tool: str) -> str:
        """Begin a task; its id."""
        more: dict[str, Any] = {} if self._modern else {"task": {}}
        result = (await self.ask("tools/call", name=tool, arguments={}, **more))["result"]
        id: str = (result if self._modern else result["task"])["taskId"]
        return id

    async def ended(self, id: str) -> dict[str, Any]:
        """Wait for the end of a task."""
        async with asyncio.timeout(WAIT_S):
            await Principal(self._server, self._name, LEGACY).ask("tasks/result", taskId=id)
        task: dict[str, Any] = (await self.ask("tasks/get", taskId=id))["result"]
        return task


@asynccontextmanager
async def serving(store: TaskStore | None = None) -> AsyncIterator[Server]:
    server = make(store)
    async with server.running():
        yield server


METHODS = [(MODERN, "tasks/get"), (MODERN, "tasks/update"), (MODERN, "tasks/cancel")]
METHODS += [(LEGACY, "tasks/get"), (LEGACY, "tasks/result"), (LEGACY, "tasks/cancel")]


@pytest.mark.parametrize(("version", "method"), METHODS)
async def test_the_task_of_another_is_not_found_in_the_words_of_an_unknown_one(
    version: str, method: str
) -> None:
    async with serving() as server:
        ada, eve = Principal(server, "ada", version), Principal(server, "eve", version)
        id = await ada.begin("supplied")
        foreign = await eve.ask(method, taskId=id, inputResponses={})
        unknown = await eve.ask(method, taskId="ptk_" + "x" * 32, inputResponses={})
        assert foreign["error"] == unknown["error"]
        assert foreign["error"]["code"] == -32602
        assert id not in json.dumps(foreign["error"])
        assert "result" in await ada.ask("tasks/cancel", taskId=id)
        assert (await ada.ended(id))["status"] == "cancelled"


async def test_an_expired_task_is_not_found_in_the_same_words() -> None:
    now = [1_000_000.0]
    clocks = Clocks(wall=lambda: now[0])
    async with serving(tasks_in_memory(TaskLimits(grace_s=1, max_ttl_s=60), clocks)) as server:
        ada = Principal(server, "ada")
        id = await ada.begin("quick")
        assert (await ada.ended(id))["status"] == "completed"
        now[0] += 100
        expired = await ada.ask("tasks/get", taskId=id)
        unknown = await ada.ask("tasks/get", taskId="ptk_" + "x" * 32)
        assert expired["error"] == unknown["error"]


async def test_a_list_has_the_tasks_of_its_principal_and_is_paged() -> None:
    async with serving(tasks_in_memory(TaskLimits(in_progress=1000))) as server:
        ada, eve = Principal(server, "ada", LEGACY), Principal(server, "eve", LEGACY)
        others = await eve.begin("quick")
        ids = {await ada.begin("quick") for _ in range(150)}
        first = (await ada.ask("tasks/list"))["result"]
        second = (await ada.ask("tasks/list", cursor=first["nextCursor"]))["result"]
        assert "nextCursor" not in second
        listed = [task["taskId"] for task in (*first["tasks"], *second["tasks"])]
        assert set(listed) == ids
        assert len(listed) == 150
        assert others not in listed
        for cursor in ("x", "-1", "9" * 1000, ""):
            found = await ada.ask("tasks/list", cursor=cursor)
            assert found.get("error", {"code": -32602})["code"] == -32602
        nobody = Principal(server, "anyone", LEGACY)
        assert (await nobody.ask("tasks/list"))["error"]["code"] == -32601


async def test_the_ids_of_tasks_cannot_be_guessed() -> None:
    async with serving(tasks_in_memory(TaskLimits(in_progress=1000))) as server:
        ada = Principal(server, "ada")
        ids = [await ada.begin("quick") for _ in range(50)]
        assert len(set(ids)) == 50
        assert all(len(id) >= 36 for id in ids)
        for place in range(4, 36):
            assert len({id[place] for id in ids}) > 10


@pytest.mark.parametrize("version", [MODERN, LEGACY])
async def test_one_principal_may_have_only_so_many_tasks_in_progress(version: str) -> None:
    async with serving(tasks_in_memory(TaskLimits(in_progress=5))) as server:
        ada, eve = Principal(server, "ada", version), Principal(server, "eve", version)
        ids = [await ada.begin("supplied") for _ in range(5)]
        more: dict[str, Any] = {} if version == MODERN else {"task": {}}
        for _ in range(1000):
            refused = await ada.ask("tools/call", name="supplied", arguments={}, **more)
            assert "task limit reached (5); wait for one" in refused["error"]["message"]
        await eve.begin("quick")
        assert server.supply_result(ids[0], "done")
        await ada.ended(ids[0])
        await ada.begin("quick")
