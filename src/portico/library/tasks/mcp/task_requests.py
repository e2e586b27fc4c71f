"""Answers requests about tasks, in both eras, and sends clients the changes of their tasks."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from portico.core.model.context import Context
from portico.core.model.errors import AskError, InvalidParams, McpError
from portico.core.model.message import Request, Response
from portico.core.model.methods import ELICIT
from portico.core.model.session import Session
from portico.core.protocol.codec import decoded, encode, notification
from portico.core.protocol.eras import (
    Members,
    declares,
    legacy_question,
    members,
    needed_capability,
)
from portico.core.protocol.result_fields import identified
from portico.core.state.background import Background
from portico.library.functions.rounds import check_answer
from portico.library.tasks.mcp import task_wire
from portico.library.tasks.mcp.stored_results import StoredResults
from portico.library.tasks.mcp.task_call import context_capabilities
from portico.library.tasks.mcp.task_changes import task_changes
from portico.library.tasks.mcp.task_host import FindTasks, stored
from portico.library.tasks.mcp.task_policy import declares_tasks
from portico.library.tasks.store.record import NotAccepted, OpenQuestion, TaskRecord

_CANCEL_S = 5.0
"""How long a legacy cancellation waits for the work to end by itself."""
_PAGE = 100
TaskMethod = Callable[["TaskRequests", Request, Context], Awaitable[Response]]


class TaskRequests:
    """The requests of an endpoint's clients about their tasks."""

    def __init__(self, host: FindTasks, results: StoredResults) -> None:
        self._host = host
        self._results = results
        self._background = Background()

    def method(self, request: Request) -> TaskMethod | None:
        """Return the function for a request; None if its version does not have the method."""
        return (_MODERN if request.version.modern else _LEGACY).get(request.method)

    async def _found(self, request: Request, context: Context) -> TaskRecord:
        if request.version.modern and not declares_tasks(request):
            raise task_wire.missing_extension()
        host = self._host()
        host.worker.start()  # a task of an earlier process may wait to be continued
        task = await self._results.get(task_wire.requested_id(request), request, context)
        if task is None:
            raise task_wire.unknown_task()
        return task

    async def _get(self, request: Request, context: Context) -> Response:
        task = await self._found(request, context)
        if not request.version.modern:
            return _task_response(request, task)
        fields = identified(await self._detailed(task), context.server_info)
        return Response(id=request.id, result=encode(fields))

    async def _detailed(self, task: TaskRecord) -> dict[str, Any]:
        payload = await self._results.result(task) if task.is_finished else None
        task = await self._results.told(task)
        return task_wire.detailed_fields(task, payload, time.time())

    async def _update(self, request: Request, context: Context) -> Response:
        task = await self._found(request, context)
        given = request.decode_as(task_wire.UpdateParams).inputResponses
        await self.answer(task, {key: bytes(raw) for key, raw in given.items()})
        return _acknowledged(request, context)

    async def answer(self, task: TaskRecord, answers: dict[str, bytes]) -> None:
        """Store the answers to open questions; others are ignored. Raises InvalidParams."""
        for question in task.pending:
            if question.key in answers:
                check_answer(question.body, answers[question.key])
        store = self._host().worker.store
        await stored(_valid(store.answer(task.principal, task.id, answers)))

    async def _cancel(self, request: Request, context: Context) -> Response:
        task = await self._found(request, context)
        if request.version.modern:
            await stored(self._host().worker.store.cancel(context.owner, task.id))
            return _acknowledged(request, context)
        if task.is_finished:
            why = f"cannot cancel the task: it is {task_wire.status_of(task, modern=False)} already"
            raise InvalidParams(why)
        return _task_response(request, await self._cancelled(task))

    async def _cancelled(self, task: TaskRecord) -> TaskRecord:
        """Cancel a task before the answer, as 2025-11-25 requires; the work may end first."""
        store = self._host().worker.store
        ended = task
        await stored(store.cancel(task.principal, task.id))
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(_CANCEL_S),
                task_changes(store, task.principal, task.id) as changes,
            ):
                async for changed in changes:
                    ended = changed
        if not ended.is_finished:
            at_once = await stored(store.cancel(task.principal, task.id, at_once=True))
            ended = ended if at_once is None else at_once
        return ended

    async def _list(self, request: Request, context: Context) -> Response:
        cursor = request.decode_as(task_wire.ListParams).cursor
        page = await stored(self._host().worker.store.page(context.owner, _PAGE, cursor))
        if page is None:
            raise InvalidParams("unknown cursor: list from the start")
        now = time.time()
        shown = [await self._results.shown(task, request, context) for task in page.tasks]
        tasks = [task_wire.task_fields(one, now, modern=False) for one in shown if one is not None]
        result: dict[str, Any] = {"tasks": tasks}
        if page.cursor is not None:
            result["nextCursor"] = page.cursor
        return Response(id=request.id, result=encode(result))

    async def _result(self, request: Request, context: Context) -> Response:
        """Wait for the end of a task, and send its questions to the client meanwhile."""
        task = await self._found(request, context)
        store = self._host().worker.store
        asking, asked = Background(), set[str]()
        try:
            async with task_changes(store, task.principal, task.id) as changes:
                async for task in changes:
                    for question in task.pending:
                        if question.key not in asked:
                            asked.add(question.key)
                            asking.start(self._ask(task, question, request, context))
        finally:
            await asking.close()
        if not task.is_finished:
            raise task_wire.unknown_task()  # it has expired meanwhile
        return task_wire.legacy_outcome(request, task, await self._results.result(task))

    async def _ask(
        self, task: TaskRecord, question: OpenQuestion, request: Request, context: Context
    ) -> None:
        """Send a question of a task to a legacy client, and store its answer. Without one, the
        question stays open: for this client when it returns, for another one or for a person."""
        fields = members(question.body)
        method = decoded(fields.get("method", b""), str) or ""
        params = members(fields.get("params", b""))
        if context.peer is None or not _can_answer(method, params, request, context):
            return
        sent = legacy_question(method, params, request.version, question.key)
        try:
            answer = await context.peer.ask(method, task_wire.related(sent, task.id))
            check_answer(question.body, answer)
        except (AskError, InvalidParams) as error:
            is_answer = not isinstance(error, AskError) or error.is_answer
            if method != ELICIT or not is_answer:
                return
            answer = b'{"action":"cancel"}'
        with contextlib.suppress(McpError):
            await self.answer(task, {question.key: answer})

    # Listeners.

    async def visible(self, ids: Sequence[str], request: Request, context: Context) -> list[str]:
        """Return those of the tasks that this client can follow."""
        found = [await self._results.get(id, request, context) for id in ids]
        return [task.id for task in found if task is not None]

    @contextlib.asynccontextmanager
    async def following(
        self, ids: Sequence[str], context: Context, send: Callable[[bytes], Awaitable[None]]
    ) -> AsyncGenerator[None, None]:
        """Send a modern listener every state of these tasks, in full."""
        following = Background()
        for id in ids:
            following.start(self._follow(id, context.owner, send))
        try:
            yield
        finally:
            await following.close()

    async def _follow(
        self, id: str, principal: str, send: Callable[[bytes], Awaitable[None]]
    ) -> None:
        async with task_changes(self._host().worker.store, principal, id) as changes:
            async for task in changes:
                await send(encode(await self._detailed(task)))

    def tell_session(self, task: TaskRecord, request: Request, session: Session) -> None:
        """Send a legacy client the states and the progress of its task while it is connected."""
        host = self._host()
        if request.meta.progress_token:
            host.calls.live[task.id] = session.send
        telling = self._background.start(self._notify(task, session))
        session.on_end(telling, lambda: _cancel(telling))

        def over(_: object) -> None:
            session.cancel_on_end(telling)
            host.calls.live.pop(task.id, None)

        telling.add_done_callback(over)

    async def _notify(self, task: TaskRecord, session: Session) -> None:
        before = task_wire.status_of(task, modern=False)
        store = self._host().worker.store
        async with task_changes(store, task.principal, task.id) as changes:
            async for changed in changes:
                status = task_wire.status_of(changed, modern=False)
                if status != before:
                    fields = task_wire.task_fields(changed, time.time(), modern=False)
                    session.send(notification("notifications/tasks/status", fields))
                before = status

    async def close(self) -> None:
        """Stop sending changes."""
        await self._background.close()


_LEGACY: dict[str, TaskMethod] = {
    "tasks/get": TaskRequests._get,
    "tasks/result": TaskRequests._result,
    "tasks/list": TaskRequests._list,
    "tasks/cancel": TaskRequests._cancel,
}
_MODERN: dict[str, TaskMethod] = {
    "tasks/get": TaskRequests._get,
    "tasks/update": TaskRequests._update,
    "tasks/cancel": TaskRequests._cancel,
}


async def _valid(answering: Awaitable[object]) -> None:
    """Await the storing of answers; too long an answer is the client's error."""
    try:
        await answering
    except NotAccepted as refused:
        raise InvalidParams(str(refused)) from None


def _can_answer(method: str, params: Members, request: Request, context: Context) -> bool:
    """True if a client has declared what a question requires."""
    fields = decoded(encode(params), dict[str, Any]) or {}
    capability, part = needed_capability(method, fields)
    declared = context_capabilities(request, context)
    return bool(capability) and declares(declared, capability, part)


def _cancel(telling: "asyncio.Task[None]") -> None:
    telling.cancel()


def _task_response(request: Request, task: TaskRecord) -> Response:
    fields = task_wire.task_fields(task, time.time(), modern=False)
    return Response(id=request.id, result=encode(fields))


def _acknowledged(request: Request, context: Context) -> Response:
    return Response(id=request.id, result=encode(identified({}, context.server_info)))
