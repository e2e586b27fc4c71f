"""The measured programs: one small object each."""

import sys
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Self

from bench import peers
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
    """True if it requires Portico's bearer token."""
    needs: tuple[Path, ...] = ()
    """The files that must be installed for it."""
    invokes: str | None = None
    """It shows tools of its own instead of its upstream's, which are called through this one."""
    cold: bool = False
    """It finds nothing that an earlier run of it stored."""

    def command(self, tools: Path, port: int = 0) -> list[str]:
        """The command line that starts it."""
        return [part.format(tools=tools, port=port) for part in self.argv]

    def at(self, url: str) -> Self:
        """The same in front of the upstream at this URL, for which its arguments have `{url}`."""
        return replace(self, argv=tuple(part.replace("{url}", url) for part in self.argv))

    def missing(self) -> str | None:
        """Why it cannot take part, if it cannot."""
        installed = all(path.exists() for path in self.needs)
        return None if installed else f"{self.name} left out: it is not installed"

    def without(self, path: str) -> Self:
        """The same command of Portico with one fast path disabled."""
        argv = (PYTHON, "-m", "bench.servers.portico_without", path, *self.argv[len(PORTICO) :])
        return replace(self, name=f"{self.name}, without {path}", argv=argv)


PYTHON = sys.executable
PORTICO = (PYTHON, "-m", "portico")
AGENT = f"{SERVERS}/agent.py"
COMPONENT = f"{SERVERS}/portico_server.py"
# How its command lines begin.
_RUN = (*PORTICO, "run", COMPONENT)
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
STDIO_WITHOUT = tuple(map(STDIO_PORTICO.without, ("eager tasks", "joined answers")))
STDIO = (
    STDIO_FLOOR,
    STDIO_PORTICO,
    *STDIO_WITHOUT,
    STDIO_MODERN,
    STDIO_SCRIPT,
    STDIO_SDK,
    STDIO_TYPESCRIPT,
)

# Proxies. They and their upstream speak the legacy era, which is what the peers know, unless their
# names say otherwise; over HTTP each client has a session where the proxy has sessions.

UPSTREAM = (PYTHON, f"{SERVERS}/upstream_server.py", "{tools}")
UPSTREAM_HTTP = Contender(
    "the upstream itself",
    (PYTHON, "-m", "bench.servers.upstream_http", "{tools}", "{port}"),
    asked=Asked.LEGACY,
)
UPSTREAM_STDIO = Contender("the upstream itself", UPSTREAM, asked=Asked.LEGACY)

_WRAP = (*PORTICO, "wrap")
_FLOOR_PROXY = (PYTHON, "-m", "bench.servers.floor_proxy")
_FLOOR_PROXY_HTTP = (PYTHON, "-m", "bench.servers.floor_proxy_http")
_FASTMCP = (str(peers.FASTMCP.path), f"{SERVERS}/fastmcp_proxy.py")
_MCP_PROXY = (str(peers.MCP_PROXY.path), "--log-level", "WARNING")
_COMPRESSOR = (str(peers.COMPRESSOR.path), "--server-name", "bench")
_SUPERGATEWAY = (peers.node(), str(peers.SUPERGATEWAY.path), "--logLevel", "none")

PROXY_FLOOR = Contender("floor: asyncio + msgspec", (*_FLOOR_PROXY, *UPSTREAM), asked=Asked.LEGACY)
PROXY_FLOOR_CACHE = Contender(
    "floor: with a list cache", (*_FLOOR_PROXY, "--cache", *UPSTREAM), asked=Asked.LEGACY
)
WRAP = Contender("Portico, stored catalog", (*_WRAP, "--", *UPSTREAM), asked=Asked.LEGACY)
WRAP_COLD = Contender(
    "Portico, nothing stored", (*_WRAP, "--", *UPSTREAM), asked=Asked.LEGACY, cold=True
)
WRAP_URL = Contender("Portico, stored, to HTTP", (*_WRAP, "{url}"), asked=Asked.LEGACY)
PROXY_COMPRESSOR = Contender(
    "mcp-compressor (other lists)",
    (*_COMPRESSOR, "--", *UPSTREAM),
    asked=Asked.LEGACY,
    needs=(peers.COMPRESSOR.stamp,),
    invokes="bench_invoke_tool",
)
PROXY_MCP_PROXY = Contender(
    "mcp-proxy, to HTTP",
    (*_MCP_PROXY, "--transport", "streamablehttp", "{url}"),
    asked=Asked.LEGACY,
    needs=(peers.MCP_PROXY.stamp,),
)
PROXY_SUPERGATEWAY = Contender(
    "supergateway, to HTTP",
    (*_SUPERGATEWAY, "--streamableHttp", "{url}"),
    asked=Asked.LEGACY,
    needs=(peers.SUPERGATEWAY.stamp,),
)
PROXY_FASTMCP = Contender(
    "FastMCP, create_proxy",
    (*_FASTMCP, "0", *UPSTREAM),
    asked=Asked.LEGACY,
    needs=(peers.FASTMCP.stamp,),
)
PROXIES = (
    UPSTREAM_STDIO,
    PROXY_FLOOR,
    PROXY_FLOOR_CACHE,
    WRAP,
    WRAP_COLD,
    WRAP_URL,
    PROXY_COMPRESSOR,
    PROXY_SUPERGATEWAY,
    PROXY_MCP_PROXY,
    PROXY_FASTMCP,
)

_WRAP_HTTP = (*_WRAP, "--http", "127.0.0.1:{port}", "--auth", "none", "--", *UPSTREAM)
WEB_FLOOR = Contender(
    "floor: uvicorn + msgspec", (*_FLOOR_PROXY_HTTP, "{port}", *UPSTREAM), asked=Asked.LEGACY
)
WEB_FLOOR_CACHE = Contender(
    "floor: with a list cache",
    (*_FLOOR_PROXY_HTTP, "--cache", "{port}", *UPSTREAM),
    asked=Asked.LEGACY,
)
WEB_WRAP = Contender("Portico, session", _WRAP_HTTP, asked=Asked.SESSION)
WEB_WRAP_MODERN = Contender("Portico, modern era", _WRAP_HTTP)
WEB_COMPRESSOR = Contender(
    "mcp-compressor (other lists)",
    (*_COMPRESSOR, "--transport", "streamable-http", "--port", "{port}", "--", *UPSTREAM),
    asked=Asked.SESSION,
    needs=(peers.COMPRESSOR.stamp,),
    invokes="bench_invoke_tool",
)
WEB_SUPERGATEWAY = Contender(
    "supergateway, stateful",
    (
        *_SUPERGATEWAY,
        *("--stdio", " ".join(UPSTREAM), "--outputTransport", "streamableHttp", "--stateful"),
        *("--port", "{port}"),
    ),
    asked=Asked.SESSION,
    needs=(peers.SUPERGATEWAY.stamp,),
)
WEB_MCP_PROXY = Contender(
    "mcp-proxy",
    (*_MCP_PROXY, "--port", "{port}", "--", *UPSTREAM),
    asked=Asked.SESSION,
    needs=(peers.MCP_PROXY.stamp,),
)
WEB_FASTMCP = Contender(
    "FastMCP, create_proxy",
    (*_FASTMCP, "{port}", *UPSTREAM),
    asked=Asked.SESSION,
    needs=(peers.FASTMCP.stamp,),
)
WEB_PROXIES = (
    UPSTREAM_HTTP,
    WEB_FLOOR,
    WEB_FLOOR_CACHE,
    WEB_WRAP_MODERN,
    WEB_WRAP,
    WEB_COMPRESSOR,
    WEB_SUPERGATEWAY,
    WEB_MCP_PROXY,
    WEB_FASTMCP,
)
