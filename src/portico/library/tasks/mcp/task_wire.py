"""Tasks as clients of both eras see them.

2025-11-25 has the states in its core: a tool that failed is `failed`, and `tasks/result` returns
the result. In the extension of 2026-07-28 `failed` is for JSON-RPC errors only, and the result is
part of the task.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from portico.core.model.errors import INTERNAL_ERROR, MISSING_CAPABILITY, InvalidParams, McpError
from portico.core.model.message import Request, Response
from portico.core.protocol.codec import NO_RAW, decoded, encode, may_mention
from portico.core.protocol.eras import SERVER_INFO_KEY, legacy_result, members, modern_result
from portico.core.protocol.result_fields import identified
from portico.core.protocol.tasks import EXTENSION, RELATED
from portico.library.tasks.store.record import (
    CANCELLED,
    COMPLETED,
    FAILED,
    FINISHED,
    INPUT_REQUIRED,
    INTERRUPTED,
    TaskRecord,
)
from portico.library.tasks.worker.work import RunOutcome

_MIN_POLL_MS, _MAX_POLL_MS = 500, 5000
_MIN_TTL_MS = 60_000.0
_TOOLS_CALL = "tools/call"


class StoredPayload(Struct, omit_defaults=True):
    """The result or error of a task, in the era in which it was produced."""

    modern: bool = False
    result: Raw = NO_RAW
    error: Raw = NO_RAW
    passed: str | None = None
    """The endpoint whose links it has passed; None for one of an older Portico, which passes them
    when it is read."""


class _Called(Struct):
    name: str = ""
    task_type: str = ""


class _Text(Struct):
    text: str = ""


class _TaskParams(Struct):
    ttl: float | None = None


class _CallParams(Struct):
    task: _TaskParams | None = None


class _IdParams(Struct):
    taskId: str  # noqa: N815  (fields of the wire)


class _Note(Struct):
    agent_id: str = ""


class UpdateParams(_IdParams):
    """The params of `tasks/update`."""

    inputResponses: dict[str, Raw] = {}  # noqa: N815


class ListParams(Struct):
    """The params of `tasks/list`."""

    cursor: str | None = None


def unknown_task() -> InvalidParams:
    """Return the error for an unknown, expired or foreign task: the same for all of them."""
    return InvalidParams("task not found: the id is not known here, or the task has expired")


def missing_extension() -> McpError:
    """Return the error for a modern client that did not declare the extension."""
    return McpError(
        f"this requires the extension {EXTENSION}, which the client did not declare",
        MISSING_CAPABILITY,
        {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
    )


def requested_id(request: Request) -> str:
    """Return the task id of a request; raises InvalidParams."""
    return request.decode_as(_IdParams).taskId


def requested_ttl_s(request: Request) -> float | None:
    """Return how long a legacy client requires its task to be kept; raises InvalidParams."""
    task = request.decode_as(_CallParams).task
    if task is None or task.ttl is None:
        return None
    if not task.ttl >= 0:
        raise InvalidParams(f"params.task.ttl must be at least 0, not {task.ttl:g}")
    return max(task.ttl, _MIN_TTL_MS) / 1000


def agent_of(task: TaskRecord) -> str:
    """Return the agent that a task was given to; empty if it has none, or none yet."""
    note = decoded(task.note.encode(), _Note) if task.note else None
    return "" if note is None else note.agent_id


def status_of(task: TaskRecord, modern: bool) -> str:
    """Return the state of a task on the wire."""
    if task.state not in FINISHED:
        return "input_required" if task.state is INPUT_REQUIRED else "working"
    if task.state is COMPLETED:
        return "failed" if task.is_error and not modern else "completed"
    return "cancelled" if task.state is CANCELLED else "failed"


def task_fields(task: TaskRecord, now: float, *, modern: bool) -> dict[str, Any]:
    """Return the fields of a task, without its questions and result."""
    age_ms = (now - task.created_at) * 1000
    poll_ms = int(min(max(age_ms / 10, _MIN_POLL_MS), _MAX_POLL_MS))
    fields: dict[str, Any] = {"taskId": task.id, "status": status_of(task, modern)}
    if task.message:
        fields["statusMessage"] = task.message
    fields["createdAt"] = _iso(task.created_at)
    fields["lastUpdatedAt"] = _iso(task.updated_at)
    fields["ttlMs" if modern else "ttl"] = max(1, int(task.ttl_s * 1000))
    fields["pollIntervalMs" if modern else "pollInterval"] = poll_ms
    return fields


def detailed_fields(task: TaskRecord, payload: bytes | None, now: float) -> dict[str, Any]:
    """Return a task of the modern era with its questions, its result or its error."""
    fields = task_fields(task, now, modern=True)
    if task.state is INPUT_REQUIRED:
        fields["inputRequests"] = {one.key: Raw(one.body) for one in task.pending}
    elif task.state is COMPLETED:
        fields["result"] = Raw(_modern_payload(payload))
    elif task.state in (FAILED, INTERRUPTED):
        fields["error"] = Raw(error_of(task, payload))
    return fields


def created_response(request: Request, task: TaskRecord, now: float, info: bytes) -> Response:
    """Return the answer to a call that became a task."""
    if request.version.modern:
        fields = {"resultType": "task", **task_fields(task, now, modern=True)}
        return Response(id=request.id, result=encode(identified(fields, info)))
    return Response(id=request.id, result=encode({"task": task_fields(task, now, modern=False)}))


def legacy_outcome(request: Request, task: TaskRecord, payload: bytes | None) -> Response:
    """Return the response to `tasks/result` of a finished task."""
    if task.state is not COMPLETED:
        return _error_response(request, task, payload)
    stored = stored_payload(payload)
    result = bytes(stored.result) or b'{"content":[]}'
    fields = members(legacy_result(result) if stored.modern else result)
    meta = members(fields.get("_meta", b""))
    meta[RELATED] = Raw(encode({"taskId": task.id}))
    return Response(id=request.id, result=encode({**fields, "_meta": meta}))


def plain_result(request: Request, payload: bytes | None, info: bytes) -> Response:
    """Return the result of a completed task as the response to the call that created it."""
    if not request.version.modern:
        return Response(id=request.id, result=result_of(payload) or b'{"content":[]}')
    found: dict[str, Any] = dict(members(_modern_payload(payload)))
    meta = members(bytes(found.pop("_meta", b"")))
    return Response(id=request.id, result=encode(identified({**found, "_meta": meta}, info)))


def _error_response(request: Request, task: TaskRecord, payload: bytes | None) -> Response:
    error = error_of(task, payload)
    return Response(id=request.id, error=error, code=_code_of(error))


def _code_of(error: bytes) -> int:
    code = msgspec.json.decode(error).get("code", INTERNAL_ERROR)
    return code if isinstance(code, int) else INTERNAL_ERROR


def error_of(task: TaskRecord, payload: bytes | None) -> bytes:
    """Return the JSON-RPC error of a task that has no result."""
    error = bytes(stored_payload(payload).error)
    if error:
        return error
    kind = "interrupted" if task.state is INTERRUPTED else str(task.state)
    words = task.message or f"the task is {task.state}"
    return encode({"code": INTERNAL_ERROR, "message": words, "data": {"kind": kind}})


def reason_of(task: TaskRecord, payload: bytes | None) -> str:
    """Return why a task has no result, without its state; empty if there is no more to say."""
    words = str(msgspec.json.decode(error_of(task, payload)).get("message", ""))
    return "" if words == task.state else words.removeprefix(f"{task.state}: ")


def result_of(payload: bytes | None) -> bytes:
    """Return the result of a completed task as a legacy tool result."""
    stored = stored_payload(payload)
    result = bytes(stored.result)
    return legacy_result(result) if stored.modern and result else result


def outcome_of(response: Response, *, modern: bool, passed: str | None = None) -> RunOutcome:
    """Return the outcome of a task from the response to its call, which has `passed` the links of
    an endpoint."""
    if response.error:
        stored = StoredPayload(modern=modern, error=Raw(response.error), passed=passed)
        message = msgspec.json.decode(response.error).get("message", "")
        return RunOutcome(FAILED, encode(stored), str(message))
    fields = members(response.result)
    result = Raw(_without_info(response.result))
    payload = encode(StoredPayload(modern=modern, result=result, passed=passed))
    is_error = bytes(fields.get("isError", b"")) == b"true"
    message = _first_text(bytes(fields.get("content", b"[]"))) if is_error else ""
    return RunOutcome(COMPLETED, payload, message, is_error=is_error)


def late_response(request: Request, outcome: RunOutcome, info: bytes) -> Response:
    """Return the outcome of a server's task as the response to the call that created it."""
    stored = stored_payload(outcome.payload)
    if outcome.state is COMPLETED:
        return plain_result(request, outcome.payload, info)
    kind = "cancelled" if outcome.state is CANCELLED else "interrupted"
    words = outcome.message or f"the task is {outcome.state}"
    error = {"code": INTERNAL_ERROR, "message": words, "data": {"kind": kind}}
    raw = bytes(stored.error) or encode(error)
    return Response(id=request.id, error=raw, code=_code_of(raw))


def related(params: bytes, id: str) -> bytes:
    """Return the params of a question with the task that it belongs to."""
    fields = members(params)
    meta = members(fields.get("_meta", b""))
    meta[RELATED] = Raw(encode({"taskId": id}))
    return encode({**fields, "_meta": meta})


def tool_in(input: bytes | None) -> str:
    """Return the name of the tool that a task calls, or the type of work of an agent."""
    called = (decoded(input, _Called) if input else None) or _Called()
    return called.name or called.task_type


_decode_stored = msgspec.json.Decoder(StoredPayload).decode


def stored_payload(payload: bytes | None) -> StoredPayload:
    """Return what is stored as the result of a task."""
    return _decode_stored(payload) if payload else StoredPayload()


def _modern_payload(payload: bytes | None) -> bytes:
    stored = stored_payload(payload)
    result = bytes(stored.result) or b'{"content":[]}'
    return result if stored.modern else modern_result(_TOOLS_CALL, result, b"")


def _without_info(result: bytes) -> bytes:
    """Return a result without the server's identity and its own id of the task."""
    if not any(may_mention(result, key.encode()) for key in (SERVER_INFO_KEY, RELATED)):
        return result
    fields = members(result)
    meta = members(fields.get("_meta", b""))
    meta.pop(SERVER_INFO_KEY, None)
    meta.pop(RELATED, None)
    if meta:
        fields["_meta"] = Raw(encode(meta))
    else:
        fields.pop("_meta", None)
    return encode(fields)


def _first_text(content: bytes) -> str:
    texts = decoded(content, list[_Text])
    return texts[0].text if texts else ""


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
