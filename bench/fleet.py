"""`make bench-fleet`: what a user gains in front of real servers, installed from npm and PyPI.

The servers get made-up keys and no network: only their start and their lists are measured.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Self

from bench import headline, machine, report
from bench.contenders import PYTHON
from bench.machine import NODE
from bench.peers import FOLDER
from bench.process import Workspace
from bench.report import Section, Table
from bench.tokens import TOKENIZER, count
from bench.workload import INITIALIZED, ROOT, encode, initialize_request

HEADING = "Real servers"
PART = "fleet"
TOKENS = "Tokens before the first question"
START = "From the start to an answer, seconds"
WITHOUT, WITH = "without Portico", "with Portico"
ALL_LISTS = "without Portico: the last server's list"
FOUND = "with Portico, later starts: a search result"
_RUNS = 5
_KNOWN = "all-servers-are-known"
_QUERY = "search the issues of a repository"
_MODULES = FOLDER / "fleet" / "node_modules"
_OURS = ROOT / ".tools" / "node_modules"
KEYS = {
    "AIRTABLE_API_KEY": "pat.none",
    "BRAVE_API_KEY": "none",
    "EXA_API_KEY": "none",
    "FIGMA_API_KEY": "none",
    "FIRECRAWL_API_KEY": "fc-none",
    "GITHUB_PERSONAL_ACCESS_TOKEN": "none",
    "GITLAB_PERSONAL_ACCESS_TOKEN": "none",
    "NOTION_TOKEN": "ntn_none",
    "PRIVATE_APP_ACCESS_TOKEN": "pat-na1-00000000-0000-0000-0000-000000000000",
    "SENTRY_ACCESS_TOKEN": "none",
    "TAVILY_API_KEY": "tvly-none",
}


@dataclass(frozen=True)
class RealServer:
    """A server of others, at one version."""

    name: str
    package: str
    version: str
    program: str
    options: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """The command that runs it."""
        if not self.package:
            return (str(Path(PYTHON).with_name(self.program)), *self.options)
        modules = _MODULES if self.version else _OURS
        return (str(NODE), str(modules / self.package / self.program), *self.options)


SERVERS = (
    RealServer("airtable", "airtable-mcp-server", "1.14.0", "dist/main.js"),
    RealServer(
        "brave-search", "@modelcontextprotocol/server-brave-search", "0.6.2", "dist/index.js"
    ),
    RealServer(
        "chrome-devtools",
        "chrome-devtools-mcp",
        "1.11.0",
        "build/src/bin/chrome-devtools-mcp.js",
    ),
    RealServer("context7", "@upstash/context7-mcp", "4.1.1", "dist/index.js"),
    RealServer("eslint", "@eslint/mcp", "0.3.13", "src/mcp-cli.js"),
    RealServer("exa", "exa-mcp-server", "3.4.1", "dist/stdio.cjs"),
    RealServer("figma", "figma-developer-mcp", "0.13.2", "dist/bin.js", ("--stdio",)),
    RealServer("firecrawl", "firecrawl-mcp", "3.22.2", "dist/index.js"),
    RealServer("github", "@modelcontextprotocol/server-github", "2025.4.8", "dist/index.js"),
    RealServer("gitlab", "@modelcontextprotocol/server-gitlab", "2025.4.25", "dist/index.js"),
    RealServer("hubspot", "@hubspot/mcp-server", "0.4.0", "dist/index.js"),
    RealServer("kubernetes", "mcp-server-kubernetes", "4.1.7", "dist/index.js"),
    RealServer("notion", "@notionhq/notion-mcp-server", "2.5.2", "bin/cli.mjs"),
    RealServer("playwright", "@playwright/mcp", "0.0.83", "cli.js"),
    RealServer("sentry", "@sentry/mcp-server", "0.36.0", "dist/index.js"),
    RealServer("tavily", "tavily-mcp", "0.2.22", "build/index.js"),
    RealServer("everything", "@modelcontextprotocol/server-everything", "", "dist/index.js"),
    RealServer(
        "filesystem", "@modelcontextprotocol/server-filesystem", "", "dist/index.js", ("/tmp",)
    ),
    RealServer("memory", "@modelcontextprotocol/server-memory", "", "dist/index.js"),
    RealServer("git", "", "", "mcp-server-git"),
    RealServer("time", "", "", "mcp-server-time"),
)


class Talk:
    """One server over pipes, as the simplest client has it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._id = 0

    @classmethod
    async def start(cls, argv: Sequence[str], **variables: str) -> Self:
        """Spawn it."""
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **KEYS, **variables},
            cwd=ROOT,
            limit=64 * 1024 * 1024,
            start_new_session=True,
        )
        return cls(process)

    async def request(self, method: str, params: Any = None) -> dict[str, Any]:
        """The result of one request."""
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params or {}}
        return await self._exchange(encode(message))

    async def open(self) -> tuple[str, list[dict[str, Any]]]:
        """The instructions and all tools, after the handshake."""
        opened = await self._exchange(initialize_request(0), 0)
        self._send(INITIALIZED)
        tools: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            page = await self.request("tools/list", cursor)
            tools += page["tools"]
            if not page.get("nextCursor"):
                return opened.get("instructions", ""), tools
            cursor = {"cursor": page["nextCursor"]}

    async def stop(self) -> None:
        """End it as a client does: close its input, then insist."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 10)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def _exchange(self, message: bytes, id: int | None = None) -> dict[str, Any]:
        self._send(message)
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            answer = json.loads(line) if line.startswith(b"{") else {}
            if answer.get("id") == (self._id if id is None else id) and "method" not in answer:
                result: dict[str, Any] = answer["result"]
                return result
        raise RuntimeError(f"the server ended: exit code {await self._process.wait()}")

    def _send(self, message: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(message + b"\n")


@dataclass(frozen=True)
class Direct:
    """All servers, each started by the client itself."""

    seconds: float
    tools: list[list[dict[str, Any]]]


async def without() -> Direct:
    """Start all of them at once, up to the last list."""
    started = time.perf_counter()
    talks = await asyncio.gather(*(Talk.start(server.argv) for server in SERVERS))
    opened = await asyncio.gather(*(talk.open() for talk in talks))
    seconds = time.perf_counter() - started
    await asyncio.gather(*(talk.stop() for talk in talks))
    return Direct(seconds, [tools for _, tools in opened])


@dataclass(frozen=True)
class Served:
    """The same behind one gateway."""

    listed_s: float
    found_s: float
    instructions: str
    tools: list[dict[str, Any]]


async def through(workspace: Workspace, config: Path) -> Served:
    """Start the gateway as a client does, up to the first search result."""
    argv = (PYTHON, "-m", "portico", "serve", "--config", str(config))
    started = time.perf_counter()
    talk = await Talk.start(argv, PORTICO_HOME=str(workspace.home))
    instructions, tools = await talk.open()
    listed_s = time.perf_counter() - started
    search = {"name": "search_tools", "arguments": {"query": _QUERY}}
    found = json.dumps(await talk.request("tools/call", search))
    found_s = time.perf_counter() - started
    if workspace.home.joinpath(_KNOWN).exists() and "github__search_issues" not in found:
        raise RuntimeError(f"the search did not find the tool: {found}"[:300])
    await _wait_until_all_are_known(talk)
    await talk.stop()
    workspace.home.joinpath(_KNOWN).touch()
    return Served(listed_s, found_s, instructions, tools)


async def _wait_until_all_are_known(talk: Talk) -> None:
    """Let the gateway fetch and store every list before it ends."""
    for _ in range(600):
        call = {"name": "gateway_status", "arguments": {"detail": "full"}}
        status = await talk.request("tools/call", call)
        servers = status["structuredContent"]["servers"]
        if all(server["tools"] for server in servers):
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"some servers did not start: {status}"[:2000])


def install() -> None:
    """Install the npm packages at their versions, once."""
    wanted = {one.package: one.version for one in SERVERS if one.version}
    package = encode({"private": True, "dependencies": wanted})
    file = _MODULES.with_name("package.json")
    if file.exists() and file.read_bytes() == package:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    quiet = ("--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts")
    waiting = file.with_suffix(".new")
    waiting.write_bytes(package)
    words = [f"{name}@{version}" for name, version in wanted.items()]
    command = ["npm", "install", "--prefix", str(file.parent), "--no-save", *quiet, *words]
    subprocess.run(command, check=True, timeout=900)
    waiting.rename(file)


async def measure() -> Section:
    """Both ways, several times, each after the other."""
    with Workspace() as workspace:
        config = workspace.path / "mcp.json"
        entries = {
            one.name: {"command": one.argv[0], "args": one.argv[1:], "env": KEYS} for one in SERVERS
        }
        config.write_bytes(encode({"mcpServers": entries}))
        first = await through(workspace, config)
        direct, served = [], []
        for _ in range(_RUNS):
            direct.append(await without())
            served.append(await through(workspace, config))
    return _section(first, direct, served)


def _section(first: Served, direct: Sequence[Direct], served: Sequence[Served]) -> Section:
    tools = [tool for listed in direct[-1].tools for tool in listed]
    meta = encode(served[-1].tools).decode()
    everything, read, told = count([encode(tools).decode(), meta, served[-1].instructions])
    tokens = Table(
        TOKENS,
        ("", "servers", "tools", "definitions", "instructions"),
        [
            (WITHOUT, f"{len(SERVERS)}", f"{len(tools)}", f"{everything:,}", "-"),
            (WITH, "1", f"{len(served[-1].tools)}", f"{read:,}", f"{told:,}"),
        ],
    )
    alone = [one.seconds for one in direct]
    listed = [one.listed_s for one in served]
    found = [one.found_s for one in served]
    start = Table(
        START,
        ("", "median", "best", "worst"),
        [
            (ALL_LISTS, *_spread(alone)),
            ("with Portico, the very first start: the list", *_spread([first.listed_s])),
            ("with Portico, later starts: the list", *_spread(listed)),
            (FOUND, *_spread(found)),
        ],
    )
    names = ", ".join(f"{one.name} {one.version}".strip() for one in SERVERS)
    notes = [
        f"The servers: {names}.",
        "Without Portico, a client starts all servers at once and waits for the last list. With "
        "it, the client starts `portico serve`; the servers start behind it.",
        f"{_RUNS} runs of each, one after the other; definitions in compact JSON, counted with "
        "gpt-tokenizer, o200k_base.",
    ]
    return Section([tokens, start], [], notes)


def _spread(seconds: Sequence[float]) -> tuple[str, str, str]:
    return f"{median(seconds):.2f}", f"{min(seconds):.2f}", f"{max(seconds):.2f}"


def main() -> int:
    """Print, and keep in the docs."""
    for needed in (NODE, TOKENIZER):
        if not needed.exists():
            print(f"not there: {needed} (`make setup` installs the tools)")
            return 1
    install()
    facts = machine.facts()
    text = f"{facts}\n\n{asyncio.run(measure()).markdown()}"
    print(f"## {HEADING}\n\n{text}")
    report.keep(PART, HEADING, text)
    headline.redraw()
    return 0


if __name__ == "__main__":
    sys.exit(main())
