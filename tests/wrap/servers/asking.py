"""A server whose only tool requests a name from the client before it answers.

python -I -S tests/wrap/servers/asking.py
"""

import json
import sys
from typing import Any

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "asking", "version": "1"},
}
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}
QUESTION = {"message": "Who are you?", "requestedSchema": SCHEMA}
LIST = {"tools": [{"name": "greet", "inputSchema": {"type": "object"}}]}


def send(message: dict[str, Any]) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Serve our pipes until stdin ends."""
    asked_by: Any = None
    for line in sys.stdin:
        message = json.loads(line)
        method = message.get("method", "")
        if method == "initialize":
            send({"id": message["id"], "result": HELLO})
        elif method == "tools/list":
            send({"id": message["id"], "result": LIST})
        elif method == "tools/call":
            asked_by = message["id"]
            send({"id": "who", "method": "elicitation/create", "params": QUESTION})
        elif message.get("id") == "who":
            heard = "an error" if "error" in message else "an answer"
            send({"id": asked_by, "result": {"content": [{"type": "text", "text": heard}]}})


if __name__ == "__main__":
    main()
