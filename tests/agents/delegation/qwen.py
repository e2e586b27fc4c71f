"""Qwen Code, a real agent, behind a real `portico serve`, with a scripted model server."""

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.interop.sdk import only_one
from tests.serve.gateway import Gateway
from tests.support import node
from tests.support.model_server import ModelServer
from tests.wrap.faults import alive, until

WAIT_S = 180.0
"""How long a whole conversation may take before it counts as a hang: the agent starts for long."""
QWEN_SETTINGS = {
    "$version": 4,
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
    "ui": {"enableFollowupSuggestions": False},
    "tools": {"approvalMode": "default"},
}
"""Without these, the agent calls the model more often than its prompt needs."""


def qwen_table(home: Path, model: ModelServer) -> dict[str, Any]:
    """The `[[agents]]` table of Qwen Code with this home, in front of this model."""
    settings = home / ".qwen" / "settings.json"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(json.dumps(QWEN_SETTINGS))
    return {
        "id": "qwen",
        "preset": "qwen",
        "command": str(node.node()),
        "args": [str(node.qwen()), "--acp", "--approval-mode", "default"],
        "env": {
            "HOME": str(home),
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": model.url,
            "OPENAI_MODEL": "scripted",
        },
    }


class QwenGateway:
    """The config and the folders of a gateway with one agent."""

    def __init__(self, folder: Path, model: ModelServer, *more: str, **agent: Any) -> None:
        """`more` are further lines of the config; `agent`, further keys of the agent."""
        self.folder = folder
        self.model = model
        self.work = folder / "work"
        self.work.mkdir()
        self.home = folder / "portico"
        self.config = folder / "portico.toml"
        table = {"pool": {"max": 0}, **self.table(folder / "home"), **agent}
        defaults = ["[agents_defaults]", f"roots = [{_toml(str(self.work))}]"]
        lines = [
            *more,
            *defaults,
            "[[agents]]",
            *(f"{key} = {_toml(value)}" for key, value in table.items()),
        ]
        self.config.write_text("\n".join(lines) + "\n")

    def table(self, home: Path) -> dict[str, Any]:
        """The `[[agents]]` table of the agent, whose home this is."""
        return qwen_table(home, self.model)

    def settle(self) -> None:
        """Give the agent this gateway as `own` in its own settings, with hardly a variable."""
        path = self.folder / "home" / ".qwen" / "settings.json"
        command, *args = self.command("serve", "--config", str(self.config))
        server = {"command": "env", "args": ["-i", f"PORTICO_HOME={self.home}", command, *args]}
        settings = json.loads(path.read_text())
        path.write_text(json.dumps({**settings, "mcpServers": {"own": server}}))

    def command(self, *words: str) -> list[str]:
        """The command line of a command of Portico."""
        return [sys.executable, "-m", "portico", *words]

    @property
    def environment(self) -> dict[str, str]:
        """Its environment: all that Portico keeps is in the folder."""
        return {**os.environ, "PORTICO_HOME": str(self.home)}

    @asynccontextmanager
    async def window(self, mode: str = "legacy", **options: Any) -> AsyncIterator[Client]:
        """A client of the official SDK at a window of the gateway, opened in the work folder."""
        command, *args = self.command("serve", "--config", str(self.config))
        server = StdioServerParameters(
            command=command, args=args, env=self.environment, cwd=self.work
        )
        try:
            with anyio.fail_after(WAIT_S):
                async with Client(stdio_client(server), mode=mode, **options) as client:
                    yield client
        except BaseExceptionGroup as group:
            raise only_one(group) from None

    @asynccontextmanager
    async def http_client(self, mode: str = "legacy") -> AsyncIterator[Client]:
        """A client of the official SDK over HTTP, at a gateway that ends with the block."""
        gateway = await anyio.to_thread.run_sync(Gateway, self.home, self.config)
        try:
            with anyio.fail_after(WAIT_S):
                url = f"http://127.0.0.1:{gateway.port}/mcp"
                async with Client(streamable_http_client(url), mode=mode) as client:
                    yield client
        except BaseExceptionGroup as group:
            raise only_one(group) from None
        finally:
            await anyio.to_thread.run_sync(gateway.__exit__)

    def processes(self) -> set[int]:
        """All processes of this gateway that live: the agent's own environment names the folder."""
        found = set()
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                if process.name.isdigit() and self._owns(process):
                    found.add(int(process.name))
        return alive(found)

    def _owns(self, process: Path) -> bool:
        words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        return str(self.folder).encode() in words

    async def ended(self) -> bool:
        """Wait until the gateway has ended, with its agent."""
        return await anyio.to_thread.run_sync(lambda: until(lambda: not self.processes(), 60))


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(of)}" for key, of in value.items()) + "}"
    return json.dumps(value)
