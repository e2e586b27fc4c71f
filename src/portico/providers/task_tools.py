"""The tools for tasks, for models whose clients do not support tasks themselves."""

import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from portico.model.context import Context
from portico.model.errors import McpError, ToolError
from portico.model.message import Request, Response
from portico.model.offer import Listed, Offer
from portico.model.types import Answer, Change
from portico.model.version import Version
from portico.protocol.codec import encode
from portico.protocol.result_fields import error_result, identified
from portico.providers.task_answers import question_text, typed_answer
from portico.providers.task_changes import finished_task
from portico.providers.task_host import FindTasks, stored
from portico.providers.task_tool_definitions import (
    CANCEL_TASK,
    LIST_TASKS,
    MAX_WAIT_S,
    TASK_STATUS,
    task_tools,
)
from portico.providers.task_wire import error_of, result_of
from portico.tasks.record import COMPLETED, INTERRUPTED, TaskRecord

TASK_KEY = "portico/task"
"""In the `_meta` of a result: the task that it belongs to."""
_PAGE = 20

Result = dict[str, Any]
_Tool = Callable[[bytes, Context], Awaitable[Result]]


class _Status(Struct, forbid_unknown_fields=True):
    task_id: str
    wait_s: float = 0.0
    answer: Any = None


class _Cancel(Struct, forbid_unknown_fields=True):
    task_id: str


class _List(Struct, forbid_unknown_fields=True):
    pass


class _Call(Struct):
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class TaskTools:
    """The provider of `task_status`, `cancel_task` and `list_tasks`."""

    name = "task-tools"

    def __init__(self, host: FindTasks, *, is_listed: bool = False) -> None:
        """`is_listed` offers the tools; a gateway lists them itself, where tasks can exist."""
        self._host = host
        self._is_listed = is_listed
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
            result = await tool(bytes(call.arguments), context)
        except (ToolError, McpError) as error:
            result = error_result(str(error))
        if request.version < Version.V2025_06_18:
            result.pop("structuredContent", None)
        if request.version.modern:
            result = identified(result, context.server_info)
        return Response(id=request.id, result=encode(result))

    async def status(self, raw: bytes, context: Context) -> Result:
        """Return the state of a task, or its result once it has ended."""
        given = _arguments(raw, _Status, TASK_STATUS)
        task = await self._find(given.task_id, context)
        if given.answer is not None:
            await self._give_answer(task, given.answer)
        wait_s = min(max(given.wait_s, 0.0), MAX_WAIT_S)
        if wait_s or given.answer is not None:
            store = self._host().worker.store
            wait_s = max(wait_s, 0.05)
            task = await finished_task(store, context.owner, task.id, wait_s) or task
        return await self._shown(task)

    async def _find(self, id: str, context: Context) -> TaskRecord:
        host = self._host()
        host.worker.start()
        task = await stored(host.worker.store.get(context.owner, id))
        if task is None:
            raise ToolError(f"there is no task {id[:80]!r}; list_tasks shows those that exist")
        return task

    async def _give_answer(self, task: TaskRecord, answer: Any) -> None:
        """Answer the first open question that a model may answer; raises ToolError."""
        if not task.pending:
            raise ToolError("the task has no open question")
        for question in task.pending:
            typed = typed_answer(question.body, answer, by_model=True)
            if typed is not None:
                store = self._host().worker.store
                await stored(store.answer(task.principal, task.id, {question.key: typed}))
                return
        how = f"a person can answer it with `portico tasks answer {task.id}`"
        raise ToolError(f"the open question is meant for a person, not for a model; {how}")

    async def _shown(self, task: TaskRecord) -> Result:
        if task.state is COMPLETED:
            payload = await stored(self._host().worker.store.result(task))
            result: Result = msgspec.json.decode(result_of(payload) or b'{"content":[]}')
            meta = result.get("_meta") or {}
            return {**result, "_meta": {**meta, TASK_KEY: _summary(task)}}
        lines = [_line(task)]
        if task.is_finished:
            payload = await stored(self._host().worker.store.result(task))
            error = msgspec.json.decode(error_of(task, payload))
            lines.append(str(error.get("message", "")))
            if task.state is INTERRUPTED:
                lines.append(f"A person can start it again with `portico tasks resume {task.id}`.")
            return {**_text(lines, _summary(task)), "isError": True}
        lines += [question_text(question.body) for question in task.pending]
        if not task.pending:
            lines.append("Call task_status again with wait_s to wait for it.")
        return _text(lines, _summary(task))

    async def _cancel(self, raw: bytes, context: Context) -> Result:
        given = _arguments(raw, _Cancel, CANCEL_TASK)
        task = await self._find(given.task_id, context)
        store = self._host().worker.store
        await stored(store.cancel(context.owner, task.id))
        ended = await finished_task(store, context.owner, task.id, 2.0, or_question=False)
        ended = ended or task
        return _text([_line(ended)], _summary(ended))

    async def _list(self, raw: bytes, context: Context) -> Result:
        _arguments(raw, _List, LIST_TASKS)
        page = await stored(self._host().worker.store.page(context.owner, _PAGE))
        tasks = [] if page is None else page.tasks
        lines = [_line(task) for task in tasks] or ["there are no tasks"]
        return _text(lines, {"tasks": [_summary(task) for task in tasks]})


def _arguments(raw: bytes, type: type[Any], tool: str) -> Any:
    try:
        given = msgspec.json.decode(raw or b"{}", type=dict[str, Any])
        kept = {key: value for key, value in given.items() if value is not None}
        return msgspec.convert(kept, type, strict=False)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ToolError(f"{tool}: {error}") from None


def _summary(task: TaskRecord) -> Result:
    found: Result = {"task_id": task.id, "status": str(task.state)}
    if task.message:
        found["message"] = task.message
    return found


def _line(task: TaskRecord) -> str:
    age = max(0, round(time.time() - task.created_at))
    said = f": {task.message}" if task.message else ""
    return f"{task.id} {task.state} ({age} s){said}"


def _text(lines: list[str], data: Result) -> Result:
    text = {"type": "text", "text": "\n".join(lines)}
    return {"content": [text], "structuredContent": data}
