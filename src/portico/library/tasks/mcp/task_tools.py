"""The tools for tasks, for models whose clients do not support tasks themselves."""

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from portico.core.definitions.typed_arguments import typed_arguments
from portico.core.model.context import ANYONE, Context
from portico.core.model.errors import InvalidParams, McpError, ToolError
from portico.core.model.message import Request, Response
from portico.core.model.offer import Listed, Offer
from portico.core.model.types import Answer, Change
from portico.core.model.version import Version
from portico.core.protocol.codec import encode
from portico.core.protocol.result_fields import error_result, identified, noted_result
from portico.library.functions.rounds import (
    KEY_SIZE,
    DirectAsker,
    ReplayAsker,
    Rounds,
    Suspended,
    check_answer,
)
from portico.library.tasks.mcp.stored_results import StoredResults
from portico.library.tasks.mcp.task_answers import (
    question_notes,
    question_text,
    settled_task,
    typed_answer,
)
from portico.library.tasks.mcp.task_changes import finished_task
from portico.library.tasks.mcp.task_host import FindTasks, stored
from portico.library.tasks.mcp.task_tool_definitions import (
    CANCEL_TASK,
    LIST_TASKS,
    MAX_WAIT_S,
    TASK_STATUS,
    task_tools,
)
from portico.library.tasks.mcp.task_wire import agent_of, error_of, result_of, tool_in
from portico.library.tasks.store.record import COMPLETED, INTERRUPTED, OpenQuestion, TaskRecord

TASK_KEY = "portico/task"
"""In the `_meta` of a result: the task that it belongs to."""
_PAGE, _MAX_LISTED = 20, 50
"""The tasks of a client that are listed; and with those of agents."""
_STOP_S = 2.0
"""How long a cancelled task may take to stop, before that is reported."""
_ANSWERED = "answered"
"""In the state of a call's rounds: true once the model's answer is stored."""

Result = dict[str, Any]
_Tool = Callable[[bytes, Context], Awaitable[Result]]


class _Status(Struct, forbid_unknown_fields=True):
    task_id: str
    wait_s: float = 0.0
    answer: Any = None


class _Cancel(Struct, forbid_unknown_fields=True):
    task_id: str


class _List(Struct, forbid_unknown_fields=True):
    limit: int = _PAGE
    """Not in the definition, but models guess it."""


class _Call(Struct):
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class TaskTools:
    """The provider of `task_status`, `cancel_task` and `list_tasks`."""

    name = "task-tools"

    def __init__(self, host: FindTasks, at: str | None = None, *, is_listed: bool = False) -> None:
        """`at` is the endpoint of the tools, if it is known. `is_listed` offers them; a gateway
        lists them itself, where tasks can exist."""
        self._host = host
        self._results = StoredResults(host, at)
        self._is_listed = is_listed
        self._rounds = Rounds(os.urandom(KEY_SIZE))
        self._tools: dict[str, _Tool] = {
            TASK_STATUS: self.status,
            CANCEL_TASK: self._cancel,
            LIST_TASKS: self._list,
        }

    def offer(self) -> Offer:
        """Return the tools, if this provider lists them."""
        if not self._is_listed:
            return Offer()
        own = task_tools()
        return Offer(lists={"tools": Listed(items=tuple(own.values()), keys=tuple(own))})

    def watch(self, changed: Callable[[Change], None]) -> None:
        """Do nothing: the tools do not change."""

    def provide(self, request: Request, context: Context) -> Answer | None:
        """Answer one of the tools."""
        tool = self._tools.get(request.name) if request.method == "tools/call" else None
        return None if tool is None else self._answer(tool, request, context)

    async def _answer(self, tool: _Tool, request: Request, context: Context) -> Response:
        call = msgspec.json.decode(request.params or b"{}", type=_Call)
        try:
            result = await self._rounded(tool, bytes(call.arguments), request, context)
        except (ToolError, McpError) as error:
            result = error_result(str(error))
        if request.version < Version.V2025_06_18:
            result.pop("structuredContent", None)
        if request.version.modern:
            result = identified(result, context.server_info)
        return Response(id=request.id, result=encode(result))

    async def _rounded(
        self, tool: _Tool, arguments: bytes, request: Request, context: Context
    ) -> Result:
        """Run one round of a call: to its end, or in the modern era to a question."""
        replay: ReplayAsker | None = None
        if request.version.modern:
            bound, replay = await self._rounds.begin(request, context)
        else:
            bound = context.bound(request, None, {})
            bound._asker = DirectAsker(bound, request.version)
        try:
            return await tool(arguments, bound)
        except Suspended as suspended:
            assert replay is not None
            return await self._rounds.suspend(request, bound, replay, suspended)
        finally:
            bound.release()

    async def status(self, raw: bytes, context: Context) -> Result:
        """Return the state of a task, or its result once it has ended. A client that can show a
        question to its person gets it first."""
        given = _arguments(raw, _Status, TASK_STATUS)
        task = await self._find(given.task_id, context)
        wait_s = min(max(given.wait_s, 0.0), MAX_WAIT_S)
        if given.answer is not None:
            if _ANSWERED not in context.state:  # in a later round it is stored already
                await self._give_answer(task, given.answer, context)
                context.state[_ANSWERED] = True
            wait_s = max(wait_s, 0.05)
        store = self._host().worker.store
        return await self._shown(await settled_task(store, task, context, wait_s))

    async def _find(self, id: str, context: Context) -> TaskRecord:
        host = self._host()
        host.worker.start()
        task = await stored(host.worker.store.find(context.owner, id))
        if task is None or await self._is_hidden(task, context):
            raise ToolError(f"there is no task {id[:80]!r}; list_tasks shows those that exist")
        return task

    async def _give_answer(self, task: TaskRecord, answer: Any, context: Context) -> None:
        """Answer the first open question that a model may answer; raises ToolError."""
        if not task.pending:
            raise ToolError("the task has no open question")
        is_own = task.principal == context.owner  # else another model has delegated it
        for question in task.pending if is_own else ():
            typed = _typed(question, answer)
            if typed is not None:
                store = self._host().worker.store
                await stored(store.answer(task.principal, task.id, {question.key: typed}))
                return
        how = f"a person can answer it with `portico tasks answer {task.id}`"
        raise ToolError(f"the open question is meant for a person, not for a model; {how}")

    async def _shown(self, task: TaskRecord) -> Result:
        if task.state is COMPLETED:
            payload = await self._results.result(task)
            result: Result = msgspec.json.decode(result_of(payload) or b'{"content":[]}')
            meta = result.get("_meta") or {}
            return {**result, "_meta": {**meta, TASK_KEY: await self._summary(task)}}
        if task.is_finished:
            payload = await self._results.result(task)
            error = msgspec.json.decode(error_of(task, payload))
            notes = [str(error.get("message", ""))]
            if task.state is INTERRUPTED:
                notes.append(f"A person can start it again with `portico tasks resume {task.id}`.")
            return {**await self._told(task, notes), "isError": True}
        again = "Call task_status again with wait_s to wait for it."
        return await self._told(task, question_notes(task, TASK_STATUS) or [again])

    async def _cancel(self, raw: bytes, context: Context) -> Result:
        given = _arguments(raw, _Cancel, CANCEL_TASK)
        task = await self._find(given.task_id, context)
        store = self._host().worker.store
        await stored(store.cancel(task.principal, task.id))
        ended = await finished_task(store, task.principal, task.id, _STOP_S, or_question=False)
        ended = ended or task
        if ended.is_finished:
            return await self._told(ended)
        why = "Its cancellation was requested; its work has not stopped yet."
        return await self._told(ended, [why, "Call task_status with wait_s to wait for that."])

    async def _list(self, raw: bytes, context: Context) -> Result:
        count = min(max(_arguments(raw, _List, LIST_TASKS).limit, 1), _MAX_LISTED)
        if context.principal == ANYONE:
            why = "clients without a token see no list, which would have the tasks of others"
            raise ToolError(f"list_tasks: {why}; use the id that you were given")
        page = await stored(self._host().worker.store.page(context.owner, count))
        newest = [] if page is None else page.tasks
        tasks = (await stored(self._host().worker.store.with_nested(newest)))[:_MAX_LISTED]
        found = [
            (depth, await self._summary(task))
            for depth, task in tasks
            if not await self._is_hidden(task, context)
        ]
        texts = ["\n".join("  " * depth + _line(task) for depth, task in found)] if found else []
        data = {"tasks": [task for _, task in found]}
        return noted_result(texts, data, [] if found else ["there are no tasks"])

    async def _is_hidden(self, task: TaskRecord, context: Context) -> bool:
        assert context.request is not None
        return await self._results.is_hidden(task, context.request, context)

    async def _told(self, task: TaskRecord, notes: Sequence[str] = ()) -> Result:
        summary = await self._summary(task)
        return noted_result([_line(summary)], summary, notes)

    async def _summary(self, task: TaskRecord) -> Result:
        task = await self._results.told(task)
        age = max(0, round(time.time() - task.created_at))
        found: Result = {"task_id": task.id, "status": task.word, "age_s": age}
        tool = tool_in(await stored(self._host().worker.store.input(task)))
        found |= {"tool": tool} if tool else {}
        found |= {"agent_id": agent} if (agent := agent_of(task)) else {}
        found |= {"parent": task.parent} if task.parent else {}
        return found | ({"message": task.message} if task.message else {})


def _typed(question: OpenQuestion, answer: Any) -> bytes | None:
    """Return an answer to a question, or None if it is not for a model; raise ToolError if it does
    not match."""
    try:
        typed = typed_answer(question.body, answer, by_model=True)
        if typed is not None:
            check_answer(question.body, typed)
    except InvalidParams as error:
        asked = question_text(question.body)
        raise ToolError(f"{error.message}; the question is still open. {asked}") from None
    return typed


def _arguments(raw: bytes, type: type[Any], tool: str) -> Any:
    try:
        return typed_arguments(msgspec.json.decode(raw or b"{}", type=dict[str, Any]), type)
    except ValueError as error:
        raise ToolError(f"{tool}: {error}") from None


def _line(task: Result) -> str:
    tool = f" {task['tool']}" if "tool" in task else ""
    agent = f", agent {task['agent_id']}" if "agent_id" in task else ""
    said = f": {task['message']}" if "message" in task else ""
    return f"{task['task_id']}{tool} {task['status']} ({task['age_s']} s){agent}{said}"
