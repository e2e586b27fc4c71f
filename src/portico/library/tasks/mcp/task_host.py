"""The tasks of one application, which all of its endpoints share."""

import sys
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from msgspec.structs import replace

from portico.core.model.errors import INTERNAL_ERROR, McpError
from portico.core.model.version import version_of
from portico.core.state.store_error import StoreError
from portico.library.tasks.mcp.task_call import (
    CallRunner,
    DelegationControl,
    StoredCall,
    call_request,
)
from portico.library.tasks.mcp.task_wire import late_response, outcome_of
from portico.library.tasks.store.record import NotAccepted, TaskRecord
from portico.library.tasks.worker.work import Runner, RunOutcome, Work
from portico.library.tasks.worker.worker import TaskWorker

T = TypeVar("T")
FindTasks = Callable[[], "TaskHost"]
"""Returns the tasks of an application, which are created when they are first needed."""


class RemoteRunner(Runner, Protocol):
    """Follows the tasks of servers."""

    host: "TaskHost | None"
    """Makes the calls of tasks that are resumed, and passes results through the links."""

    def outlives(self, server: str) -> bool:
        """True if the tasks of a server outlive this process."""
        ...

    async def follow(self, input: bytes, work: Work) -> RunOutcome:
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
        self.waiting: dict[str, DelegationControl] = {}
        """By task, the calls that wait for the results of tasks that their handlers stored."""
        worker.register(self.call_kind, self.calls)

    def follow_remote(self, runner: RemoteRunner) -> None:
        """Follow the tasks of servers with this runner."""
        self.remote = runner
        runner.host = self
        # A task that is only followed takes no place of those that run here.
        self.worker.register(self.remote_kind, runner, lambda: sys.maxsize)

    def place(self, name: str) -> str:
        """Return where a server or an agent does its tasks: each has limits of its own."""
        return f"{name}@{self._scope}" if name else ""

    def is_linked(self, call: StoredCall | None) -> bool:
        """True if the result of a call may be changed by links."""
        endpoint = None if call is None else self.calls.find(call.at)
        return endpoint is not None and endpoint.has_links

    async def passed(self, call: StoredCall, outcome: RunOutcome, task: TaskRecord) -> RunOutcome:
        """Return the outcome of a task after its result has passed the links before its call."""
        endpoint = self.calls.find(call.at)
        if outcome.payload is None or endpoint is None or not endpoint.has_links:
            return outcome
        waiting = self.waiting.get(task.id)
        response = None if waiting is None else await waiting.hand_over(outcome.payload)
        if response is None:
            arrived = late_response(call_request(call), outcome, b"")
            response = await self.calls.passed(call, arrived, task, endpoint)
        modern = version_of(call.version).modern
        passed = outcome_of(response, modern=modern, passed=call.at)
        says = passed.message if passed.is_error or response.error else outcome.message
        return replace(passed, message=says, usage=outcome.usage)


class LinkedRunner:
    """A runner whose results pass the links before the call that stored the task."""

    def __init__(
        self, runner: Runner, host: FindTasks, call_of: Callable[[bytes], StoredCall | None]
    ) -> None:
        """`call_of` returns the call in the input of a task."""
        self._runner = runner
        self._host = host
        self._call_of = call_of
        self.is_repeatable = runner.is_repeatable
        self.begins_itself = runner.begins_itself

    async def run(self, work: Work) -> RunOutcome:
        """Do the work."""
        outcome = await self._runner.run(work)
        call = self._call_of(work.input)
        return outcome if call is None else await self._host().passed(call, outcome, work.task)


async def stored(operation: Awaitable[T]) -> T:
    """Await an operation of the store; its failure is an error that a client understands."""
    try:
        return await operation
    except NotAccepted as refused:
        raise McpError(str(refused), INTERNAL_ERROR, {"kind": "limit"}) from None
    except StoreError as error:
        raise McpError(str(error), INTERNAL_ERROR, {"kind": "store"}) from None
