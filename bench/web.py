"""The driver over HTTP: a checked first request, then wrk."""

import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from bench import workload
from bench.contenders import Asked, Contender
from bench.process import Process, Workspace
from bench.workload import WrongAnswer

_SCRIPT = Path(__file__).with_name("wrk.lua")
_START_S = 60.0

ID = 100
"""The id of requests that are sent one at a time; wrk.lua puts others in its place."""


@dataclass(frozen=True)
class Post:
    """A request as it goes over the wire, but for its Host."""

    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Load:
    """The outcome of one run of wrk."""

    requests: int
    seconds: float
    cpu_us: float
    """Of the contender, a request."""


class WebServer:
    """A contender that listens, with its list and its call checked."""

    def __init__(self, contender: Contender, workspace: Workspace, tools: int) -> None:
        self.contender = contender
        self._tools = tools
        self._workspace = workspace
        self.port = _free_port()
        command = contender.command(workspace.tools(tools), self.port)
        self.process = Process(command, workspace, tools)
        self._session: str | None = None
        self._sizes: dict[bytes, int] = {}
        self.latency_s = 0.0

    def open(self) -> None:
        """Wait until it listens, shake hands where it has sessions, and check its list."""
        self.wait()
        if self.contender.asked is Asked.SESSION:
            self._initialize()
        started = time.monotonic()
        answer = self.ask(self.list_post())
        self.latency_s = time.monotonic() - started
        workload.check_list(answer, ID, workload.tools(self._tools))

    def wait(self) -> None:
        """Wait until it listens."""
        deadline = time.monotonic() + _START_S
        while not _listens(self.port):
            if self.process.popen.poll() is not None or time.monotonic() > deadline:
                raise WrongAnswer(f"it did not start: {self.process.complaint()}")
            time.sleep(0.02)

    def check_call(self) -> None:
        """Call the echo once and look at the answer."""
        workload.check_call(self.ask(self.call_post()), ID)

    def list_post(self) -> Post:
        """A request for the tools."""
        modern = self.contender.asked is Asked.MODERN
        return Post(
            self._headers({"Mcp-Method": "tools/list"}), workload.list_request(ID, modern=modern)
        )

    def call_post(self) -> Post:
        """A call of the echo tool."""
        modern = self.contender.asked is Asked.MODERN
        routing = {"Mcp-Method": "tools/call", "Mcp-Name": "echo"}
        return Post(self._headers(routing), workload.call_request(ID, modern=modern))

    def ask(self, post: Post) -> bytes:
        """One answer, which must be a plain 200."""
        status, _, body = self._send(post)
        if status != 200:
            raise WrongAnswer(f"HTTP {status}: {body[:200]!r}")
        self._sizes[post.body] = len(body)
        event = re.search(rb"^data: ({.*})\r?$", body, re.MULTILINE)
        return event[1] if event else body

    def load(
        self, post: Post, seconds: int, connections: int, sessions: Sequence[str] = ()
    ) -> Load:
        """Let wrk send one request over and over, in these sessions in turn if there are any;
        anything but good answers is an error."""
        environment = {
            **os.environ,
            "BENCH_BODY": post.body.decode(),
            "BENCH_HEADERS": "\n".join(f"{name}: {value}" for name, value in post.headers.items()),
            "BENCH_SESSIONS": "\n".join(sessions),
        }
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "60s"]
        command += ["-s", str(_SCRIPT), f"http://127.0.0.1:{self.port}/mcp"]
        before = self.process.cpu_s()
        run = subprocess.run(command, env=environment, capture_output=True, check=True)
        cpu_s = self.process.cpu_s() - before
        outcome = json.loads(run.stdout.strip().rpartition(b"\n")[2])
        requests = int(outcome["requests"])
        errors = [f"{count} {kind}" for kind, count in outcome["errors"].items() if count]
        if errors or not requests:
            raise WrongAnswer(f"{', '.join(errors) or 'no'} errors in {requests} requests")
        self._check_sizes(post, outcome["bytes"], requests, connections)
        return Load(requests, outcome["duration_us"] / 1e6, cpu_s / requests * 1e6)

    def _check_sizes(self, post: Post, received: int, requests: int, connections: int) -> None:
        # wrk compares no bodies, but every answer is the one we checked, so their sizes add up:
        # that much and a header each, and at most one more a connection that was cut short.
        size = self._sizes[post.body]
        if not size * requests <= received <= (size + 1000) * (requests + connections):
            raise WrongAnswer(f"{received} bytes in {requests} answers of {size}")

    def _headers(self, routing: dict[str, str]) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        if self.contender.asked is Asked.MODERN:
            headers |= {"MCP-Protocol-Version": workload.MODERN, **routing}
        else:
            headers["MCP-Protocol-Version"] = workload.LEGACY
        if self._session is not None:
            headers["Mcp-Session-Id"] = self._session
        if self.contender.token:
            headers["Authorization"] = f"Bearer {_token(self._workspace)}"
        return headers

    def _initialize(self) -> None:
        opening = Post(self._headers({}), workload.initialize_request(0))
        del opening.headers["MCP-Protocol-Version"]
        status, session, body = self._send(opening)
        if status != 200 or session is None:
            raise WrongAnswer(f"initialize: HTTP {status}: {body[:200]!r}")
        self._session = session
        status, _, body = self._send(Post(self._headers({}), workload.INITIALIZED))
        if status != 202:
            raise WrongAnswer(f"initialized: HTTP {status}: {body[:200]!r}")

    def _send(self, post: Post) -> tuple[int, str | None, bytes]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=_START_S)
        try:
            connection.request("POST", "/mcp", post.body, post.headers)
            response = connection.getresponse()
            return response.status, response.getheader("Mcp-Session-Id"), response.read()
        except (OSError, HTTPException) as error:
            raise WrongAnswer(f"{error!r}; {self.process.complaint()}") from None
        finally:
            connection.close()


def _token(workspace: Workspace) -> str:
    """The token that Portico made for itself: the one small file of its state."""
    for file in sorted(workspace.home.rglob("token")):
        return file.read_text(encoding="utf-8").strip()
    raise WrongAnswer(f"no token under {workspace.home}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
