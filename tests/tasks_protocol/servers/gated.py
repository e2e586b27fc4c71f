"""A server whose tasks end when a file exists, and that writes each message down.

    python -I -S tests/tasks_protocol/servers/gated.py (legacy | modern) LEDGER

`work` takes a `gate`, the file, and runs as a task wherever its client can follow one; it waits for
the file `begin` before it becomes one, and `keep` is its ttl in ms. `ask` has so many questions
(`count`), of a `size`. `hold` never runs as a task, and `push` always does, also for clients that
did not request one; with an `answer`, that is its result.
"""

import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

# Isolated, Python looks for imports nowhere near this file.
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.rigs.wire import Call, serve_stdio

ERA, LEDGER = sys.argv[1:]
META = "io.modelcontextprotocol/"
EXTENSION = f"{META}tasks"
SERVER = {"name": "gated", "version": "1"}
NOW = "2026-11-16T00:00:00Z"
TOOLS: list[dict[str, Any]] = [
    {"name": name, "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}}
    for name in ("work", "ask", "push")
]
TOOLS.append({"name": "hold", "inputSchema": {"type": "object"}})
numbers = itertools.count()
tasks: dict[str, dict[str, Any]] = {}
"""By id: the arguments, and under `open` the questions without an answer."""


def note(call: Call) -> None:
    """Write a message down, whole even if the process is killed."""
    line = json.dumps({"pid": os.getpid(), "method": call.method, "params": call.params})
    handle = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, line.encode() + b"\n")
    os.close(handle)


def answered(call: Call, result: dict[str, Any]) -> None:
    """Answer in the server's era."""
    call.result({"resultType": "complete", **result} if ERA == "modern" else result)


def content() -> dict[str, Any]:
    """The result of every tool: the process that ran it."""
    return {"content": [{"type": "text", "text": f"done by {os.getpid()}"}]}


def questions(count: int, size: int) -> dict[str, Any]:
    """So many questions."""
    form = {"type": "object", "properties": {}}
    params = {"mode": "form", "message": "x" * size, "requestedSchema": form}
    return {
        f"q{place}": {"method": "elicitation/create", "params": params} for place in range(count)
    }


def is_over(id: str) -> bool:
    """True once a task needs nothing more."""
    task = tasks[id]
    return not task["open"] and ("gate" not in task or Path(task["gate"]).exists())


def state(id: str) -> dict[str, Any]:
    """A task as it is now."""
    task = tasks[id]
    status = "completed" if is_over(id) else "input_required" if task["open"] else "working"
    keep = task.get("keep", 600_000)
    found: dict[str, Any] = {"taskId": id, "status": status, "createdAt": NOW, "lastUpdatedAt": NOW}
    if ERA == "legacy":
        return {**found, "ttl": keep, "pollInterval": 100}
    found |= {"ttlMs": keep, "pollIntervalMs": 100}
    if status == "completed":
        found["result"] = {"resultType": "complete", **content()}
    return {**found, "inputRequests": task["open"]} if status == "input_required" else found


def run(call: Call) -> None:
    """Answer a call, with a task if its client can follow one."""
    given = call.params.get("arguments", {})
    declared = call.params.get("_meta", {}).get(f"{META}clientCapabilities", {})
    is_wanted = (
        "task" in call.params if ERA == "legacy" else EXTENSION in declared.get("extensions", {})
    )
    if "answer" in given:
        call.result(given["answer"])
        return
    if call.params["name"] == "hold" or not (is_wanted or call.params["name"] == "push"):
        while not Path(given["gate"]).exists():
            time.sleep(0.01)
        answered(call, content())
        return
    while not Path(given.get("begin", "/")).exists():
        time.sleep(0.01)
    id = f"task-{next(numbers)}-{os.getpid()}"
    tasks[id] = {**given, "open": questions(given.get("count", 0), given.get("size", 10))}
    created = {**state(id), "status": "working"}
    created.pop("inputRequests", None)
    call.result({"resultType": "task", **created} if ERA == "modern" else {"task": created})


def finish(call: Call, id: str) -> None:
    """Answer `tasks/result`, after all questions were asked."""
    for key, question in tuple(tasks[id]["open"].items()):
        about = {f"{META}related-task": {"taskId": id}}
        call.ask(question["method"], {**question["params"], "_meta": about})
        tasks[id]["open"].pop(key, None)
    while not is_over(id):
        time.sleep(0.01)
    answered(call, content())


def follow(call: Call) -> None:
    """Answer a request about a task."""
    id = call.params.get("taskId", "")
    if id not in tasks:
        call.error(-32602, f"unknown task {id}")
    elif call.method == "tasks/result":
        finish(call, id)
    elif call.method == "tasks/update":
        for key in call.params.get("inputResponses", {}):
            tasks[id]["open"].pop(key, None)
        answered(call, {})
    elif call.method == "tasks/cancel":
        answered(call, {} if ERA == "modern" else {**state(id), "status": "cancelled"})
    else:
        answered(call, state(id))


def greet(call: Call) -> None:
    """Answer the first message of each era."""
    if call.method == "initialize" and ERA == "legacy":
        able: dict[str, Any] = {"requests": {"tools": {"call": {}}}, "cancel": {}}
        offered = {"capabilities": {"tools": {}, "tasks": able}, "serverInfo": SERVER}
        call.result({"protocolVersion": "2025-11-25", **offered})
    elif call.method == "server/discover" and ERA == "modern":
        offered = {"capabilities": {"tools": {}, "extensions": {EXTENSION: {}}}}
        about = {"ttlMs": 0, "cacheScope": "private", "_meta": {f"{META}serverInfo": SERVER}}
        answered(call, {"supportedVersions": ["2026-07-28"], **offered, **about})
    else:
        call.error(-32601, "Method not found")


def handle(call: Call) -> None:
    """Answer one message."""
    if call.method in ("tools/call", "tasks/cancel"):
        note(call)
    if call.id is None:
        return
    if call.method in ("initialize", "server/discover"):
        greet(call)
    elif call.method == "tools/list":
        cached = {"ttlMs": 0, "cacheScope": "private"} if ERA == "modern" else {}
        answered(call, {"tools": TOOLS, **cached})
    elif call.method == "tools/call":
        run(call)
    elif call.method.startswith("tasks/"):
        follow(call)
    else:
        call.error(-32601, "Method not found")


if __name__ == "__main__":
    serve_stdio(handle, apart=lambda call: call.method in ("tools/call", "tasks/result"))
