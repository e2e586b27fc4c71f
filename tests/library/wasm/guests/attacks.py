"""Tries from inside everything that WASI could allow."""

import json
import os
import socket
import time
from collections.abc import Callable
from typing import Any

import wit_world.exports as base
from componentize_py_types import Err
from wit_world.imports import call, config, http, secrets


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


def write(path: str, text: str) -> str:
    with open(path, "w") as file:
        file.write(text)
    return "written"


def tcp(host: str, port: int) -> str:
    with socket.create_connection((host, port), 2):
        return "connected"


def udp(host: str, port: int) -> str:
    with socket.socket(type=socket.SOCK_DGRAM) as sender:
        return str(sender.sendto(b"hello", (host, port)))


def listen(port: int) -> str:
    with socket.create_server(("127.0.0.1", port)):
        return "listening"


def dns(host: str) -> str:
    return str(socket.getaddrinfo(host, 80))


def link(target: str, path: str) -> str:
    os.symlink(target, path)
    return "linked"


def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "awake"


def grow() -> str:
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


def loop() -> str:
    while True:
        pass


def until_cancelled(path: str) -> str:
    write(path, "running")
    while not call.cancelled():
        pass
    return write(path, "cancelled")


def recurse() -> str:
    return str(recurse())


TOOLS: dict[str, Callable[..., str]] = {
    "read": read,
    "write": write,
    "list": lambda path: json.dumps(sorted(os.listdir(path))),
    "link": link,
    "env": lambda: json.dumps(dict(os.environ)),
    "tcp": tcp,
    "udp": udp,
    "listen": listen,
    "dns": dns,
    "sleep": sleep,
    "grow": grow,
    "loop": loop,
    "recurse": recurse,
    "until_cancelled": until_cancelled,
    "huge": lambda size: "x" * size,
    "exit": lambda: os._exit(3),
    "add": lambda a, b: str(a + b),
    "config": config.get,
    "secret": secrets.get,
    "fetch": lambda request: http.fetch(json.dumps(request)),
    "cancelled": lambda: str(call.cancelled()),
}


class ToolsCapability(base.ToolsCapability):
    def list_tools(self) -> str:
        schema = {"type": "object"}
        return json.dumps({"tools": [{"name": name, "inputSchema": schema} for name in TOOLS]})

    def call_tool(self, name: str, arguments: str) -> str:
        if name not in TOOLS:
            return "null"
        given: dict[str, Any] = json.loads(arguments)
        try:
            text = TOOLS[name](**given)
        except (OSError, MemoryError, RecursionError) as error:
            raise Err(f"{type(error).__name__}: {error}") from None
        return json.dumps({"content": [{"type": "text", "text": text}]})
