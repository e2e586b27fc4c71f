"""Tasks in the messages of both eras."""

import json
from typing import Any

import pytest

from portico.core.protocol.tasks import (
    EXTENSION,
    Task,
    task_in,
    task_of,
    unasked_task,
    without_task_support,
    without_tasks,
    without_tasks_raw,
)

WORKING = {"taskId": "a", "status": "working"}


@pytest.mark.parametrize(
    ("method", "result", "expected"),
    [
        ("tools/call", {"task": {**WORKING, "ttl": 60_000}}, Task("a", False, 60.0)),
        ("tools/call", {"resultType": "task", **WORKING, "ttlMs": None}, Task("a", False)),
        ("tools/call", {"resultType": "complete", **WORKING}, None),
        ("tools/call", {"content": []}, None),
        ("tools/call", {"task": 5}, None),
        ("tasks/get", {"taskId": "a", "status": "completed"}, Task("a", True)),
        ("tasks/get", {"status": "input_required"}, Task("b", False)),
        ("tasks/result", {"content": []}, Task("b", True)),
        ("tasks/cancel", {"resultType": "complete"}, None),
    ],
)
def test_a_result_creates_a_task_or_tells_of_one(
    method: str, result: dict[str, Any], expected: Task | None
) -> None:
    assert task_of(method, b'{"taskId":"b"}', json.dumps(result).encode()) == expected


def test_notifications_tell_of_tasks() -> None:
    over = json.dumps({"taskId": "a", "status": "failed"}).encode()
    assert task_in("notifications/tasks/status", over) == Task("a", True)
    assert task_in("notifications/tasks", over) == Task("a", True)
    assert task_in("notifications/message", over) is None
    assert task_in("notifications/tasks", b"[]") is None


@pytest.mark.parametrize(
    ("declared", "kept"),
    [
        ({"tasks": {}, "roots": {}}, {"roots": {}}),
        ({"extensions": {EXTENSION: {}}}, {}),
        ({"extensions": {EXTENSION: {}, "x/y": {}}}, {"extensions": {"x/y": {}}}),
        ({"extensions": {"x/y": {}}}, {"extensions": {"x/y": {}}}),
    ],
)
def test_capabilities_say_nothing_of_tasks(declared: dict[str, Any], kept: dict[str, Any]) -> None:
    assert without_tasks(declared) == kept
    assert json.loads(without_tasks_raw(json.dumps(declared).encode())) == kept
    escaped = json.dumps(declared).replace("tasks", "t\\u0061sks").encode()
    assert json.loads(without_tasks_raw(escaped)) == kept


def test_what_says_nothing_of_tasks_keeps_its_bytes() -> None:
    declared = b'{ "roots": {} }'
    assert without_tasks_raw(declared) is declared
    tool = b'{"name":"a", "execution":{"x":1}}'
    assert without_task_support(tool) is tool
    never = b'{"name":"a", "execution":{"taskSupport":"forbidden"}}'
    assert without_task_support(never) is never


def test_a_definition_loses_only_its_task_support() -> None:
    tool = b'{"name":"a","execution":{"taskSupport":"required","x":1}}'
    assert json.loads(without_task_support(tool)) == {"name": "a", "execution": {"x": 1}}
    assert without_task_support(b'{"name":"a","execution":{"taskSupport":"x"}}') == b'{"name":"a"}'


@pytest.mark.parametrize(
    ("result", "id"),
    [
        ({"resultType": "task", **WORKING}, "a"),
        ({"task": WORKING}, "a"),
        ({"resultType": "task"}, ""),
        ({"resultType": "task", "taskId": 5, "status": "working"}, ""),
        ({"task": {"taskId": 5}}, ""),
    ],
)
def test_a_task_in_place_of_a_result_is_recognised_however_it_is_written(
    result: dict[str, Any], id: str
) -> None:
    written = json.dumps(result).encode()
    for raw in (written, written.replace(b'"task"', b'"\\u0074ask"')):
        found = unasked_task(raw)
        assert found is not None
        assert found.id == id


@pytest.mark.parametrize(
    "result",
    [
        {"content": [], "task": WORKING},
        {"content": [{"type": "text", "text": "task"}]},
        {"content": [], "structuredContent": {"task": WORKING, "resultType": "task"}},
        {"task": "write", "status": "done"},
        {"task": {"title": "write"}},
        [WORKING],
        "task",
    ],
)
def test_a_result_that_mentions_a_task_is_a_result(result: Any) -> None:
    assert unasked_task(json.dumps(result).encode()) is None
