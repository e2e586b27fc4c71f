"""Tasks that an agent started end with its own task, also if the gateway was killed in between."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from portico.library.tasks.store.record import COMPLETED, TaskRecord, agent_principal
from portico.library.tasks.store.store import tasks_in_folder, tasks_in_memory
from portico.library.tasks.worker.work import Work
from tests.agents.delegation.desk_windows import DeskGateway, ask, mcp_agent
from tests.support.task_stores import running
from tests.wrap.faults import until

STAMP = """
import asyncio
from pathlib import Path

from portico import Server

server = Server("clock", "1")


@server.tool(task=True)
async def hold() -> str:
    \"\"\"Never end.\"\"\"
    await asyncio.Event().wait()
    return "never"


@server.tool(task=True)
async def stamp(path: str) -> str:
    \"\"\"Leave a file.\"\"\"
    Path(path).touch()
    return "stamped"
"""


@pytest.mark.slow
@pytest.mark.xdist_group("delegate-orphans")
def test_calls_that_wait_do_not_run_once_their_agent_was_killed(tmp_path: Path) -> None:
    file = tmp_path / "clock.py"
    file.write_text(STAMP)
    with DeskGateway(
        tmp_path,
        {"helper": mcp_agent({}, tools=["clock__*"])},
        tasks={"running": 1, "lease_s": 1},
        components__clock={"path": str(file), "in_process": True},
    ) as gateway:
        window, gate, mark = gateway.window(), gateway.pipe("gate"), gateway.path("mark")
        hold = ask("tools/call", name="clock__hold", arguments={}, task={})
        stamp = ask("tools/call", name="clock__stamp", arguments={"path": str(mark)}, task={})
        parent = window.submit("helper", [hold, stamp, ["read", str(gate)]])
        children = _children(gateway, parent, lambda states: states == ["running", "queued"])
        (owner,) = gateway.owners()
        os.kill(owner, signal.SIGKILL)
        following = gateway.window()
        stamped = following.ask(
            "tools/call",
            {"name": "clock__stamp", "arguments": {"path": str(gateway.path("other"))}},
        )
        assert not stamped["result"].get("isError")
        ended = _children(gateway, parent, lambda states: states == ["interrupted", "cancelled"])
        assert [task.id for task in ended] == [task.id for task in children]
        assert ended[1].message == "cancelled: the task whose agent started it has ended"
        assert not mark.exists()


def _children(
    gateway: DeskGateway, parent: str, are: Callable[[list[str]], bool]
) -> list[TaskRecord]:
    """Wait until the tasks of an agent, oldest first, are in these states."""
    found: list[TaskRecord] = []

    async def read() -> list[TaskRecord]:
        store = tasks_in_folder(str(gateway.home / "state"))
        try:
            page = await store.page(agent_principal(parent))
        finally:
            await store.close()
        assert page is not None
        return page.tasks[::-1]

    def there() -> bool:
        found[:] = asyncio.run(read())
        return are([str(task.state) for task in found])

    assert until(there), [str(task.state) for task in found]
    return found


async def test_a_task_whose_agent_has_ended_is_an_orphan() -> None:
    store = tasks_in_memory()
    await store.submit("local", "tool", b"")
    parent, lease = await running(store)

    async def child_of(id: str) -> Work:
        await store.submit(agent_principal(id), "tool", b"")
        task, _ = await running(store)
        return Work(store, task, b"")

    child, stranger = await child_of(parent.id), await child_of("unknown")
    assert not await Work(store, parent, b"").is_orphan()
    assert not await child.is_orphan()
    assert await stranger.is_orphan()
    await store.finish(lease, COMPLETED, b"{}")
    assert await child.is_orphan()
    await store.close()
