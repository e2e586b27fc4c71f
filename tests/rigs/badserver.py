"""An upstream that behaves well but for one thing, which its mode names.

    python -I -S tests/rigs/badserver.py (stdio | http) MODE [ARGUMENT...] [--json]

Over HTTP it prints its port first, speaks the legacy era at any path, and answers in streams or,
with `--json`, in bodies. The modes are in badmodes.py; the tool `bad` also takes one as argument.
"""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Isolated, Python looks for imports nowhere near this file.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.rigs.badmodes import MODES, ONLY_HTTP, ONLY_STDIO
from tests.rigs.door import Door
from tests.rigs.wire import Call, dumps, raw_member, serve_stdio

OVER = sys.argv[1]
MODE = sys.argv[2]
ARGUMENTS = [word for word in sys.argv[3:] if word != "--json"]
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
NOTE = "test://note"
QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "elicitation": (
        "elicitation/create",
        {
            "message": "What is your name?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
    ),
    "sampling": (
        "sampling/createMessage",
        {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Say hello"}}],
            "maxTokens": 10,
        },
    ),
    "roots": ("roots/list", {}),
}

SLOW = {"allOf": [{"not": {"contains": {"const": -1 - number}}} for number in range(1600)]}
"""A schema that takes as long as it has parts, times the length of the list."""

received: Counter[str] = Counter()
subscribed: set[tuple[str, str]] = set()
running: dict[tuple[str, Any], threading.Event] = {}


# Tools.


def echo(call: Call, text: str = "") -> None:
    """Say it again."""
    call.text(text)


def bad(call: Call, mode: str = "", numbers: tuple[int, ...] = ()) -> None:
    """Misbehave in the selected mode; `numbers` only exercises the validation of arguments."""
    if mode and mode not in MODES:
        call.error(-32602, "no such mode")
    else:
        MODES[mode or MODE](call, *([] if mode else ARGUMENTS))


def count(call: Call, method: str = "tools/list") -> None:
    """Say how often a method has come; `cancelled` counts the slow calls that were cut short."""
    call.text(str(received[method]))


def pid(call: Call) -> None:
    """Say which process this is."""
    call.text(str(os.getpid()))


def fail(call: Call) -> None:
    """Refuse with an error that carries data."""
    call.error(1234, "it cannot be done", data={"why": ["because", None]}, **extra_fields())


def slow(call: Call, ms: int = 1000, steps: int = 10) -> None:
    """Take a while and report progress if requested; send no answer if cancelled."""
    token = call.params.get("_meta", {}).get("progressToken")
    cancelled = running.setdefault((call.session, call.message["id"]), threading.Event())
    for step in range(1, steps + 1):
        if cancelled.wait(ms / 1000 / steps):
            received["cancelled"] += 1
            return
        if token is not None:
            progress = {"progressToken": token, "progress": step, "total": steps}
            call.notify("notifications/progress", progress)
    call.text(f"slept {ms} ms")


def ask(call: Call, kind: str = "elicitation", mark: str = "", after_ms: int = 0) -> None:
    """Ask the client, cancelled or not, and say what it answered."""
    token = call.params.get("_meta", {}).get("progressToken")
    if token is not None:
        call.notify("notifications/progress", {"progressToken": token, "progress": 0})
    time.sleep(after_ms / 1000)
    method, params = QUESTIONS[kind]
    answer = call.ask(method, {**params, "message": mark} if mark else params)
    call.text(dumps(answer.get("result", answer.get("error"))).decode())


def log(call: Call) -> None:
    """Send a log message of every level."""
    for level in LEVELS:
        call.notify("notifications/message", {"level": level, "logger": "rig", "data": level})
    call.text("logged")


def update(call: Call, uri: str = NOTE) -> None:
    """Tell those who watch a resource that it has changed."""
    watched = any(of == uri for _, of in subscribed)
    if watched:
        message = {"method": "notifications/resources/updated", "params": {"uri": uri}}
        call.broadcast(dumps({"jsonrpc": "2.0", **message}))
    call.text("told" if watched else "nobody watches")


TOOLS: dict[str, Callable[..., None]] = {
    tool.__name__: tool for tool in (echo, bad, count, pid, fail, slow, ask, log, update)
}
APART = ("slow", "ask")


def call_tool(call: Call) -> None:
    """Call a tool, or say that there is none."""
    tool = TOOLS.get(call.params.get("name", ""))
    if tool is None:
        call.error(-32602, "no such tool")
        return
    try:
        tool(call, **call.params.get("arguments") or {})
    except TypeError as problem:
        call.error(-32602, str(problem))


# The results of the other methods.


def initialize(call: Call) -> dict[str, Any]:
    """Agree on a version."""
    wanted = call.params.get("protocolVersion")
    changes = {"listChanged": True}
    return {
        "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[-1],
        "capabilities": {
            "tools": changes,
            "prompts": changes,
            "resources": {**changes, "subscribe": True},
            "logging": {},
            "completions": {},
        },
        "serverInfo": {"name": f"bad-{MODE}", "version": "1"},
        "instructions": "Expect the worst.",
    }


def list_tools(call: Call) -> dict[str, Any]:
    """The tools; in some modes endless, or thousands."""
    schema = {"type": "object", "properties": {}, "additionalProperties": True}
    if MODE == "cursor":
        page = int(call.params.get("cursor", "0"))
        tool = {"name": f"tool-{page}", "inputSchema": schema}
        return {"tools": [tool], "nextCursor": str(page + 1)}
    many = int(ARGUMENTS[0] if ARGUMENTS else 100_000) if MODE == "many" else 0
    names = [*TOOLS, *(f"tool-{number}" for number in range(many))]
    tools = [{"name": name, "inputSchema": schema} for name in names]
    if MODE == "schema":
        tools[names.index("bad")]["inputSchema"] = {**schema, "properties": {"numbers": SLOW}}
    return {"tools": tools}


def subscribe(call: Call) -> dict[str, Any]:
    """Remember who watches what."""
    subscribed.add((call.session, call.params["uri"]))
    return {}


def unsubscribe(call: Call) -> dict[str, Any]:
    """Forget it."""
    subscribed.discard((call.session, call.params["uri"]))
    return {}


def always(**result: Any) -> Callable[[Call], dict[str, Any]]:
    """Return a handler that gives every client the same result."""
    return lambda call: result


MESSAGE = {"role": "user", "content": {"type": "text", "text": "hello"}}
METHODS: dict[str, Callable[[Call], dict[str, Any]]] = {
    "initialize": initialize,
    "ping": always(),
    "tools/list": list_tools,
    "resources/list": always(resources=[{"uri": NOTE, "name": "note"}]),
    "resources/templates/list": always(
        resourceTemplates=[{"uriTemplate": "test://{id}", "name": "any"}]
    ),
    "resources/read": always(contents=[{"uri": NOTE, "text": "a note"}]),
    "resources/subscribe": subscribe,
    "resources/unsubscribe": unsubscribe,
    "prompts/list": always(prompts=[{"name": "hello"}]),
    "prompts/get": always(messages=[MESSAGE]),
    "completion/complete": always(completion={"values": ["paris"]}),
    "logging/setLevel": always(),
}


def handle(call: Call) -> None:
    """Answer one message."""
    received[call.method] += 1
    if call.method == "notifications/cancelled":
        # It may come before the thread of its request has begun.
        of = (call.session, call.params.get("requestId"))
        running.setdefault(of, threading.Event()).set()
    elif call.id is None:
        return
    elif call.method == "tools/call":
        call_tool(call)
    elif call.method == "x/echo" and MODE == "extra":
        call.raw_result(raw_member(call.raw, "params") or b"{}")
    elif call.method in METHODS:
        result = METHODS[call.method](call)
        call.result(with_extras(result) if MODE == "extra" else result)
    else:
        call.error(-32601, "Method not found")


def with_extras(value: Any) -> Any:
    """The same with an unknown field at every level; true is a value, and a schema too."""
    if isinstance(value, dict):
        return {**{key: with_extras(of) for key, of in value.items()}, "x-extra": True}
    return [with_extras(of) for of in value] if isinstance(value, list) else value


def extra_fields() -> dict[str, Any]:
    """An unknown field, in the mode for it."""
    return {"x-extra": True} if MODE == "extra" else {}


# The start.


def exits(code: str = "1") -> None:
    """End at once."""
    os.write(2, b"no API key\n")
    os._exit(int(code))


def exits_until(file: str, number: str) -> None:
    """End at once, until the start of this number; a file counts them."""
    counter = Path(file)
    starts = int(counter.read_text()) + 1 if counter.exists() else 1
    counter.write_text(str(starts))
    if starts < int(number):
        exits()


def banner() -> None:
    """Print to stdout at startup, as a careless `print` does."""
    os.write(1, b"Welcome to the bad server!\n\n")


STARTS: dict[str, Callable[..., None]] = {
    "exits": exits,
    "exits-until": exits_until,
    "banner": banner,
}


def main() -> None:
    """Start in the selected mode, then serve."""
    if MODE not in MODES or MODE in (ONLY_HTTP if OVER == "stdio" else ONLY_STDIO):
        sys.exit(f"no mode {MODE} over {OVER}; there are: {', '.join(MODES)}")
    if MODE in STARTS:
        STARTS[MODE](*ARGUMENTS)
    if OVER == "stdio":
        serve_stdio(handle, lambda call: call.params.get("name") in APART)
    else:
        lasts = int(ARGUMENTS[0] if ARGUMENTS else 5) if MODE == "session-lost" else None
        Door(handle, json="--json" in sys.argv, lasts=lasts).serve()


if __name__ == "__main__":
    main()
