"""The messages of the tasks extension to 2026-07-28, as its specification describes them."""

from typing import Any

_STRING: dict[str, Any] = {"type": "string"}
_WHOLE: dict[str, Any] = {"type": "integer", "minimum": 1}
_TASK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "taskId": _STRING,
        "status": {"enum": ["working", "input_required", "completed", "failed", "cancelled"]},
        "statusMessage": _STRING,
        "createdAt": {"type": "string", "format": "date-time"},
        "lastUpdatedAt": {"type": "string", "format": "date-time"},
        "ttlMs": {"anyOf": [_WHOLE, {"type": "null"}]},
        "pollIntervalMs": _WHOLE,
    },
    "required": ["taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs"],
}
_DETAILS = {"input_required": "inputRequests", "completed": "result", "failed": "error"}
_NOTHING = dict.fromkeys(_DETAILS.values(), False)


def _state(status: str) -> dict[str, Any]:
    """A task in one state has the field of that state, and none of another."""
    detail = _DETAILS.get(status)
    more = {key: value for key, value in _NOTHING.items() if key != detail}
    fields: dict[str, Any] = {"properties": {"status": {"const": status}, **more}}
    if detail is not None:
        fields["required"] = [detail]
    return fields


_DETAILED: dict[str, Any] = {
    "allOf": [
        _TASK,
        {"oneOf": [_state(one) for one in _TASK["properties"]["status"]["enum"]]},
        {
            "properties": {
                "inputRequests": {"$ref": "#/$defs/InputRequests", "minProperties": 1},
                "result": {"type": "object", "required": ["content"]},
                "error": {"$ref": "#/$defs/Error"},
            }
        },
    ]
}


def _result(kind: str, *more: dict[str, Any]) -> dict[str, Any]:
    typed = {"properties": {"resultType": {"const": kind}}, "required": ["resultType"]}
    return {"allOf": [{"$ref": "#/$defs/Result"}, typed, *more]}


KINDS: dict[str, dict[str, Any]] = {
    "CreateTask": _result("task", _TASK, {"properties": _NOTHING}),
    "DetailedTask": _result("complete", _DETAILED),
    "Done": {
        "type": "object",
        "properties": {"resultType": {"const": "complete"}, "_meta": {"type": "object"}},
        "required": ["resultType"],
        "additionalProperties": False,
    },
    "TaskNotification": {
        "allOf": [
            {"$ref": "#/$defs/JSONRPCNotification"},
            {"properties": {"params": _DETAILED}, "required": ["params"]},
        ]
    },
}
"""By name, the definitions of the extension."""


def task_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of 2026-07-28 with the definitions of the extension."""
    return {**schema, "$defs": {**schema["$defs"], **KINDS}}
