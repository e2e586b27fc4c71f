"""Who is measured: one small object each."""

import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from bench.machine import NODE, TYPESCRIPT_SDK

SERVERS = "bench/servers"


class Asked(Enum):
    """How a contender is spoken to."""

    MODERN = "2026-07-28"
    LEGACY = "2025-11-25"
    SESSION = "2025-11-25, session"
    """Over HTTP: after a handshake, with its session id."""


@dataclass(frozen=True)
class Contender:
    """A program, and how to ask it. `{tools}` and `{port}` in its arguments are filled in."""

    name: str
    argv: tuple[str, ...]
    asked: Asked = Asked.MODERN
    token: bool = False
    """It wants Portico's bearer token."""
    needs: tuple[Path, ...] = ()
    """What must be installed for it."""

    def command(self, tools: Path, port: int = 0) -> list[str]:
        """The command line that starts it."""
        return [part.format(tools=tools, port=port) for part in self.argv]

    def missing(self) -> str | None:
        """Why it cannot take part, if it cannot."""
        absent = [str(path) for path in self.needs if not path.exists()]
        return f"{self.name} left out: {', '.join(absent)} is not there" if absent else None


PYTHON = sys.executable
_RUN = (PYTHON, "-m", "portico", "run", f"{SERVERS}/portico_server.py")
_RUN_HTTP = (*_RUN, "--http", "127.0.0.1:{port}")
_SDK = (PYTHON, f"{SERVERS}/sdk_server.py", "{tools}")
_TYPESCRIPT = (str(NODE), f"{SERVERS}/typescript_server.mjs", "{tools}")

HTTP_FLOOR = Contender(
    "floor: bare uvicorn callable", (PYTHON, f"{SERVERS}/floor_http.py", "{tools}", "{port}")
)
HTTP_PORTICO = Contender("Portico", (*_RUN_HTTP, "--auth", "none"))
HTTP_TOKEN = Contender("Portico, bearer token", _RUN_HTTP, token=True)
HTTP_SESSION = Contender(
    "Portico, legacy session", (*_RUN_HTTP, "--auth", "none"), asked=Asked.SESSION
)
HTTP_SDK = Contender("Python SDK, session", (*_SDK, "{port}"), asked=Asked.SESSION)
HTTP_SDK_FASTEST = Contender("Python SDK, stateless, JSON, modern", (*_SDK, "{port}", "fastest"))
HTTP_TYPESCRIPT = Contender(
    "TypeScript SDK 1.x, stateless, JSON",
    (*_TYPESCRIPT, "{port}"),
    asked=Asked.LEGACY,
    needs=(NODE, TYPESCRIPT_SDK),
)
HTTP = (
    HTTP_FLOOR,
    HTTP_PORTICO,
    HTTP_TOKEN,
    HTTP_SESSION,
    HTTP_SDK,
    HTTP_SDK_FASTEST,
    HTTP_TYPESCRIPT,
)

STDIO_FLOOR = Contender(
    "floor: asyncio + msgspec",
    (PYTHON, f"{SERVERS}/floor_stdio.py", "{tools}"),
    asked=Asked.LEGACY,
)
STDIO_PORTICO = Contender("Portico, portico run", _RUN, asked=Asked.LEGACY)
STDIO_MODERN = Contender("Portico, portico run, modern era", _RUN, asked=Asked.MODERN)
STDIO_SCRIPT = Contender(
    "Portico, as a library",
    (PYTHON, "-m", "bench.servers.portico_script"),
    asked=Asked.LEGACY,
)
STDIO_SDK = Contender("Python SDK", _SDK, asked=Asked.LEGACY)
STDIO_TYPESCRIPT = Contender(
    "TypeScript SDK 1.x", _TYPESCRIPT, asked=Asked.LEGACY, needs=(NODE, TYPESCRIPT_SDK)
)
STDIO = (STDIO_FLOOR, STDIO_PORTICO, STDIO_MODERN, STDIO_SCRIPT, STDIO_SDK, STDIO_TYPESCRIPT)
