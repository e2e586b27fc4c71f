"""An upstream whose tool `ask` asks its client whatever it is told to, whether it may or not.

    python -I -S tests/rigs/questions.py (legacy | modern)

`ask` takes the `method` and `params` of a question, and says what came of it; `pages` answers with
the error that names pages to visit (legacy only).
"""

import json
import sys
from pathlib import Path
from typing import Any

# Isolated, Python looks for imports nowhere near this file.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.rigs.wire import Call, serve_stdio

MODERN = sys.argv[1] == "modern"
META = "io.modelcontextprotocol/"
SERVER = {"name": "questions", "version": "1"}
TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("ask", "pages")]
PRIVATE = {"ttlMs": 0, "cacheScope": "private"}


def answered(call: Call, **result: Any) -> None:
    """Answer in the era that is spoken."""
    call.result({"resultType": "complete", **result} if MODERN else result)


def ask(call: Call) -> None:
    """Ask, and say what came of it."""
    question = call.params["arguments"]
    if not MODERN:
        got = call.ask(question["method"], question["params"])
        said = got.get("result", got.get("error"))
    elif "inputResponses" in call.params:
        said = call.params["inputResponses"]["q"]
    else:
        call.result({"resultType": "input_required", "inputRequests": {"q": question}})
        return
    answered(call, content=[{"type": "text", "text": json.dumps(said)}])


def handle(call: Call) -> None:
    """Answer one message."""
    if call.id is None:
        return
    if call.method == "initialize" and not MODERN:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        call.result({**hello, "serverInfo": SERVER})
    elif call.method == "server/discover" and MODERN:
        found = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **PRIVATE}
        answered(call, **found, _meta={f"{META}serverInfo": SERVER})
    elif call.method == "tools/list":
        answered(call, tools=TOOLS, **(PRIVATE if MODERN else {}))
    elif call.method == "tools/call" and call.params["name"] == "ask":
        ask(call)
    elif call.method == "tools/call":
        page = {
            "mode": "url",
            "url": "https://x.example",
            "elicitationId": "1",
            "message": "Log in",
        }
        call.error(-32042, "visit a page first", data={"elicitations": [page]})
    else:
        call.error(-32601, "Method not found")


if __name__ == "__main__":
    serve_stdio(handle, apart=lambda call: call.method == "tools/call")
