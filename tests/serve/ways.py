"""The official SDK's client at a gateway: over stdio and HTTP, in both eras, every message held."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.interop.sdk import only_one
from tests.serve.fleet import Fleet
from tests.serve.gateway import serve_command
from tests.support.proxy import RecordingProxy
from tests.support.running import WAIT_S, held, teed

TRANSPORTS = ("stdio", "http")
ERAS = ("legacy", "modern")


class Way:
    """One transport in one era; `connect` gives a client that speaks it."""

    def __init__(self, fleet: Fleet, transport: str, era: str, folder: Path) -> None:
        self._fleet = fleet
        self._folder = folder
        self._recordings: list[Path] = []
        self.transport = transport
        self.era = era
        self.proxy: RecordingProxy | None = None
        """What listens in over HTTP."""

    @property
    def modern(self) -> bool:
        """True if there is no handshake."""
        return self.era == "modern"

    @asynccontextmanager
    async def connect(self, path: str = "/mcp", **options: Any) -> AsyncIterator[Client]:
        """A client of the SDK; the options are callbacks and settings of its own."""
        mode = "auto" if self.modern else "legacy"
        try:
            with anyio.fail_after(3 * WAIT_S):
                async with (
                    self._transport(path) as transport,
                    Client(transport, mode=mode, **options) as client,
                ):
                    assert (client.protocol_version == "2026-07-28") == self.modern
                    yield client
        except BaseExceptionGroup as group:
            raise only_one(group) from None

    @asynccontextmanager
    async def _transport(self, path: str) -> AsyncIterator[Any]:
        if self.proxy is not None:
            headers = {"authorization": f"Bearer {token(self._fleet.home)}"}
            async with httpx2.AsyncClient(headers=headers, timeout=WAIT_S) as http:
                yield streamable_http_client(self.proxy.url(path), http_client=http)
            return
        # What each offers is on disk, so only what a test uses is started.
        served = serve_command(self._fleet.home, self._fleet.config, "--no-refresh", "--alone")
        recording = self._folder / f"conversation-{len(self._recordings)}"
        self._recordings.append(recording)
        first, *rest = teed(recording, served)
        yield stdio_client(StdioServerParameters(command=first, args=rest))

    def problems(self) -> list[str]:
        """What no schema allows, of all that was said over stdio."""
        oracles = [held(recording) for recording in self._recordings]
        assert all(oracle.checked for oracle in oracles)
        return [problem for oracle in oracles for problem in oracle.problems]


def token(home: Path) -> str:
    """What opens the door of a gateway over HTTP."""
    return (home / "state" / "token").read_text().strip()


async def execute(client: Client, tool: str, /, **arguments: Any) -> types.CallToolResult:
    """Call a tool of a server through `execute_tool`."""
    return await client.call_tool("execute_tool", {"name": tool, "arguments": arguments})


def told(result: types.CallToolResult) -> dict[str, Any]:
    """A result as it came, without what the SDK or a transport adds to every one."""
    whole = result.model_dump(by_alias=True, exclude_none=True)
    whole.pop("resultType", None)
    meta = whole.pop("_meta", {})
    meta.pop("io.modelcontextprotocol/serverInfo", None)
    return {**whole, "_meta": meta}
