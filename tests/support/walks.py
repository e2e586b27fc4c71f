"""Walks: which modules a request enters and which functions it calls, counted in real processes.

`python -m tests.support.walks` prints each of them.
"""

import http.client
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.serve.gateway import Gateway, command, written
from tests.support.running import WAIT_S, Piped, modern_meta
from tests.support.shared import ROOT
from tests.wrap.faults import portico_command, until

_WALKED = str(ROOT / "tests" / "support" / "walked.py")
_UPSTREAM = str(ROOT / "bench" / "servers" / "upstream_server.py")
_WARM, _TRIES = 3, 20
_ECHO = {
    "name": "echo",
    "description": "Repeat a text.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}, "repeat": {"type": "integer", "minimum": 1}},
        "required": ["text"],
        "additionalProperties": False,
    },
}
_LIBRARY = '''
from portico import Server

server = Server("shop", "1")


@server.tool
async def echo(text: str, repeat: int = 1) -> str:
    """Repeat a text."""
    return text * repeat
'''


class Walk:
    """The way of one request, from its first byte to the last of its answer."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name = name
        self.calls = calls
        """A module and a function each."""

    @property
    def modules(self) -> list[str]:
        """The modules in the order in which they are first entered."""
        return list(dict.fromkeys(call.partition(" ")[0] for call in self.calls))

    def __str__(self) -> str:
        lines = [f"{self.name}: {len(self.modules)} modules, {len(self.calls)} functions"]
        for module, calls in groupby(self.calls, lambda call: call.partition(" ")[0]):
            names = ", ".join(call.partition(" ")[2] for call in calls)
            lines.append(f"  {module}: {names}")
        return "\n".join(lines)


def listing(folder: Path) -> Walk:
    """`tools/list` through `wrap`, over stdio."""
    options = ("wrap", "--", sys.executable, _UPSTREAM, str(_tools(folder)))
    return _over_stdio(folder, "tools/list through wrap, over stdio", options, "tools/list", {})


def library(folder: Path) -> Walk:
    """A call of a tool of a library's server, over stdio."""
    component = folder / "shop.py"
    component.write_text(_LIBRARY)
    options, params = ("run", str(component)), {"name": "echo", "arguments": {"text": "a"}}
    return _over_stdio(folder, "a library's tool, over stdio", options, "tools/call", params)


def executing(folder: Path) -> Walk:
    """`execute_tool` through `serve`, over HTTP."""
    name = "execute_tool through serve, over HTTP"
    return _over_http(folder, name, {"text": "a"}, is_error=False)


def budgeted(folder: Path) -> Walk:
    """`execute_tool` through `serve`, where calls become tasks after a time."""
    name = "execute_tool with sync_budget_s, over HTTP"
    return _over_http(folder, name, {"text": "a"}, is_error=False, sync_budget_s=45)


def executing_wrongly(folder: Path) -> Walk:
    """`execute_tool` with arguments that break the tool's schema."""
    name = "a wrong execute_tool through serve, over HTTP"
    return _over_http(folder, name, {"txt": "a", "repeat": "b"}, is_error=True)


def _over_stdio(
    folder: Path, name: str, words: tuple[str, ...], method: str, params: dict[str, Any]
) -> Walk:
    steps = folder / "steps"
    with Piped(portico_command(folder, *words, by=(_WALKED, str(steps)))) as server:
        server.initialize()

        def ask() -> None:
            server.write(_message(method, params) + b"\n")
            answer = server.answer_to(7)
            assert not answer["result"].get("isError"), answer

        return _usual(name, server.process.pid, steps, ask)


def _over_http(
    folder: Path, name: str, arguments: dict[str, Any], *, is_error: bool, **more: Any
) -> Walk:
    entry = command([sys.executable, _UPSTREAM, str(_tools(folder))])
    settings = {"expose": "search", **more}
    config = written(folder / "portico.toml", {"shop": entry}, gateway=settings)
    steps = folder / "steps"
    with Gateway(folder, config, by=(_WALKED, str(steps))) as gateway:
        client = socket.create_connection(("127.0.0.1", gateway.port), WAIT_S)

        def ask(name: str = "execute_tool", **given: Any) -> None:
            given = given or {"name": "shop__echo", "arguments": arguments}
            answer = _posted(client, name, given)
            assert answer["result"].get("isError", False) is (is_error and "name" in given), answer

        ask("refresh_tools", server="shop")
        walk = _usual(name, gateway.process.pid, steps, ask)
        client.close()
        return walk


def _posted(client: socket.socket, tool: str, arguments: dict[str, Any]) -> Any:
    """The answer to a modern call, which is sent at once as most clients do."""
    params = {"name": tool, "arguments": arguments, "_meta": modern_meta()}
    body = _message("tools/call", params)
    head = f"""POST /mcp HTTP/1.1
Host: 127.0.0.1:{client.getpeername()[1]}
Content-Type: application/json
Accept: application/json, text/event-stream
Mcp-Protocol-Version: 2026-07-28
Mcp-Method: tools/call
Mcp-Name: {tool}
Content-Length: {len(body)}

"""
    client.sendall(head.replace("\n", "\r\n").encode() + body)
    response = http.client.HTTPResponse(client)
    response.begin()
    return json.loads(response.read())


def _message(method: str, params: dict[str, Any]) -> bytes:
    """A request as most clients write it."""
    message = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    return json.dumps(message, separators=(",", ":")).encode()


def _usual(name: str, pid: int, steps: Path, ask: Callable[[], None]) -> Walk:
    """The walk of a request that was made before; a clock may tick during one, but not always."""
    for _ in range(_WARM):
        ask()
    seen: set[str] = set()
    for _ in range(_TRIES):
        _signal(pid, signal.SIGUSR1, steps.with_suffix(".begun"))
        ask()
        told = _signal(pid, signal.SIGUSR2, steps.with_suffix(".walk"))
        if told in seen:
            return Walk(name, told.splitlines())
        seen.add(told)
    raise AssertionError("it walks another way each time:\n" + "\n\n".join(seen))


def _signal(pid: int, number: int, answer: Path) -> str:
    os.kill(pid, number)
    assert until(answer.exists), f"{answer.name} did not come"
    told = answer.read_text()
    answer.unlink()
    return told


def _tools(folder: Path) -> Path:
    path = folder / "tools.json"
    path.write_text(json.dumps({"tools": [_ECHO]}))
    return path


def main() -> None:
    """Print all walks."""
    walks = []
    for walk in (listing, executing, budgeted, executing_wrongly, library):
        with TemporaryDirectory(prefix="portico-") as folder:
            walks.append(walk(Path(folder)))
    sys.stdout.write("\n\n".join(map(str, walks)) + "\n")


if __name__ == "__main__":
    main()
