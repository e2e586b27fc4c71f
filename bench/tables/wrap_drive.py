"""Proxies, driven like servers, with what their upstream costs left out."""

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from bench import workload
from bench.contenders import AGENT, COMPONENT, UPSTREAM, UPSTREAM_HTTP, Asked, Contender
from bench.pipe import MakeRequest, PipeServer, Started
from bench.process import Memory, Process, Workspace
from bench.web import ID, Load, Post, WebServer
from bench.workload import TEXT, WrongAnswer

BIG = 10_000_000
"""Bytes of text in a large result."""
_UPSTREAM_SCRIPT = UPSTREAM[1].encode()
_COMPONENT, _AGENT = COMPONENT.encode(), AGENT.encode()


class OwnProcess(Process):
    """A running proxy: everything it started is its own, but not the upstream."""

    def __init__(self, running: Process) -> None:
        self.__dict__ |= running.__dict__

    def memory(self) -> Memory:
        """As `Process` has it; of one that has ended there is none."""
        try:
            return super().memory()
        except OSError:
            raise WrongAnswer(f"it ended: {self.complaint()}") from None

    def upstreams(self) -> int:
        """How many upstreams it runs."""
        return sum(_is_upstream(_argv(pid)) for pid in super()._tree()[1:])

    def _tree(self) -> list[int]:
        first, *others = super()._tree()
        living = ((pid, _argv(pid)) for pid in others)
        return [first, *(pid for pid, argv in living if argv[1:2] and not _is_upstream(argv))]


def _is_upstream(argv: list[bytes]) -> bool:
    """True for the upstream, for a component in its own process, and for an agent."""
    if any(part.endswith(_AGENT) for part in argv):
        return True
    return argv[1:2] == [_UPSTREAM_SCRIPT] or b"".join(argv[-2:]).endswith(_COMPONENT)


def _argv(pid: int) -> list[bytes]:
    """Its command line, with an empty end; nothing at all of one that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


@dataclass(frozen=True)
class Timed:
    """The outcome of requests sent one at a time."""

    cpu_us: float
    p50_us: float
    p99_us: float


class ProxyPipe(PipeServer):
    """A proxy on a pair of pipes."""

    process: OwnProcess

    def __init__(self, contender: Contender, workspace: Workspace, tools: int = 50) -> None:
        if contender.cold:
            shutil.rmtree(workspace.home, ignore_errors=True)
        super().__init__(contender, workspace, tools)
        self.process = OwnProcess(self.process)
        self.changes_lists = False

    def open(self) -> Started:
        """Shake hands, ask for the list, and take the time."""
        self._reply(workload.initialize_request(0))
        self._write(workload.INITIALIZED + b"\n")
        id = self._new_id()
        answer = self._reply(self.list_request(id))
        wall = time.perf_counter() - self._spawned
        started = Started(wall, self.process.cpu_s())
        self.changes_lists = not faithful(answer, id, self._tools, self.contender)
        return started

    def check_call(self) -> None:
        """Call the echo once and look at the answer."""
        id = self._new_id()
        workload.check_call(self._reply(self.call_request(id)), id)

    def call_request(self, id: int) -> bytes:
        """A call of the echo tool, the way this proxy has it called."""
        return call_request(id, self.contender)

    def timed(self, make: MakeRequest, count: int) -> Timed:
        """Ask so often, one at a time."""
        requests = [make(self._new_id()) for _ in range(count)]
        times = []
        before = self.process.cpu_s()
        for request in requests:
            started = time.perf_counter()
            self._reply(request)
            times.append((time.perf_counter() - started) * 1e6)
        cpu_us = (self.process.cpu_s() - before) / count * 1e6
        cuts = quantiles(times, n=100, method="inclusive")
        return Timed(cpu_us, cuts[49], cuts[98])

    def big(self) -> tuple[float, float]:
        """Seconds and CPU seconds for one large result."""
        request = call_request(self._new_id(), self.contender, -(-BIG // len(TEXT)))
        before, started = self.process.cpu_s(), time.perf_counter()
        answer = self._reply(request)
        seconds, cpu_s = time.perf_counter() - started, self.process.cpu_s() - before
        if len(answer) < BIG:
            raise WrongAnswer(f"{len(answer):,} bytes instead of {BIG:,}: {answer[:200]!r}")
        return seconds, cpu_s

    def affordable(self, make: MakeRequest, wanted: int, seconds: float) -> int:
        """How many requests fit into the time, at most those wanted; it warms up too."""
        started = time.perf_counter()
        self.load(make, 10)
        each = (time.perf_counter() - started) / 10
        return max(10, min(wanted, int(seconds / each)))

    def _new_id(self) -> int:
        self._next += 1
        return self._next - 1

    def _reply(self, request: bytes) -> bytes:
        """Read one line; no other request is pending, so it must be the answer."""
        self._write(request + b"\n")
        parts = [self._read()]
        while not parts[-1].endswith(b"\n"):
            parts.append(self._read())
        return b"".join(parts)


class ProxyWeb(WebServer):
    """A proxy that listens."""

    process: OwnProcess

    def __init__(self, contender: Contender, workspace: Workspace, tools: int = 50) -> None:
        super().__init__(contender, workspace, tools)
        self.process = OwnProcess(self.process)

    def open(self) -> None:
        """Wait until it listens and check its list, which it may have changed."""
        try:
            super().open()
        except WrongAnswer:
            sessionless = self.contender.asked is Asked.SESSION and self._session is None
            if sessionless or self.process.popen.poll() is not None:
                raise
            faithful(self.ask(self.list_post()), ID, self._tools, self.contender)

    def call_post(self) -> Post:
        """A call of the echo tool, the way this proxy has it called."""
        if self.contender.asked is Asked.MODERN:
            return super().call_post()
        return Post(self._headers({}), call_request(ID, self.contender))

    def join(self) -> Post:
        """The call of one more client, with a session of its own where there are sessions."""
        if self.contender.asked is Asked.SESSION:
            self._session = None
            self._initialize()
        return self.call_post()

    def load(
        self, post: Post, seconds: int, connections: int, sessions: Sequence[str] = ()
    ) -> Load:
        """As in `WebServer`; wrk fails if the port is closed."""
        try:
            return super().load(post, seconds, connections, sessions)
        except subprocess.CalledProcessError:
            raise WrongAnswer(f"it ended: {self.process.complaint()}") from None

    def size(self, post: Post) -> int:
        """Bytes of the answer to this request."""
        return self._sizes[post.body]


def call_request(id: int, contender: Contender, repeat: int = 1) -> bytes:
    """A call of the echo, through the tool for calling tools where a proxy has one."""
    arguments: dict[str, object] = {"text": TEXT} | ({"repeat": repeat} if repeat > 1 else {})
    params: dict[str, object] = {"name": "echo", "arguments": arguments}
    if contender.invokes is not None:
        params = {
            "name": contender.invokes,
            "arguments": {"tool_name": "echo", "tool_input": arguments},
        }
    return workload.encode({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})


def faithful(answer: bytes, id: int, count: int, contender: Contender) -> bool:
    """Whether the list is the upstream's to the letter; at least its tools must be there."""
    expected = workload.tools(count)
    try:
        workload.check_list(answer, id, expected)
    except WrongAnswer:
        try:
            shown = [tool["name"] for tool in json.loads(answer)["result"]["tools"]]
        except (ValueError, LookupError):
            raise WrongAnswer(f"no list: {answer[:200]!r}") from None
        if contender.invokes is None and shown != [tool["name"] for tool in expected]:
            raise
        return False
    return True


@contextlib.contextmanager
def upstream_url(workspace: Workspace) -> Iterator[str]:
    """The upstream over HTTP, for proxies that need one."""
    server = WebServer(UPSTREAM_HTTP, workspace, 50)
    with server.process:
        server.open()
        yield f"http://127.0.0.1:{server.port}/mcp"


def present(
    contenders: tuple[Contender, ...], notes: list[str], url: str = ""
) -> Iterator[Contender]:
    """The installed peers in front of this URL; the others become notes."""
    for contender in contenders:
        if (missing := contender.missing()) is None:
            yield contender.at(url)
        else:
            note(notes, missing)


def note(notes: list[str], line: str) -> None:
    """Say it once."""
    if line not in notes:
        notes.append(line)


def started_web(
    contenders: tuple[Contender, ...],
    workspace: Workspace,
    tools: int,
    stack: ExitStack,
    notes: list[str],
) -> list[ProxyWeb]:
    """The contenders that start and answer correctly; the others become notes."""
    servers = []
    for contender in present(contenders, notes):
        server = ProxyWeb(contender, workspace, tools)
        stack.enter_context(server.process)
        try:
            server.open()
            server.check_call()
        except WrongAnswer as wrong:
            note(notes, f"{contender.name} over HTTP left out: {wrong}")
        else:
            servers.append(server)
    return servers
