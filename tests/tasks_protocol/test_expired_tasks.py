"""A task that has expired is not found, in the words for an unknown one."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from portico import Context, Server
from portico.library.tasks.store.record import STORE_FILE, Clocks, TaskLimits
from portico.library.tasks.store.store import tasks_in_memory
from tests.serve.gateway import Gateway, command, written
from tests.support.messages import modern, request
from tests.support.running import WAIT_S
from tests.tasks_protocol.doors import ERAS, tasks_server
from tests.tasks_protocol.follower import ABLE, FollowingWeb

LEGACY = "2025-11-25"
UNKNOWN = "ptk_" + "x" * 32
METHODS = {
    "legacy": ("tasks/get", "tasks/result", "tasks/cancel"),
    "modern": ("tasks/get", "tasks/update", "tasks/cancel"),
}


@pytest.mark.parametrize("era", ERAS)
async def test_a_task_whose_ttl_and_grace_have_passed_is_like_an_unknown_one(era: str) -> None:
    now = [1_000_000.0]
    limits = TaskLimits(grace_s=300, max_ttl_s=60)
    server = Server("s", "1", tasks=tasks_in_memory(limits, Clocks(wall=lambda: now[0])))

    @server.tool(task=True)
    def quick() -> str:
        return "quick"

    async def ask(method: str, **params: Any) -> dict[str, Any]:
        message = modern(method, params, ABLE) if era == "modern" else request(method, params)
        version = None if era == "modern" else LEGACY
        answer: dict[str, Any] = (await server.handle(message, Context(version=version))).decode()
        return answer

    async with server.running(), asyncio.timeout(WAIT_S):
        more: dict[str, Any] = {} if era == "modern" else {"task": {"ttl": 60_000}}
        made = (await ask("tools/call", name="quick", arguments={}, **more))["result"]
        id = (made if era == "modern" else made["task"])["taskId"]
        waiting = request("tasks/result", {"taskId": id})
        await server.handle(waiting, Context(version=LEGACY))
        now[0] += 299
        assert (await ask("tasks/get", taskId=id))["result"]["status"] == "completed"
        now[0] += 2
        for method in METHODS[era]:
            expired = await ask(method, taskId=id, inputResponses={})
            unknown = await ask(method, taskId=UNKNOWN, inputResponses={})
            assert expired["error"] == unknown["error"]
            assert expired["error"]["code"] == -32602
            assert id not in json.dumps(expired)


@pytest.mark.slow
@pytest.mark.parametrize("server", ERAS)
def test_an_expired_task_of_a_server_is_like_an_unknown_one(tmp_path: Path, server: str) -> None:
    rig = command(tasks_server(), era=server)
    config = written(tmp_path / "portico.toml", {"rig": rig}, gateway={"expose": "all"})
    with Gateway(tmp_path / "home", config) as gateway:
        for era in ERAS:
            with FollowingWeb(gateway.port, modern=era == "modern") as client:
                client.prefix = "rig__"
                if not client.modern:
                    client.hello(ABLE)
                id = client.begin("slow_compute", seconds=0)
                assert client.outcome(id)["status"] == "completed"
                with closing(sqlite3.connect(tmp_path / "home" / "state" / STORE_FILE)) as db, db:
                    db.execute("UPDATE tasks SET expires_at = 1 WHERE id = ?", (id,))
                for method in METHODS[era]:
                    errors = [
                        client.fetch(method, {"taskId": one, "inputResponses": {}})["error"]
                        for one in (id, UNKNOWN)
                    ]
                    assert errors[0] == errors[1]
                    assert errors[0]["code"] == -32602
                assert client.oracle.problems == []
