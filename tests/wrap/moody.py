"""An upstream whose tools write to a file and then exit, for a number of calls.

    python -I -S tests/wrap/moody.py MARKS DEATHS

Each tool writes its name to MARKS; the first DEATHS calls end the process instead of being
answered. Only `grow` does not: it adds a tool and sends a thousand notifications of that.
"""

import os
import signal
import sys
from pathlib import Path

# Isolated, Python looks for imports nowhere near this file.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.rigs.wire import Call, serve_stdio

MARKS, DEATHS = Path(sys.argv[1]), int(sys.argv[2])
HINTS = {"once": {}, "again": {"idempotentHint": True}, "look": {"readOnlyHint": True}}
NOTE = {"uri": "test://note", "name": "note"}
CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
grown: list[str] = []


def mark(call: Call, name: str) -> None:
    """Leave a mark, then die or answer."""
    with MARKS.open("a") as file:
        file.write(f"{name}\n")
    if len(MARKS.read_text().splitlines()) <= DEATHS:
        os.kill(os.getpid(), signal.SIGKILL)
    if call.method == "resources/read":
        call.result({"contents": [{"uri": "test://note", "text": "a note"}]})
    else:
        call.text("done")


def grow(call: Call) -> None:
    """Offer one tool more, and make much of it."""
    grown.append(f"grown-{len(grown)}")
    call.burst([CHANGED] * 1000)
    call.text("grown")


def handle(call: Call) -> None:
    """Answer one message."""
    schema = {"type": "object"}
    if call.id is None:
        return
    if call.method == "initialize":
        call.result(
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}, "resources": {}},
                "serverInfo": {"name": "moody", "version": "1"},
            }
        )
    elif call.method == "tools/list":
        tools = [
            {"name": name, "inputSchema": schema, "annotations": hints}
            for name, hints in [*HINTS.items(), *((name, {}) for name in ("grow", *grown))]
        ]
        call.result({"tools": tools})
    elif call.method == "resources/list":
        call.result({"resources": [NOTE]})
    elif call.method == "resources/templates/list":
        call.result({"resourceTemplates": []})
    elif call.method == "tools/call" and call.params["name"] == "grow":
        grow(call)
    elif call.method == "tools/call":
        mark(call, call.params["name"])
    elif call.method == "resources/read":
        mark(call, "read")
    else:
        call.error(-32601, "Method not found")


if __name__ == "__main__":
    serve_stdio(handle)
