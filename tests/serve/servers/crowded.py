"""A server with as many tools as its argument says; a second one is the size of its pages."""

import json
import sys

COUNT = int(sys.argv[1])
PAGE = int(sys.argv[2]) if len(sys.argv) > 2 else COUNT
TOOLS = [
    {
        "name": f"crowd_{number}",
        "description": f"Counts the people in hall {number}.",
        "inputSchema": {"type": "object", "properties": {"hall": {"type": "string"}}},
    }
    for number in range(COUNT)
]


def result(method: str, params: dict[str, str]) -> dict[str, object]:
    """What a request is answered with."""
    if method == "initialize":
        info = {"name": "crowded", "version": "1"}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        start = int(params.get("cursor", 0))
        page: dict[str, object] = {"tools": TOOLS[start : start + PAGE]}
        return page | ({"nextCursor": str(start + PAGE)} if start + PAGE < COUNT else {})
    return {"content": [{"type": "text", "text": "many"}]}


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    answer: dict[str, object] = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "server/discover":
        answer["error"] = {"code": -32601, "message": "unknown method"}
    else:
        answer["result"] = result(message["method"], message.get("params") or {})
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
