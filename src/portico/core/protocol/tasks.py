"""Tasks: calls whose result is fetched later, in both eras.

2025-11-25 has them in its core: the caller adds `task` to its params. In 2026-07-28 they are an
extension: the server may answer with a task if the client declares the extension.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct

from portico.core.model.methods import LISTEN
from portico.core.protocol.codec import decoded, encode, may_mention
from portico.core.protocol.eras import members

EXTENSION = "io.modelcontextprotocol/tasks"
MIRRORED = dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")
"""By method, the params field that modern HTTP mirrors into `Mcp-Name`."""
LIST_TASKS = "tasks/list"
_PREFIX = "tasks/"
_NOTIFICATIONS = ("notifications/tasks/status", "notifications/tasks")
_OVER = ("completed", "failed", "cancelled")
TASK, TASKS = b'"task"', EXTENSION.encode()
"""A call with neither, in its params or in the client's capabilities, creates no task."""
_FORBIDDEN = b'"forbidden"'
RELATED = "io.modelcontextprotocol/related-task"
"""In the `_meta` of legacy messages: the task that they belong to."""


class _Named(Struct):
    taskId: str = ""  # noqa: N815  (fields of the wire)


class _Task(_Named):
    status: str = ""
    ttl: float | None = None
    ttlMs: float | None = None  # noqa: N815


class _Created(_Task):
    resultType: str = ""  # noqa: N815
    task: _Task | None = None


class _Answered(Struct):
    resultType: Any = None  # noqa: N815
    task: Any = None
    content: Any = None


class Task(Struct, frozen=True):
    """The state of a server's task."""

    id: str
    is_over: bool
    ttl_s: float | None = None
    """How long the server keeps it; None if unknown."""


class _Listed(Struct, frozen=True):
    taskIds: list[str] = []  # noqa: N815


class _Listen(Struct):
    notifications: _Listed = _Listed()


def pinned_task(method: str, params: bytes) -> str:
    """Return the task whose process must get a request, or an empty string."""
    if is_about_task(method):
        return task_id(params)
    if method != LISTEN:
        return ""
    listen = decoded(params, _Listen)
    ids = [] if listen is None else listen.notifications.taskIds
    return ids[0] if len(ids) == 1 else ""


def task_id(params: bytes) -> str:
    """Return the task id of a request or notification, or an empty string."""
    named = decoded(params, _Named)
    return "" if named is None else named.taskId


def related_task(params: bytes) -> str:
    """Return the id of the task that a legacy question belongs to, or an empty string."""
    meta = members(members(params).get("_meta", b""))
    return task_id(bytes(meta.get(RELATED, b"")))


def is_about_task(method: str) -> bool:
    """True for requests about a task."""
    return method.startswith(_PREFIX)


def may_create(params: bytes, capabilities: bytes) -> bool:
    """True if a call may create a task; fast, with false positives."""
    return may_mention(params, TASK) or may_mention(capabilities, TASKS)


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


def unasked_task(result: bytes) -> Task | None:
    """Return the task that a server sent in place of a result, though its client requested none;
    without an id if it cannot be read."""
    if not may_mention(result, TASK):
        return None
    found = decoded(result, _Answered)
    if found is None:
        return None
    is_task = isinstance(found.task, dict) and "taskId" in found.task and found.content is None
    if not is_task and found.resultType != "task":
        return None
    return task_of("tools/call", b"", result) or Task("", is_over=True)


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


def with_tasks(capabilities: bytes) -> bytes:
    """Return a client's capabilities, as JSON, with the extension for tasks."""
    fields = members(capabilities)
    extensions = members(fields.get("extensions", b""))
    return encode({**fields, "extensions": {**extensions, EXTENSION: {}}})


def without_tasks_raw(capabilities: bytes) -> bytes:
    """Do the same with raw JSON; return the same bytes if there were none."""
    if not may_mention(capabilities, b"tasks"):
        return capabilities
    found = members(capabilities)
    fields: dict[str, Any] = dict(found)
    if "extensions" in found:
        fields["extensions"] = dict(members(found["extensions"]))
    kept = without_tasks(fields)
    return capabilities if kept is fields else encode(kept)


LEGACY_CAPABILITY: dict[str, Any] = {
    "list": {},
    "cancel": {},
    "requests": {"tools": {"call": {}}},
}
"""The capability of a server of 2025-11-25 whose tools can run as tasks."""


def legacy_capabilities(capabilities: bytes, *, has_tasks: bool) -> bytes:
    """Return a modern server's capabilities for a legacy client; `has_tasks` of its version."""
    kept = without_tasks_raw(capabilities)
    if not has_tasks or EXTENSION not in members(members(capabilities).get("extensions", b"")):
        return kept
    return encode({**members(kept), "tasks": LEGACY_CAPABILITY})


def without_task_list(handshake: bytes) -> bytes:
    """Return the result of `initialize` for a client that cannot list tasks."""
    fields = members(handshake)
    capabilities = members(fields.get("capabilities", b""))
    tasks = members(capabilities.get("tasks", b""))
    if tasks.pop("list", None) is None:
        return handshake
    capabilities["tasks"] = Raw(encode(tasks))
    return encode({**fields, "capabilities": capabilities})


def modern_capabilities(capabilities: bytes) -> bytes:
    """Return a legacy server's capabilities for a modern client."""
    kept = without_tasks_raw(capabilities)
    declared = decoded(capabilities, dict[str, Any])
    return with_tasks(kept) if declared and creates_tasks(declared) else kept


def creates_tasks(capabilities: Mapping[str, Any]) -> bool:
    """True if a legacy server declares that calls of its tools can be tasks."""
    found: Any = capabilities
    for key in ("tasks", "requests", "tools", "call"):
        found = found.get(key) if isinstance(found, dict) else None
    return found is not None


def supports_task(tool: bytes) -> bool:
    """True if a legacy tool's definition allows tasks."""
    return support_of(tool) in ("optional", "required")


def support_of(tool: bytes) -> str:
    """Return the task support that a legacy tool's definition declares."""
    if tool.find(b'"taskSupport"') < 0 and tool.find(b"\\u") < 0:
        return ""
    execution = members(members(tool).get("execution", b""))
    return decoded(bytes(execution.get("taskSupport", b'""')), str) or ""


def with_task_support(tool: bytes) -> bytes:
    """Return a modern server's tool as one that may run as a task."""
    fields: dict[str, Any] = dict(members(tool))
    execution = members(bytes(fields.get("execution", b"")))
    fields["execution"] = {**execution, "taskSupport": "optional"}
    return encode(fields)


def without_task_support(tool: bytes) -> bytes:
    """Return a tool's definition without its task support."""
    if tool.find(b'"taskSupport"') < 0 and tool.find(b"\\u") < 0:
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
