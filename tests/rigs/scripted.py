"""An upstream whose offer is a JSON file, read again for every list.

    python -I -S tests/rigs/scripted.py FILE

The file has `name`, `instructions`, `tools`, `prompts`, `resources` and `templates`, all optional.
A call returns its own arguments as JSON, a resource the server's name and the URI that was asked
for, and a completion the reference. The tool `announce` sends that the tools changed; the tool
`mention` returns links to the URIs in its arguments.
"""

import json
import sys
from pathlib import Path
from typing import Any

# Isolated, Python looks for imports nowhere near this file.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.rigs.wire import Call, dumps, serve_stdio

LISTS = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("templates", "resourceTemplates"),
}


def script() -> dict[str, Any]:
    """The current content of the file."""
    found: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    return found


def initialized() -> dict[str, Any]:
    """The result of `initialize`."""
    said = script()
    more = {"instructions": said["instructions"]} if "instructions" in said else {}
    return {
        "protocolVersion": "2025-11-25",
        "capabilities": {
            "tools": {"listChanged": True},
            "prompts": {},
            "resources": {"subscribe": True},
            "completions": {},
        },
        "serverInfo": {
            "version": "1",
            **said.get("info", {}),
            "name": said.get("name", "scripted"),
        },
        **more,
    }


def call_tool(call: Call) -> None:
    """Return the arguments; `announce` and `mention` do what they are called."""
    name, arguments = call.params.get("name"), call.params.get("arguments", {})
    if name == "announce":
        call.emit(dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
    if name == "mention":
        links = [{"type": "resource_link", "uri": uri, "name": uri} for uri in arguments["uris"]]
        call.result({"content": links})
        return
    call.text(json.dumps({"name": name, "arguments": arguments}))


def handle(call: Call) -> None:
    """Answer one message."""
    if call.id is None:
        return
    name = script().get("name", "scripted")
    if call.method == "initialize":
        call.result(initialized())
    elif call.method in LISTS:
        key, field = LISTS[call.method]
        call.result({field: script().get(key, [])})
    elif call.method == "tools/call":
        call_tool(call)
    elif call.method == "resources/read":
        uri = call.params["uri"]
        call.result({"contents": [{"uri": uri, "text": f"{name} {uri}"}]})
    elif call.method == "prompts/get":
        text = json.dumps(call.params)
        call.result({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
    elif call.method == "completion/complete":
        call.result({"completion": {"values": [f"{name} {json.dumps(call.params['ref'])}"]}})
    else:
        call.result({})


if __name__ == "__main__":
    serve_stdio(handle)
