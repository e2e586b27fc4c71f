"""Tasks: calls whose result is fetched later, in either era.

2025-11-25 has them in its core: the caller adds `task` to its params. In 2026-07-28 they are an
extension: the server answers with a task if the client declares that it can follow one.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct

from portico.protocol.codec import decoded, encode
from portico.protocol.eras import members

EXTENSION = "io.modelcontextprotocol/tasks"
MIRRORED = dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")
"""By method, the params field that modern HTTP mirrors into `Mcp-Name`."""
_PREFIX = "tasks/"
_NOTICES = ("notifications/tasks/status", "notifications/tasks")
_OVER = ("completed", "failed", "cancelled")
TASK, TASKS = b'"task"', EXTENSION.encode()
"""Without either, in its params or the client's capabilities, a call creates no task."""
_FORBIDDEN = b'"forbidden"'


class _Named(Struct):
    taskId: str = ""  # noqa: N815  (fields of the wire)


class _Task(_Named):
    status: str = ""
    ttl: float | None = None
    ttlMs: float | None = None  # noqa: N815


class _Created(_Task):
    resultType: str = ""  # noqa: N815
    task: _Task | None = None


class Task(Struct, frozen=True):
    """What a server says of one of its tasks."""

    id: str
    is_over: bool
    ttl_s: float | None = None
    """How long the server keeps it; None if it does not say."""


def task_id(params: bytes) -> str:
    """The task that a request or notification is about; empty if it names none."""
    named = decoded(params, _Named)
    return "" if named is None else named.taskId


def is_about_task(method: str) -> bool:
    """True for requests that follow a task up."""
    return method.startswith(_PREFIX)


def may_create(params: bytes, capabilities: bytes) -> bool:
    """True if a call may be answered with a task; quick, and True for more calls than those."""
    return params.find(TASK) >= 0 or capabilities.find(TASKS) >= 0


def task_of(method: str, params: bytes, result: bytes) -> Task | None:
    """The task that a result creates or tells of, if there is one."""
    found = decoded(result, _Created)
    if found is None:
        return None
    if method == "tasks/result":  # it is answered once the task is over
        return Task(task_id(params), is_over=True)
    if is_about_task(method):
        return _task(found, task_id(params))
    if found.task is not None:
        return _task(found.task, "")
    return _task(found, "") if found.resultType == "task" else None


def task_in(method: str, params: bytes) -> Task | None:
    """The task that a notification tells of, if there is one."""
    told = decoded(params, _Task) if method in _NOTICES else None
    return None if told is None else _task(told, "")


def _task(said: _Task, id: str) -> Task | None:
    id = said.taskId or id
    if not id or not said.status:  # a modern `tasks/cancel` is only acknowledged
        return None
    ttl = said.ttlMs if said.ttlMs is not None else said.ttl
    return Task(id, said.status in _OVER, ttl / 1000 if ttl is not None else None)


# Withheld where tasks cannot be followed up.


def without_tasks(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Capabilities of either side that say nothing of tasks; the same object if they did not."""
    extensions = capabilities.get("extensions")
    listed: dict[str, Any] = extensions if isinstance(extensions, dict) else {}
    if "tasks" not in capabilities and EXTENSION not in listed:
        return capabilities if isinstance(capabilities, dict) else dict(capabilities)
    kept = {key: value for key, value in capabilities.items() if key != "tasks"}
    if EXTENSION in listed:
        kept["extensions"] = {key: of for key, of in listed.items() if key != EXTENSION}
        if not kept["extensions"]:
            del kept["extensions"]
    return kept


def without_tasks_raw(capabilities: bytes) -> bytes:
    """The same of raw JSON; the very bytes if they said nothing of tasks."""
    if capabilities.find(b"tasks") < 0 and capabilities.find(b"\\") < 0:
        return capabilities
    found = members(capabilities)
    fields: dict[str, Any] = dict(found)
    if "extensions" in found:
        fields["extensions"] = dict(members(found["extensions"]))
    kept = without_tasks(fields)
    return capabilities if kept is fields else encode(kept)


def without_task_support(tool: bytes) -> bytes:
    """A tool's definition that does not say that it runs as a task."""
    if tool.find(b'"taskSupport"') < 0:
        return tool
    fields = members(tool)
    execution = members(fields.get("execution", b""))
    if bytes(execution.pop("taskSupport", _FORBIDDEN)) == _FORBIDDEN:
        return tool
    if execution:
        fields["execution"] = Raw(encode(execution))
    else:
        del fields["execution"]
    return encode(fields)
