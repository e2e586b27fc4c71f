"""The call of a client that may become a task: how it is stored, and what its client gets."""

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.task_control import CreatedTask, TaskRequest
from portico.core.model.version import Version
from portico.core.protocol.codec import encode
from portico.core.protocol.result_fields import identified, noted_result
from portico.library.tasks.mcp.promotion import PromotableCall, Run
from portico.library.tasks.mcp.task_call import stored_call, with_key
from portico.library.tasks.mcp.task_changes import finished_task
from portico.library.tasks.mcp.task_plan import Plan, Step
from portico.library.tasks.mcp.task_wire import late_response, outcome_of
from portico.library.tasks.store.record import TaskRecord, new_key
from portico.library.tasks.worker.work import RunOutcome

if TYPE_CHECKING:
    from portico.library.tasks.mcp.task_link import TaskLink

_FORWARD = Step.FORWARD  # members of an enum are slow to look up


class ClientCall(PromotableCall):
    """A call that its server, its handler or a time makes a task."""

    _ended: RunOutcome | None = None
    """How the task of its own ended with which a server answered."""

    def __init__(
        self,
        endpoint: "TaskLink",
        request: Request,
        context: Context,
        plan: Plan,
        wish: TaskRequest | None,
        budget_s: float | None,
    ) -> None:
        after_s = budget_s if plan.by_time else None
        super().__init__(endpoint.next, request, context, after_s, endpoint.timer)
        self._endpoint = endpoint
        self._plan = plan
        self._wish = wish
        self._budget_s = budget_s
        self._sent = (request.name, request.params)  # which the chain changes
        self._key = new_key()
        if plan.step is not _FORWARD:
            request.params = with_key(request.params, self._key)

    @property
    def _call(self) -> Request:
        """The call as its client sent it."""
        name, params = self._sent
        return replace(self.request, name=name, params=params)

    @property
    def _ttl_s(self) -> float | None:
        wish = self._wish
        return None if wish is None or wish.ttl_ms is None else wish.ttl_ms / 1000

    async def adopt(self, run: Run) -> TaskRecord:
        """Store the call as a task."""
        host, at = self._endpoint.host(), self._endpoint.at
        input = stored_call(at, self._call, self.context)
        return await host.worker.adopt(
            self.context.owner,
            host.call_kind,
            input,
            run,
            self._ttl_s,
            place=self._endpoint.place(self._call),
            key=self._key,
        )

    def answer(self, task: TaskRecord) -> Response:
        """Return the task, or a text for a client without tasks."""
        if self._plan.step is Step.WAIT or self._wish is None:
            return explained(self.request, self.context, task, self._budget_s or 0.0)
        return self._endpoint.created(self.request, self.context, task)

    async def is_over(self, task: TaskRecord) -> bool:
        """Wait for a task that its client cannot follow."""
        if self._plan.step is not Step.WAIT:
            return False
        store, within_s = self._endpoint.host().worker.store, self._budget_s or 0.0
        ended = await finished_task(store, task.principal, task.id, within_s)
        return ended is not None and ended.is_finished

    def outcome(self, response: Response) -> RunOutcome:
        """Return the outcome of the task from the answer of the links."""
        if self._ended is not None and self._ended.payload is None:
            return self._ended  # without a result
        modern = self.request.version.modern
        return outcome_of(response, modern=modern, passed=self._endpoint.at)

    async def follow(self, created: CreatedTask, response: Response) -> Response:
        """Return the result of the server's own task, unless its client follows it itself."""
        request, context = self.request, self.context
        if self._endpoint.forwards and created.modern == request.version.modern:
            return response
        host = self._endpoint.host()
        input = self._endpoint.remote_input(self._call, context, created)
        assert host.remote is not None
        # To the end, also if the client leaves: the server's task runs already.
        storing = asyncio.ensure_future(self.become(lambda run: self._adopt(created, input, run)))
        work = await asyncio.shield(storing)
        token = request.meta.progress_token
        created.tell = lambda params: host.calls.tell_progress(work.id, token, params)
        self._ended = await host.remote.follow(input, work)
        return late_response(request, self._ended, context.server_info)

    async def _adopt(self, created: CreatedTask, input: bytes, run: Run) -> TaskRecord:
        """Store the task that follows the server's."""
        self._endpoint.creating.add(self._sent[0])
        ttl_s = _shorter(self._ttl_s, created.ttl_s)
        return await self._endpoint.adopt_remote(
            input, self.context, created, run, ttl_s, self._key
        )


def _shorter(first: float | None, second: float | None) -> float | None:
    """Return the shorter of two times; None sets no limit."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


def explained(request: Request, context: Context, task: TaskRecord, after_s: float) -> Response:
    """Return notes that explain how a client without tasks gets the result later."""
    notes = [
        f"{request.name} is still running after {after_s:g} s. It continues as task {task.id}.",
        f'Call task_status with {{"task_id": "{task.id}", "wait_s": 50}} for its result.',
    ]
    result = noted_result([], {"task_id": task.id, "status": task.word}, notes)
    if request.version < Version.V2025_06_18:
        result.pop("structuredContent")
    if request.version.modern:
        result = identified(result, context.server_info)
    return Response(id=request.id, result=encode(result))
