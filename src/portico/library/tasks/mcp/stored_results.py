"""The tasks and results that a client may read, behind the links of its endpoint."""

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.types import LinkedEndpoint
from portico.core.model.version import LATEST_LEGACY, version_of
from portico.core.protocol.codec import decoded, encode
from portico.core.protocol.result_fields import error_result
from portico.library.tasks.mcp.task_call import StoredCall, call_request
from portico.library.tasks.mcp.task_host import FindTasks, stored
from portico.library.tasks.mcp.task_wire import late_response, outcome_of, stored_payload
from portico.library.tasks.store.record import COMPLETED, FAILED, TaskRecord
from portico.library.tasks.worker.work import RunOutcome

DELEGATE_TASK = "delegate_task"
"""The tool whose calls are tasks of agents."""


class _Input(Struct):
    """The input of any task: a call, or work that a call stored."""

    name: str = ""
    call: StoredCall | None = None
    prompt: str | None = None


class StoredResults:
    """The tasks of one endpoint as its clients see them."""

    def __init__(self, host: FindTasks, at: str | None, *, shares_links: bool = True) -> None:
        """`at` is the endpoint of the client, if it is known; it `shares_links` with the other
        endpoints."""
        self._host = host
        self._at = at
        self._shares_links = shares_links

    async def get(self, id: str, request: Request, context: Context) -> TaskRecord | None:
        """Return a task of this client; None if there is none, or a link hides its tool."""
        task = await stored(self._host().worker.store.get(context.owner, id))
        return None if task is None else await self.shown(task, request, context)

    async def shown(
        self, task: TaskRecord, request: Request, context: Context
    ) -> TaskRecord | None:
        """Return a task as a client may see it; None if a link hides its tool."""
        return None if await self.is_hidden(task, request, context) else await self.told(task)

    async def is_hidden(self, task: TaskRecord, request: Request, context: Context) -> bool:
        """True if a link hides the tool of a task."""
        here = self._endpoint(self._at)
        if here is not None and here.hides is None:
            return False
        call = await self._call_of(task)
        endpoint = None if call is None else self._linked(call)
        if call is None or endpoint is None or endpoint.hides is None:
            return False
        named = Request(
            method="tools/call",
            id=b"0",
            name=call.name,
            version=request.version,
            meta=request.meta,
        )
        return await endpoint.hides(named, context)

    async def told(self, task: TaskRecord) -> TaskRecord:
        """Return a task without the words of an error that has not passed the links."""
        if not (task.message and task.is_finished and (task.is_error or task.state is FAILED)):
            return task
        payload = await stored(self._host().worker.store.result(task))
        if payload is None or await self._unpassed(task, payload) is None:
            return task
        return replace(task, message="")

    async def _unpassed(
        self, task: TaskRecord, payload: bytes
    ) -> tuple[StoredCall, LinkedEndpoint] | None:
        """Return the call whose links a result must still pass, and its endpoint, if there is
        one."""
        if self._has_passed(payload):
            return None
        call = await self._call_of(task)
        endpoint = None if call is None else self._linked(call)
        if call is None or endpoint is None or not endpoint.has_links:
            return None
        return call, endpoint

    async def result(self, task: TaskRecord) -> bytes | None:
        """Return the stored result or error of a task as clients may see it."""
        payload = await stored(self._host().worker.store.result(task))
        unpassed = None if payload is None else await self._unpassed(task, payload)
        if unpassed is None:
            return payload
        call, endpoint = unpassed
        modern = version_of(call.version).modern
        arrived = late_response(call_request(call), RunOutcome(task.state, payload), b"")
        response = await self._host().calls.passed(call, arrived, task, endpoint)
        if response.error and task.state is COMPLETED:  # a link refuses it
            words = str(msgspec.json.decode(response.error).get("message", ""))
            response = Response(id=b"0", result=encode(error_result(words)))
        return outcome_of(response, modern=modern, passed=self._at).payload

    def _has_passed(self, payload: bytes) -> bool:
        passed = stored_payload(payload).passed
        return passed is not None and (self._shares_links or passed == self._at)

    def _linked(self, call: StoredCall) -> LinkedEndpoint | None:
        """Return the endpoint whose links count: that of the call, or that of its reader."""
        there = self._endpoint(call.at) if self._shares_links else None
        return self._endpoint(self._at) if there is None else there

    def _endpoint(self, at: str | None) -> LinkedEndpoint | None:
        return None if at is None else self._host().calls.find(at)

    async def _call_of(self, task: TaskRecord) -> StoredCall | None:
        """Return the call that created a task; None if its input is not known."""
        input = await stored(self._host().worker.store.input(task))
        found = decoded(input, _Input) if input else None
        if found is None:
            return None
        if found.call is not None:
            return found.call
        if found.name:
            return decoded(input or b"", StoredCall)
        return _delegation(self._at or "") if found.prompt is not None else None


def _delegation(at: str) -> StoredCall:
    """Return the call of a delegation that an older Portico stored, without its arguments."""
    params = Raw(encode({"name": DELEGATE_TASK, "arguments": {}}))
    nothing = Raw(b"{}")
    return StoredCall(
        at=at,
        name=DELEGATE_TASK,
        params=params,
        version=LATEST_LEGACY.text,
        capabilities=nothing,
        info=nothing,
    )
