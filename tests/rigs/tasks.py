"""An upstream whose tool `work` runs as a task wherever its client can follow one.

    python -I -S tests/rigs/tasks.py (legacy | modern | both) [undeclared]

As other servers of both eras on pipes, it stays in the era of its first request. `work` takes `ms`,
`keep`, its ttl in ms, and `asks`, to ask in a modern task whether its client can be asked or not;
without a task it answers at once. `pid` says which process this is,
`heard` all that it was sent so far, and `forget` drops all tasks. Its capabilities do not mention
tasks if they are `undeclared`.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

# Isolated, Python looks for imports nowhere near this file.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.rigs.wire import Call, serve_stdio

EXTENSION = "io.modelcontextprotocol/tasks"
spoken = [sys.argv[1]]
IS_DECLARED = "undeclared" not in sys.argv
META = "io.modelcontextprotocol/"
TOOLS: list[dict[str, Any]] = [
    {
        "name": name,
        "inputSchema": {"type": "object"},
        "execution": {"taskSupport": "optional"},
    }
    for name in ("work", "pid", "heard", "forget")
]
FORM = {"message": "May I?", "requestedSchema": {"type": "object", "properties": {}}}
QUESTION = {"method": "elicitation/create", "params": FORM}
tasks: dict[str, dict[str, Any]] = {}
ends: dict[str, float] = {}
heard: list[dict[str, Any]] = []


def is_modern(call: Call) -> bool:
    """True if the message is of the modern era."""
    return f"{META}protocolVersion" in call.params.get("_meta", {})


def answered(call: Call, result: dict[str, Any]) -> None:
    """Answer in the message's own era."""
    call.result({"resultType": "complete", **result} if is_modern(call) else result)


def text(call: Call, words: str) -> None:
    """Answer a call with a text."""
    answered(call, {"content": [{"type": "text", "text": words}]})


def task(id: str) -> dict[str, Any]:
    """The task as it is now."""
    if time.monotonic() >= ends[id] and tasks[id]["status"] == "working":
        tasks[id]["status"] = "completed"
    return tasks[id]


def begun(call: Call) -> dict[str, Any]:
    """A new task."""
    id = f"task-{len(tasks)}-{os.getpid()}"
    ends[id] = time.monotonic() + call.params["arguments"].get("ms", 0) / 1000
    now = "2026-11-16T00:00:00Z"
    keep = call.params["arguments"].get("keep", 600_000)
    ttl = {"ttlMs": keep} if is_modern(call) else {"ttl": keep}
    tasks[id] = {"taskId": id, "status": "working", "createdAt": now, "lastUpdatedAt": now, **ttl}
    if call.params["arguments"].get("asks"):
        tasks[id] |= {"status": "input_required", "inputRequests": {"a": QUESTION}}
    return tasks[id]


def work(call: Call) -> None:
    """Run as a task if the client requests or supports that."""
    declared = call.params.get("_meta", {}).get(f"{META}clientCapabilities", {})
    if is_modern(call) and EXTENSION in declared.get("extensions", {}):
        created = {key: value for key, value in begun(call).items() if key != "inputRequests"}
        call.result({"resultType": "task", **created})
    elif not is_modern(call) and "task" in call.params:
        call.result({"task": begun(call)})
    else:
        text(call, "worked")


def finish(call: Call, id: str) -> None:
    """Answer with a task's result, as soon as there is one."""
    token = call.params.get("_meta", {}).get("progressToken")
    if token is not None:
        call.notify("notifications/progress", {"progressToken": token, "progress": 0})
    while task(id)["status"] == "working":
        time.sleep(0.01)
    text(call, "worked as a task")


def follow(call: Call) -> None:
    """Answer a request about a task."""
    id = call.params.get("taskId", "")
    if id not in tasks:
        call.error(-32602, f"unknown task {id}")
    elif call.method == "tasks/result":
        threading.Thread(target=finish, args=(call, id), daemon=True).start()
    elif call.method == "tasks/get":
        found = dict(task(id))
        if is_modern(call) and found["status"] == "completed":
            found["result"] = {"content": [{"type": "text", "text": "worked as a task"}]}
        answered(call, found)
    elif call.method == "tasks/cancel":
        tasks[id]["status"] = "cancelled"
        answered(call, {} if is_modern(call) else tasks[id])
    else:
        call.error(-32601, "Method not found")


def greet(call: Call) -> None:
    """Say hello in the era that is spoken."""
    server = {"name": "tasks", "version": "1"}
    if call.method == "initialize" and spoken[0] != "modern":
        able: dict[str, Any] = {"tools": {}}
        if IS_DECLARED:
            able["tasks"] = {"requests": {"tools": {"call": {}}}, "cancel": {}}
        hello = {"protocolVersion": "2025-11-25", "capabilities": able, "serverInfo": server}
        call.result(hello)
    elif call.method == "server/discover" and spoken[0] != "legacy":
        able = {"tools": {}, "extensions": {EXTENSION: {}} if IS_DECLARED else {}}
        found = {"supportedVersions": ["2026-07-28"], "capabilities": able, "ttlMs": 0}
        about = {"cacheScope": "private", "_meta": {f"{META}serverInfo": server}}
        answered(call, {**found, **about})
    else:
        call.error(-32601, "Method not found")


def handle(call: Call) -> None:
    """Answer one message."""
    if spoken[0] == "both":
        spoken[0] = "modern" if is_modern(call) else "legacy"
    heard.append(call.message)
    name = call.params.get("name", "")
    if call.id is None:
        return
    if call.method in ("initialize", "server/discover"):
        greet(call)
    elif call.method == "tools/list":
        cached = {"ttlMs": 0, "cacheScope": "private"} if is_modern(call) else {}
        answered(call, {"tools": TOOLS, **cached})
    elif call.method == "tools/call" and name == "work":
        work(call)
    elif call.method == "tools/call" and name == "forget":
        tasks.clear()
        text(call, "forgotten")
    elif call.method == "tools/call":
        text(call, str(os.getpid()) if name == "pid" else json.dumps(heard))
    elif call.method.startswith("tasks/"):
        follow(call)
    else:
        call.error(-32601, "Method not found")


if __name__ == "__main__":
    serve_stdio(handle)
