"""A legacy server over stdio that is odd in the way its first argument names; the second is a
folder for signs between it and a test. Only the standard library."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

MODE, SIGNS = sys.argv[1], Path(sys.argv[2])
WAITS_FOR = 4
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}, "logging": {}},
    "serverInfo": {"name": "odd", "version": "1"},
}
TOOLS = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
UNREADABLE = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {}}
held: list[dict[str, Any]] = []


def write(*messages: dict[str, Any]) -> None:
    """All of them at once, as one piece."""
    os.write(1, "".join(json.dumps(message) + "\n" for message in messages).encode())


def result(request: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request["id"], "result": value}


def echo(request: dict[str, Any]) -> dict[str, Any]:
    text = request["params"]["arguments"].get("text", "")
    return result(request, {"content": [{"type": "text", "text": text}]})


def answer_together(request: dict[str, Any]) -> None:
    """Answer in one piece, when the test signals it."""
    held.append(request)
    if len(held) < WAITS_FOR:
        return
    (SIGNS / "held").touch()
    while not (SIGNS / "go").exists():
        time.sleep(0.01)
    write(*map(echo, held))
    (SIGNS / "gone").touch()


def talk_and_ask() -> None:
    """Say more than anybody reads at once, then ask for something."""
    said = {"level": "info", "data": "x" * 10_000}
    asked = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {}}}
    for _ in range(1000):
        write({"jsonrpc": "2.0", "method": "notifications/message", "params": said})
    write({"jsonrpc": "2.0", "id": "ask", "method": "elicitation/create", "params": asked})
    (SIGNS / "asked").touch()


def stop_listening(request: dict[str, Any]) -> None:
    """Answer, then close the input and stay."""
    write(echo(request))
    os.close(0)
    (SIGNS / "deaf").touch()
    time.sleep(3600)


for line in iter(sys.stdin.readline, ""):
    message = json.loads(line)
    match message.get("method") if "id" in message else None:
        case None:
            continue
        case "server/discover" if MODE == "versionless":
            error = {"code": -32022, "message": "not that one", "data": {"supported": 5}}
            write({"jsonrpc": "2.0", "id": message["id"], "error": error})
        case "initialize" if MODE == "early":
            write(UNREADABLE, result(message, HELLO))
        case "initialize":
            write(result(message, HELLO))
        case "tools/list" if MODE == "listless":
            continue
        case "tools/list":
            write(result(message, TOOLS))
        case "tools/call" if MODE == "together":
            answer_together(message)
        case "tools/call" if MODE == "chatty":
            talk_and_ask()
        case "logging/setLevel":
            write(result(message, {}))
        case "tools/call" if MODE == "deaf" and not (SIGNS / "deaf").exists():
            stop_listening(message)
        case "tools/call":
            write(echo(message))
        case _:
            error = {"code": -32601, "message": "method not found"}
            write({"jsonrpc": "2.0", "id": message["id"], "error": error})
