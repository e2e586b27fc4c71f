"""Tasks: calls whose result is fetched later, in both eras.

2025-11-25 has them in its core: the caller adds `task` to its params. In 2026-07-28 they are an
extension: the server may answer with a task if the client declares the extension.
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
_NOTIFICATIONS = ("notifications/tasks/status", "notifications/tasks")
_OVER = ("completed", "failed", "cancelled")
TASK, TASKS = b'"task"', EXTENSION.encode()
"""A call with neither, in its params or in the client's capabilities, creates no task."""
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
    """The state of a server's task."""

    id: str
    is_over: bool
    ttl_s: float | None = None
    """How long the server keeps it; None if unknown."""


def task_id(params: bytes) -> str:
    """Return the task id of a request or notification, or an empty string."""
    named = decoded(params, _Named)
    return "" if named is None else named.taskId


def is_about_task(method: str) -> bool:
    """True for requests about a task."""
    return method.startswith(_PREFIX)


def may_create(params: bytes, capabilities: bytes) -> bool:
    """True if a call may create a task; fast, with false positives."""
    return params.find(TASK) >= 0 or capabilities.find(TASKS) >= 0


def task_of(method: str, params: bytes, result: bytes) -> Task | None:
    """Return the task that a result creates or reports, if any."""
    found = decoded(result, _Created)
    if found is None:
        return None
    if method == "tasks/result":  # it returns once the task is over
        return Task(task_id(params), is_over=True)
    if is_about_task(method):
        return _task(found, task_id(params))
    if found.task is not None:
        return _task(found.task, "")
    return _task(found, "") if found.resultType == "task" else None


def task_in(method: str, params: bytes) -> Task | None:
    """Return the task that a notification reports, if any."""
    reported = decoded(params, _Task) if method in _NOTIFICATIONS else None
    return None if reported is None else _task(reported, "")


def _task(reported: _Task, id: str) -> Task | None:
    id = reported.taskId or id
    if not id or not reported.status:  # a modern `tasks/cancel` is only acknowledged
        return None
    ttl = reported.ttlMs if reported.ttlMs is not None else reported.ttl
    return Task(id, reported.status in _OVER, ttl / 1000 if ttl is not None else None)


# Tasks are hidden where their results could not be fetched.


def without_tasks(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return capabilities without tasks; the same object if there were none."""
    extensions = capabilities.get("extensions")
    listed: dict[str, Any] = extensions if isinstance(extensions, dict) else {}
    if "tasks" not in capabilities and EXTENSION not in listed:
        return capabilities if isinstance(capabilities, dict) else dict(capabilities)
    kept = {key: value for key, value in capabilities.items() if key != "tasks"}
    if EXTENSION in listed:
        kept["extensions"] = {key: value for key, value in listed.items() if key != EXTENSION}
        if not kept["extensions"]:
            del kept["extensions"]
    return kept


def without_tasks_raw(capabilities: bytes) -> bytes:
    """Do the same with raw JSON; return the same bytes if there were none."""
    if capabilities.find(b"tasks") < 0 and capabilities.find(b"\\") < 0:
        return capabilities
    found = members(capabilities)
    fields: dict[str, Any] = dict(found)
    if "extensions" in found:
        fields["extensions"] = dict(members(found["extensions"]))
    kept = without_tasks(fields)
    return capabilities if kept is fields else encode(kept)


def without_task_support(tool: bytes) -> bytes:
    """Return a tool's definition without its task support."""
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
