"""A server on stdio that reads keys as Go's `encoding/json` does: in any case, the last one counts.

With `--first` it reads keys as they are spelled, and the first of two equal ones counts.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

Pairs = list[tuple[str, Any]]


def folded(pairs: Pairs) -> dict[str, Any]:
    """An object whose keys are looked up in any case."""
    return {key.casefold(): value for key, value in pairs}


def first(pairs: Pairs) -> dict[str, Any]:
    """An object whose first key of a name counts."""
    return {key.casefold(): value for key, value in reversed(pairs)}


READ: Callable[[Pairs], dict[str, Any]] = first if "--first" in sys.argv else folded
TOOLS = ("read", "secret_op")


def tools() -> list[dict[str, Any]]:
    """Both tools, which take anything."""
    return [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]


def text(words: str) -> dict[str, Any]:
    """The result of a tool."""
    return {"content": [{"type": "text", "text": words}]}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result; None for a method that is not known."""
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolversion"],
                "capabilities": {"tools": {}, "prompts": {}, "resources": {}, "completions": {}},
                "serverInfo": {"name": "folding", "version": "1"},
            }
        case "tools/list":
            return {"tools": tools()}
        case "prompts/list":
            return {"prompts": [{"name": "hello"}, {"name": "secret_prompt"}]}
        case "resources/list":
            return {"resources": [{"uri": f"memo://{one}", "name": one} for one in ("open", "own")]}
        case "resources/templates/list":
            return {"resourceTemplates": []}
        case "tools/call":
            given = json.dumps(params.get("arguments"), sort_keys=True)
            return text(f"ran {params['name']} with {given}")
        case "prompts/get":
            said = {"type": "text", "text": f"prompt {params['name']}"}
            return {"messages": [{"role": "user", "content": said}]}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": f"read {params['uri']}"}]}
        case "completion/complete":
            ref = params["ref"]
            return {"completion": {"values": [f"for {ref.get('name') or ref.get('uri')}"]}}
        case "resources/subscribe" | "resources/unsubscribe" | "ping":
            return {}
    return None


def main() -> None:
    """Answer line by line."""
    for line in sys.stdin:
        message = json.loads(line, object_pairs_hook=READ)
        if "id" not in message:
            continue
        result = answer(message["method"], message.get("params", {}))
        refused = {"code": -32601, "message": "method not found"}
        body = {"error": refused} if result is None else {"result": result}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
