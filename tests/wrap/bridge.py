"""The official SDK's client of one era and a server of the other, with `portico wrap` between."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.support.running import WAIT_S
from tests.support.soak import IS_SOAK
from tests.wrap.faults import wrap_command
from tests.wrap.wrapped import everything_over, wrapped

OTHER = {"modern": "legacy", "legacy": "modern"}
SPOKEN = {"modern": "2026-07-28", "legacy": "2025-11-25"}
WAYS = [(era, "http", kind) for era in OTHER for kind in ("http", "stdio")]
"""The client's era, how it reaches `wrap`, and how that reaches the server."""
FEW_WAYS = WAYS if IS_SOAK else [WAYS[0], WAYS[3]]
"""Each era, and each way to the server, once."""
ALL_WAYS = [*WAYS, *((era, "stdio", "stdio") for era in OTHER)]


class Doorways:
    """Doorways over HTTP, each started once, by the server behind it."""

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()
        self._urls: dict[tuple[str, str], str] = {}

    def url(self, kind: str, era: str) -> str:
        """Where a server of an era is to be had."""
        if (kind, era) not in self._urls:
            target = self.stack.enter_context(everything_over(kind, era))
            self._urls[kind, era] = self.stack.enter_context(wrapped(target))
        return self._urls[kind, era]

    @classmethod
    @contextlib.contextmanager
    def open(cls) -> Iterator["Doorways"]:
        """All of them, until the block ends."""
        doorways = cls()
        with doorways.stack:
            yield doorways


class Bridge:
    """One client's way through `wrap`."""

    def __init__(self, era: str, door: str | list[str]) -> None:
        """`door` is the URL or the command line of `wrap`."""
        self.era = era
        self.modern = era == "modern"
        self._door = door

    @contextlib.asynccontextmanager
    async def connect(self, **options: Any) -> AsyncIterator[Client]:
        """A client of the SDK; the options are callbacks and settings of its own."""
        mode = "auto" if self.modern else "legacy"
        with anyio.fail_after(WAIT_S):
            async with Client(self._open(), mode=mode, **options) as client:
                assert client.protocol_version == SPOKEN[self.era]
                yield client

    def _open(self) -> Any:
        if isinstance(self._door, str):
            return streamable_http_client(self._door)
        command, *words = self._door
        return stdio_client(StdioServerParameters(command=command, args=words))


def over_stdio(era: str, home: Path, target: list[str], *options: str) -> Bridge:
    """A way whose client starts `wrap` itself."""
    return Bridge(era, wrap_command(home, *options, *target))
