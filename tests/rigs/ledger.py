"""A fast upstream that records each call in a file before it answers.

    python -I -S tests/rigs/ledger.py FILE

`echo` gives its text back, `hang` never answers. What was written down outlives the process, so
that whoever kills it can still tell what it was asked, and how often.
"""

import json
import os
import sys
from typing import Any

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "ledger", "version": "1"},
}
LIST = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "hang")]}


def answer(ledger: int, message: dict[str, Any]) -> dict[str, Any] | None:
    """Return the answer to one request, or None."""
    if message["method"] == "initialize":
        return {"result": HELLO}
    if message["method"] == "tools/list":
        return {"result": LIST}
    if message["method"] != "tools/call":
        return {"error": {"code": -32601, "message": "Method not found"}}
    text = message["params"]["arguments"]["text"]
    os.write(ledger, f"{text}\n".encode())
    if message["params"]["name"] == "hang":
        return None
    return {"result": {"content": [{"type": "text", "text": text}]}}


def main() -> None:
    """Serve our pipes until stdin ends."""
    ledger = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        said = answer(ledger, message) if "id" in message else None
        if said is not None:
            whole = json.dumps({"jsonrpc": "2.0", "id": message["id"], **said})
            os.write(1, whole.encode() + b"\n")


if __name__ == "__main__":
    main()
