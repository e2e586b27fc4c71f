"""`make bench-windows`: how many processes several windows run over real servers.

Each window is a client with roots and elicitation, on pipes, with one call at every server. The
servers are those of `make bench-fleet`.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from bench.contenders import PYTHON
from bench.fleet import KEYS, SERVERS, install
from bench.process import Workspace
from bench.workload import encode

_WINDOWS = 5
_ABLE = {"roots": {"listChanged": True}, "elicitation": {}}
_ANSWERS: dict[str, dict[str, Any]] = {
    "roots/list": {"roots": [{"uri": "file:///tmp"}]},
    "elicitation/create": {"action": "decline"},
}
_FILLED = {"string": "x", "number": 1, "integer": 1, "boolean": False, "array": [], "object": {}}
_HARMLESS = ("list", "get", "read", "search", "echo", "time")


class Window:
    """One client of the gateway, which answers questions."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, config: Path, home: Path) -> "Window":
        """Start it, and shake hands."""
        process = await asyncio.create_subprocess_exec(
            *(PYTHON, "-m", "portico", "serve", "--config", str(config)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, "PORTICO_HOME": str(home)},
            cwd=config.parent,
            limit=64 * 1024 * 1024,
        )
        window = cls(process)
        info = {"name": "bench", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": _ABLE, "clientInfo": info}
        await window.request("initialize", hello)
        window.send({"method": "notifications/initialized"})
        return window

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        assert self._process.stdin is not None
        self._process.stdin.write(encode({"jsonrpc": "2.0", **message}) + b"\n")

    async def request(self, method: str, params: Any = None) -> dict[str, Any]:
        """The whole answer to a request."""
        id = len(self._waiting)
        self._waiting[id] = asyncio.get_running_loop().create_future()
        self.send({"id": id, "method": method, "params": params or {}})
        return await self._waiting[id]

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The result of a tool."""
        answer = await self.request("tools/call", {"name": tool, "arguments": arguments})
        result: dict[str, Any] = answer["result"]
        return result

    async def close(self) -> None:
        """End it as a client does."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            message = json.loads(line)
            if "method" not in message:
                self._waiting[message["id"]].set_result(message)
            elif "id" in message:
                answer = {"result": _ANSWERS.get(message["method"], {})}
                self.send({"id": message["id"], **answer})


async def _tools(window: Window) -> dict[str, tuple[str, dict[str, Any]]]:
    """By server, a tool that does little, and its arguments."""
    for _ in range(1200):
        status = (await window.call("gateway_status"))["structuredContent"]["servers"]
        if all(server["tools"] for server in status):
            break
        await asyncio.sleep(0.1)
    tools = (await window.request("tools/list"))["result"]["tools"]
    listed = [tool for tool in tools if "__" in tool["name"]]
    listed.sort(key=lambda tool: not tool["name"].split("__")[1].startswith(_HARMLESS))
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for tool in listed:
        arguments = _arguments(tool["inputSchema"])
        found.setdefault(tool["name"].split("__")[0], (tool["name"], arguments))
    return found


def _arguments(schema: dict[str, Any]) -> dict[str, Any]:
    fields = schema.get("properties", {})
    return {name: _value(fields.get(name, {})) for name in schema.get("required", [])}


def _value(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "string")
    return _arguments(schema) if kind == "object" else _FILLED[kind]


def _processes(config: Path) -> Counter[str]:
    """By server, how many processes of it run."""
    count: Counter[str] = Counter()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(path / "cwd") != str(config.parent):
                continue
            words = (path / "cmdline").read_text().split("\0")[:-1]
            # A script has its interpreter before it.
            count.update(one.name for one in SERVERS if words[-len(one.argv) :] == [*one.argv])
    return count


def _config() -> str:
    lines = ["[gateway]", 'expose = "all"']
    for server in SERVERS:
        env = ", ".join(f"{key} = {json.dumps(value)}" for key, value in KEYS.items())
        lines += [f"[servers.{server.name}]", f"command = {json.dumps(server.argv[0])}"]
        lines += [f"args = {json.dumps(server.argv[1:])}", f"env = {{ {env} }}"]
    return "\n".join(lines)


async def measure() -> None:
    """Open all windows, and count after each has called every server."""
    with Workspace() as workspace:
        config = workspace.path / "portico.toml"
        config.write_text(_config())
        windows: list[Window] = []
        for number in range(_WINDOWS):
            windows.append(await Window.open(config, workspace.home))
            tools = await _tools(windows[-1])
            await asyncio.gather(
                *(
                    windows[-1].request("tools/call", {"name": name, "arguments": arguments})
                    for name, arguments in tools.values()
                )
            )
            count = _processes(config)
            several = ", ".join(sorted(name for name in count if count[name] > 1)) or "none"
            print(
                f"{number + 1} windows, {len(tools)} servers: {count.total()} processes; "
                f"more than one of: {several}"
            )
        for window in windows:
            await window.close()


def main() -> int:
    """Print."""
    install()
    asyncio.run(measure())
    return 0


if __name__ == "__main__":
    sys.exit(main())
