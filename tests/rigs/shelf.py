"""An upstream whose tools are the words of a file, read again for every list.

    python -I -S tests/rigs/shelf.py FILE

The variable ACCOUNT, if there is one, names a further tool, as for another user. Any tool can be
called, and says its name; `lists` how often they were listed; `announce` tells that they changed.
Without the file they cannot be listed, as those of a server whose own backend cannot be reached.
"""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

# Isolated, Python looks for imports nowhere near this file.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.rigs.wire import Call, dumps, serve_stdio

received: Counter[str] = Counter()


def tools() -> list[dict[str, Any]]:
    """The current tools."""
    names = Path(sys.argv[1]).read_text().split()
    if "ACCOUNT" in os.environ:
        names.append(f"of-{os.environ['ACCOUNT']}")
    return [{"name": name, "inputSchema": {"type": "object"}} for name in names]


def call_tool(call: Call) -> None:
    """Say what was called, or how often there was a list."""
    name = call.params.get("name", "")
    if name == "announce":
        call.emit(dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
    call.text(str(received["tools/list"]) if name == "lists" else name)


def handle(call: Call) -> None:
    """Answer one message."""
    received[call.method] += 1
    if call.id is None:
        return
    if call.method == "initialize":
        call.result(
            {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "shelf", "version": "1"},
            }
        )
    elif call.method == "tools/list":
        try:
            call.result({"tools": tools()})
        except FileNotFoundError:
            call.error(-32603, "fetch failed")
    elif call.method == "tools/call":
        call_tool(call)
    else:
        call.error(-32601, "Method not found")


if __name__ == "__main__":
    serve_stdio(handle)
