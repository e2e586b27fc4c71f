"""An upstream that lists the same each time, in another order, with other bytes.

    python -I -S tests/rigs/shuffler.py (legacy | modern | both) FILE [PAGE]

Its entries are the words of a file: a tool, a prompt, a resource and a template for each. For each
list it shuffles the entries, the keys of every object, and writes spaces at random; with PAGE it
lists that many on a page at most, at least half as many. Every tool says how often it has listed
tools so far; `announce` announces first that all lists have changed, ten times; `die` ends it.
"""

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

# Isolated, Python looks for imports nowhere near this file.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.rigs.wire import Call, dumps, serve_stdio

META = "io.modelcontextprotocol/"
spoken = [sys.argv[1]]
page_size = int(sys.argv[3]) if len(sys.argv) > 3 else 0
listed = [0]
following: list[Any] = []
pages: dict[str, list[Any]] = {}
FIELDS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}


def words() -> list[str]:
    """The current entries."""
    return Path(sys.argv[2]).read_text().split()


def entry(method: str, word: str) -> dict[str, Any]:
    """The definition of a word in one of the lists."""
    if method == "tools/list":
        properties = {name: {"type": "string", "title": name} for name in ("a", "b", "c")}
        schema = {"type": "object", "properties": properties, "required": ["a"]}
        hints = {"readOnlyHint": True, "title": word}
        return {"name": word, "description": word, "inputSchema": schema, "annotations": hints}
    if method == "prompts/list":
        arguments = [{"name": "a", "description": "it", "required": False}]
        return {"name": word, "description": word, "arguments": arguments}
    key = "uri" if method == "resources/list" else "uriTemplate"
    uri = f"word://{word}" if key == "uri" else f"word://{word}/{{+rest}}"
    return {key: uri, "name": word, "mimeType": "text/plain", "_meta": {"x": 1, "y": [1, 2]}}


def shuffled(value: Any) -> Any:
    """The same value with the keys of all objects in another order."""
    if isinstance(value, list):
        return [shuffled(one) for one in value]
    if isinstance(value, dict):
        keys = random.sample(list(value), len(value))
        return {key: shuffled(value[key]) for key in keys}
    return value


def written(value: Any) -> bytes:
    """The same value in other bytes."""
    spaces = random.choice([(",", ":"), (", ", ": "), (" ,", " :")])
    return json.dumps(shuffled(value), separators=spaces).encode()


def written_hello(value: Any) -> bytes:
    """The same, but a server of both eras introduces itself in the same bytes in both."""
    return dumps(value) if sys.argv[1] == "both" else written(value)


def is_modern(call: Call) -> bool:
    """True if the message is of the modern era."""
    return f"{META}protocolVersion" in call.params.get("_meta", {})


def answered(call: Call, result: dict[str, Any]) -> None:
    """Answer in the message's own era."""
    write = written_hello if "capabilities" in result else written
    call.raw_result(write({"resultType": "complete", **result} if is_modern(call) else result))


def greet(call: Call) -> None:
    """Say hello in the era that is spoken."""
    server = {"name": "shuffler", "version": "1", "title": "Shuffler"}
    changing = {"listChanged": True}
    able = dict.fromkeys(("tools", "prompts", "resources"), changing)
    if call.method == "initialize" and spoken[0] != "modern":
        answered(
            call,
            {
                "protocolVersion": "2025-11-25",
                "capabilities": able,
                "serverInfo": server,
                "instructions": "Use it.",
            },
        )
    elif call.method == "server/discover" and spoken[0] != "legacy":
        found = {"supportedVersions": ["2026-07-28"], "capabilities": able, "ttlMs": 0}
        about = {"cacheScope": "private", "_meta": {f"{META}serverInfo": server}}
        answered(call, {**found, **about, "instructions": "Use it."})
    else:
        call.error(-32601, "Method not found")


def list_page(call: Call) -> None:
    """Answer with the next page of a list."""
    cursor = call.params.get("cursor")
    if cursor is None:
        listed[0] += call.method == "tools/list"
        now = [entry(call.method, word) for word in words()]
        random.shuffle(now)
    else:
        now = pages.pop(cursor)
    size = random.randint(max(1, page_size // 2), page_size) if page_size else len(now)
    result: dict[str, Any] = {FIELDS[call.method]: now[:size]}
    if now[size:]:
        result["nextCursor"] = f"{call.method}-{random.random()}"
        pages[result["nextCursor"]] = now[size:]
    if is_modern(call):
        result |= {"ttlMs": 0, "cacheScope": "private"}
    answered(call, result)


def announce(call: Call) -> None:
    """Announce a change of each list, ten times."""
    kinds = ("tools", "prompts", "resources")
    for _ in range(10):
        for kind in kinds:
            method = f"notifications/{kind}/list_changed"
            message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
            for id in following or [None]:
                if id is not None:
                    message["params"] = {"_meta": {f"{META}subscriptionId": id}}
                call.emit(dumps(message))


def handle(call: Call) -> None:
    """Answer one message."""
    if spoken[0] == "both":
        spoken[0] = "modern" if is_modern(call) else "legacy"
    if call.id is None:
        return
    if call.method in ("initialize", "server/discover"):
        greet(call)
    elif call.method in FIELDS:
        list_page(call)
    elif call.method == "subscriptions/listen":
        id = json.loads(call.id)
        following.append(id)
        granted = {"notifications": call.params.get("notifications", {})}
        about = {"_meta": {f"{META}subscriptionId": id}}
        call.notify("notifications/subscriptions/acknowledged", {**granted, **about})
    elif call.method == "tools/call":
        if call.params["name"] == "die":
            os._exit(0)
        if call.params["name"] == "announce":
            announce(call)
        answered(call, {"content": [{"type": "text", "text": str(listed[0])}]})
    else:
        call.error(-32601, "Method not found")


if __name__ == "__main__":
    serve_stdio(handle)
