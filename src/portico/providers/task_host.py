"""The tasks of one application, which all of its endpoints share."""

import sys
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from portico.model.errors import INTERNAL_ERROR, McpError
from portico.providers.task_call import CallRunner
from portico.state.store_error import StoreError
from portico.tasks.record import TaskRefused
from portico.tasks.work import Runner, TaskOutcome, Work
from portico.tasks.worker import TaskWorker

T = TypeVar("T")
FindTasks = Callable[[], "TaskHost"]
"""Returns the tasks of an application, which are created when they are first needed."""


class RemoteRunner(Runner, Protocol):
    """Follows the tasks of servers."""

    calls: CallRunner | None
    """Makes the calls of tasks that are resumed."""

    def outlives(self, server: str) -> bool:
        """True if the tasks of a server outlive this process."""
        ...

    async def follow(self, input: bytes, work: Work) -> TaskOutcome:
        """Follow the task that an input describes, which its server has created just now."""
        ...

    def abandon(self, input: bytes, principal: str) -> None:
        """Cancel a server's task that could not be stored, in the background."""
        ...


class TaskHost:
    """A worker and the runners of its kinds of tasks."""

    def __init__(self, worker: TaskWorker, scope: str = "") -> None:
        """Only processes with the same `scope` run each other's tasks."""
        self.worker = worker
        self._scope = scope
        self.calls = CallRunner()
        self.call_kind = f"call@{scope}"
        """The kind of tasks that are calls of tools."""
        self.remote_kind = f"remote@{scope}"
        """The kind of tasks that follow a server's own task."""
        self.remote: RemoteRunner | None = None
        worker.register(self.call_kind, self.calls)

    def follow_remote(self, runner: RemoteRunner) -> None:
        """Follow the tasks of servers with this runner."""
        self.remote = runner
        runner.calls = self.calls
        # A task that is only followed takes no place of those that run here.
        self.worker.register(self.remote_kind, runner, lambda: sys.maxsize)

    def place(self, name: str) -> str:
        """Return where a server or an agent does its tasks: each has limits of its own."""
        return f"{name}@{self._scope}" if name else ""


async def stored(operation: Awaitable[T]) -> T:
    """Await an operation of the store; its failure is an error that a client understands."""
    try:
        return await operation
    except TaskRefused as refused:
        raise McpError(str(refused), INTERNAL_ERROR, {"kind": "limit"}) from None
    except StoreError as error:
        raise McpError(str(error), INTERNAL_ERROR, {"kind": "store"}) from None
