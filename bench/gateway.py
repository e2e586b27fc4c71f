"""The gateway as it is measured: `portico serve` in front of servers with real tools."""

import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from bench import workload
from bench.contenders import PYTHON, UPSTREAM, Asked, Contender
from bench.pipe import UNASKED
from bench.process import Workspace
from bench.tables.wrap_drive import ProxyPipe, ProxyWeb
from bench.web import ID, Post
from bench.workload import CATALOG, ROOT, TEXT, WrongAnswer, encode, tool_request

SERVERS, TOOLS = 20, 6000
BUDGET = "[gateway]\nsync_budget_s = 45\n"
EXECUTE, SEARCH = "execute_tool", "search_tools"
_ECHO = workload.tools(1)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

Tools = Sequence[Mapping[str, Any]]


@cache
def corpus() -> dict[str, list[dict[str, Any]]]:
    """Real definitions by the name of their server, the largest servers first."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    with CATALOG.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            server = re.sub(r"[^a-z0-9-]+", "-", row["server"].lower().removeprefix("tf-"))
            tool = {key: row[key] for key in ("name", "description", "inputSchema")}
            if row["name"] != "echo":  # ours is put beside them
                found.setdefault(server.strip("-0123456789"), {})[row["name"]] = tool
    return {
        server: list(tools.values())
        for server, tools in sorted(found.items(), key=lambda item: -len(item[1]))
    }


def spread(count: int, servers: int) -> dict[str, list[dict[str, Any]]]:
    """Distribute real tools over servers, always alike; each is named after its largest."""
    slots: list[tuple[str, list[dict[str, Any]]]] = []
    for name, tools in corpus().items():
        if len(slots) < servers:
            slots.append((name[:24].rpartition("-")[0] or name, list(tools)))
        else:
            smallest = min(slots, key=lambda slot: len(slot[1]))
            there = {tool["name"] for tool in smallest[1]}
            smallest[1].extend(_renamed(tool, there, name) for tool in tools)
    share, more = divmod(count, servers)
    return {name: tools[: share + (place < more)] for place, (name, tools) in enumerate(slots)}


def _renamed(tool: dict[str, Any], there: set[str], server: str) -> dict[str, Any]:
    """The same tool under a name that is free beside those of other servers."""
    return {**tool, "name": f"{tool['name']}_{server}"} if tool["name"] in there else tool


def with_echo(servers: Mapping[str, Tools]) -> dict[str, Tools]:
    """The same, but the last tool of each gives way to an echo, which can be called."""
    return {name: [*_ECHO, *tools[:-1]] for name, tools in servers.items()}


def words(name: str) -> str:
    """The words of a tool's name, as one would search for it."""
    return " ".join(_WORDS.findall(name)).lower()


class Fleet:
    """Servers behind one config file, in their own workspace."""

    def __init__(
        self,
        workspace: Workspace,
        servers: Mapping[str, Tools],
        delays_s: Mapping[str, float] | None = None,
    ) -> None:
        """`delays_s`: how long each server takes to return its list."""
        self.workspace = workspace
        self.names = list(servers)
        self._root = workspace.path / "root"
        self._root.symlink_to(ROOT)
        self._config = workspace.path / "portico.toml"
        entries = []
        for name, tools in servers.items():
            file = self._file(name)
            file.write_bytes(encode({"tools": list(tools)}))
            arguments = [UPSTREAM[1], str(file)]
            if delays_s is not None:
                arguments.append(str(delays_s[name]))
            entries.append(_entry(name, arguments, self._root))
        self._config.write_text("\n".join(entries), encoding="utf-8")
        self._budgeted = workspace.path / "budgeted.toml"
        self._budgeted.write_text("\n".join((BUDGET, *entries)), encoding="utf-8")

    def contender(self, name: str, *options: str, asked: Asked = Asked.LEGACY) -> Contender:
        """`portico serve` over stdio: the gateway itself, without a window before it."""
        return self.window(name, "--alone", *options, asked=asked)

    def window(self, name: str, *options: str, asked: Asked = Asked.LEGACY) -> Contender:
        """The same as clients start it."""
        return self.program(name, (PYTHON, "-m", "portico", "serve"), *options, asked=asked)

    def program(
        self,
        name: str,
        argv: Sequence[str],
        *options: str,
        asked: Asked = Asked.LEGACY,
        budgeted: bool = False,
    ) -> Contender:
        """The same, when this program takes the words of `portico serve`; `budgeted` if calls
        become tasks after a time."""
        config = self._budgeted if budgeted else self._config
        serve = (*argv, "--config", str(config), *options)
        return Contender(name, serve, asked=asked, invokes=EXECUTE)

    def web_contender(self, name: str, asked: Asked) -> Contender:
        """`portico serve` over HTTP."""
        found = self.contender(name, "--http", "127.0.0.1:{port}", "--auth", "none")
        return replace(found, asked=asked)

    def fill(self) -> None:
        """A first real run, after which the store knows all tools; no search was made."""
        server = GatewayPipe(self.contender("fill"), self)
        with server.process:
            server.open()
            server.use("refresh_tools")
            shown = server.use("gateway_status")["structuredContent"]["gateway"]["tools"]
        expected = sum(len(self.tools(name)) for name in self.names)
        if shown != expected:
            raise WrongAnswer(f"the gateway knows {shown} tools of {expected}")

    @contextmanager
    def down(self) -> Iterator[None]:
        """For so long no server can start: their working directory is not there."""
        self._root.unlink()
        try:
            yield
        finally:
            self._root.symlink_to(ROOT)

    def remember(self, name: str) -> None:
        """Put aside what Portico keeps now."""
        shutil.copytree(self.workspace.home, self.workspace.path / name, ignore=_sockets)

    def recall(self, name: str | None) -> None:
        """Have Portico find what was put aside; None for nothing at all."""
        shutil.rmtree(self.workspace.home, ignore_errors=True)
        if name is not None:
            shutil.copytree(self.workspace.path / name, self.workspace.home)

    def tools(self, name: str) -> Tools:
        """The tools of one server."""
        found: Tools = json.loads(self._file(name).read_bytes())["tools"]
        return found

    def _file(self, name: str) -> Path:
        return self.workspace.path / f"{name}.json"


def _entry(name: str, arguments: list[str], cwd: Path) -> str:
    lines = (f"[servers.{name}]", f"command = {json.dumps(PYTHON)}")
    return "\n".join((*lines, f"args = {json.dumps(arguments)}", f"cwd = {json.dumps(str(cwd))}\n"))


def _sockets(folder: str, names: list[str]) -> list[str]:
    there = (Path(folder, name) for name in names)
    return [path.name for path in there if not (path.is_file() or path.is_dir())]


class GatewayPipe(ProxyPipe):
    """A gateway on a pair of pipes; its calls are of one server's echo, by default the first's."""

    def __init__(self, contender: Contender, fleet: Fleet, server: str | None = None) -> None:
        super().__init__(contender, fleet.workspace)
        self._echo = f"{server or fleet.names[0]}__echo"

    def call_request(self, id: int) -> bytes:
        """A call through `execute_tool`."""
        return tool_request(id, EXECUTE, {"name": self._echo, "arguments": {"text": TEXT}})

    def prefixed_request(self, id: int) -> bytes:
        """A call under the tool's own name."""
        return tool_request(id, self._echo, {"text": TEXT})

    def offered(self) -> tuple[list[dict[str, Any]], str]:
        """All tools that are listed, and the instructions that come before them."""
        opened = json.loads(self._reply(workload.initialize_request(0)))
        self._write(workload.INITIALIZED + b"\n")
        listed = json.loads(self._reply(self.list_request(self._new_id())))
        return listed["result"]["tools"], opened["result"].get("instructions", "")

    def use(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The result of a tool, which must be a good one."""
        answer = json.loads(self._reply(tool_request(self._new_id(), tool, arguments)))
        result: dict[str, Any] = answer.get("result") or {}
        if not result or result.get("isError"):
            raise WrongAnswer(f"{tool}: {answer}"[:300])
        return result

    def seconds(self, tool: str, **arguments: Any) -> float:
        """How long one of the gateway's own tools takes."""
        started = time.perf_counter()
        self.use(tool, **arguments)
        return time.perf_counter() - started

    def start(self) -> tuple[float, float]:
        """As `open`; seconds, and CPU seconds of the gateway's own process, up to the list."""
        started = self.open()
        return started.wall_s, self.own_cpu_s()

    def own_cpu_s(self) -> float:
        """CPU seconds of the gateway's process alone: those around it come and go at the start."""
        return time.clock_gettime((~self.process.popen.pid << 3) | 2)

    def own_rss(self, field: str = "VmRSS") -> int:
        """Resident bytes of the gateway's process alone; `VmHWM` for the most it ever had."""
        status = Path(f"/proc/{self.process.popen.pid}/status").read_text(encoding="utf-8")
        found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
        return int(found[1]) * 1024 if found else 0

    def _reply(self, request: bytes) -> bytes:
        """Return the answer; skip notifications."""
        self._write(request + b"\n")
        rest = b""
        while True:
            *lines, rest = (rest + self._read()).split(b"\n")
            for line in lines:
                if not line.startswith(UNASKED):
                    return line


class GatewayWeb(ProxyWeb):
    """A gateway that listens."""

    def __init__(self, contender: Contender, fleet: Fleet, *, prefixed: bool = False) -> None:
        super().__init__(contender, fleet.workspace)
        echo, arguments = f"{fleet.names[0]}__echo", {"text": TEXT}
        self._called = echo if prefixed else EXECUTE
        self._arguments: dict[str, Any] = (
            arguments if prefixed else {"name": echo, "arguments": arguments}
        )

    def call_post(self) -> Post:
        """A call of the first server's echo."""
        modern = self.contender.asked is Asked.MODERN
        routing = {"Mcp-Method": "tools/call", "Mcp-Name": self._called}
        body = tool_request(ID, self._called, self._arguments, modern=modern)
        return Post(self._headers(routing), body)
