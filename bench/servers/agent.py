"""An agent that does the least over ACP: it answers each prompt at once.

With a file as its argument, it answers once nobody holds a lock on the file.
"""

import fcntl
import json
import sys
from pathlib import Path
from typing import Any


def _send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def _wait(path: str) -> None:
    with Path(path).open(encoding="ascii") as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def _answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        return {"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []}
    if method == "session/new":
        return {"sessionId": "one"}
    if method == "session/prompt":
        for path in sys.argv[1:]:
            _wait(path)
        content = {"type": "text", "text": "done"}
        update = {"sessionUpdate": "agent_message_chunk", "content": content}
        changed = {"sessionId": params["sessionId"], "update": update}
        _send({"method": "session/update", "params": changed})
        return {"stopReason": "end_turn"}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        answer = _answer(message["method"], message.get("params") or {})
        _send({"id": message["id"], "result": answer})
