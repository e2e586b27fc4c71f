"""Questions of the tasks that an agent started: they go to the person of the agent's own task.

Such a task belongs to the agent, which is not a person. So each of its questions to a person is
also one of the agent's task; the first answer to either closes both.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from portico.core.model.errors import PorticoError
from portico.core.protocol.codec import encode
from portico.core.state.background import Background
from portico.library.tasks.mcp.task_answers import is_for_person, until_closed
from portico.library.tasks.mcp.task_changes import task_changes
from portico.library.tasks.store.record import OpenQuestion, TaskRecord
from portico.library.tasks.worker.work import Work

if TYPE_CHECKING:
    from portico.library.tasks.store.store import TaskStore


class NestedQuestions:
    """The questions of all tasks that the agent of one task started."""

    def __init__(self, work: Work, store: "Callable[[], TaskStore]", agent: str) -> None:
        """`agent` works on the task."""
        self._work = work
        self._store = store
        self._agent = agent
        self._background = Background()
        self.pause: Callable[[], AbstractContextManager[None]] = nullcontext
        """Suspends the idle timeout of the agent, which waits for the answer too."""

    def follow(self, task: TaskRecord) -> None:
        """Pass on the questions of a task, until its end."""
        self._background.start(self._follow(task))

    async def close(self) -> None:
        """Withdraw all questions."""
        await self._background.close()

    async def _follow(self, task: TaskRecord) -> None:
        known: set[str] = set()
        with suppress(PorticoError):  # the store fails, which the tasks report
            async with task_changes(self._store(), task.principal, task.id) as changes:
                async for latest in changes:
                    for question in latest.pending:
                        if question.key not in known and is_for_person(question.body):
                            known.add(question.key)
                            self._background.start(self._pass_on(latest, question))

    async def _pass_on(self, task: TaskRecord, question: OpenQuestion) -> None:
        """Ask a question of a task as one of the agent's own, until one of them is closed."""
        body = msgspec.json.decode(question.body, type=dict[str, Any])
        params = body.get("params") or {}
        message = str(params.get("message", ""))
        named = {**params, "message": f"{self._agent} delegated task {task.id}: {message}"}
        asking = asyncio.ensure_future(self._work.ask([encode({**body, "params": named})]))
        closing = asyncio.ensure_future(until_closed(self._store(), task, question))
        try:
            with self.pause(), suppress(PorticoError):
                await self._work.record(f"task {task.id} has a question: {message}")
                await self._work.progress(f"task {task.id} waits for the answer of a person")
                await asyncio.wait({asking, closing}, return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    (answer,) = asking.result()
                    await self._store().answer(task.principal, task.id, {question.key: answer})
                await self._work.progress(f"task {task.id} continues")
        finally:
            asking.cancel()
            closing.cancel()
            await asyncio.gather(asking, closing, return_exceptions=True)
