"""Real `portico run` processes for tests: over stdio and over HTTP."""

import contextlib
import http.client
import json
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.oracle import MODERN, WireOracle
from tests.support.shared import ROOT

EVERYTHING = ROOT / "examples" / "everything.py"
FEATURES = ROOT / "tests" / "interop" / "servers" / "features.py"
PLAIN = ("-m", "portico")
"""Runs a command of Portico."""
LINKED, HIDING, REDACTING, APPROVING = [
    (str(ROOT / "tests" / "rigs" / "linked.py"), link)
    for link in ("noop", "hiding", "redacts", "approves")
]
"""Run one behind a link that passes everything on, hides what is not called open, redacts, or asks
for approval."""
WAIT_S = 60.0
"""How long anything may take before it counts as a hang; a busy machine is slow, not hung."""


def portico_run(component: Path, *options: str, by: Sequence[str] = PLAIN) -> list[str]:
    """The command line that serves a component; `by` is what runs it."""
    return [sys.executable, *by, "run", str(component), *options]


def teed(recording: Path, command: list[str]) -> list[str]:
    """The same command with both ways of its conversation written to a file."""
    tee = ROOT / "tests" / "support" / "tee.py"
    return [sys.executable, "-I", "-S", str(tee), str(recording), *command]


def held(recording: Path) -> WireOracle:
    """An oracle that has checked a recorded conversation."""
    oracle = WireOracle()
    for line in recording.read_bytes().splitlines():
        if line.startswith(b">"):
            oracle.client_sent(line[1:])
        else:
            oracle.server_sent(line[1:])
    return oracle


def free_port() -> int:
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class Child:
    """A process whose stderr is kept, and that ends with the test."""

    def __init__(self, command: list[str], pipes: int | None = None, cwd: Path = ROOT) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed when the child has ended)
        self._said = ""
        self.process = subprocess.Popen(
            command, cwd=cwd, stdin=pipes, stdout=pipes, stderr=self._errors
        )

    def stderr(self) -> str:
        """All it has said so far."""
        if not self._errors.closed:
            self._errors.seek(0)
            self._said = self._errors.read().decode(errors="replace")
        return self._said

    def stop(self) -> int:
        """Ask it to end, and wait for that; its exit code."""
        self.process.terminate()
        return self.ended()

    def ended(self) -> int:
        """Wait for its end, and insist if it does not come; its exit code."""
        try:
            return self.process.wait(WAIT_S)
        finally:
            self.process.kill()
            self.process.wait()
            self.stderr()
            self._errors.close()

    def rss_kib(self) -> int:
        """Its resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])


class HttpServer(Child):
    """A component served over HTTP on a port of its own."""

    def __init__(self, component: Path, *options: str, by: Sequence[str] = PLAIN) -> None:
        self.port = free_port()
        address = ("--http", f"127.0.0.1:{self.port}", "--auth", "none")
        super().__init__(portico_run(component, *address, *options, by=by))
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """Where it speaks MCP."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def connection(self) -> http.client.HTTPConnection:
        """A plain connection to it, to send what no client would."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"it ended at once:\n{self.stderr()}")
            with contextlib.suppress(OSError):
                connection = self.connection()
                connection.request("GET", "/healthz")
                status = connection.getresponse().status
                connection.close()
                if status == 200:
                    return
            time.sleep(0.02)
        raise RuntimeError(f"it did not get ready within {WAIT_S} s:\n{self.stderr()}")


@contextlib.contextmanager
def http_server(component: Path, *options: str, by: Sequence[str] = PLAIN) -> Iterator[HttpServer]:
    """A component over HTTP for as long as the block runs."""
    server = HttpServer(component, *options, by=by)
    try:
        yield server
    finally:
        server.stop()


class Piped(Child):
    """A command on a pair of pipes, for tests that speak JSON-RPC themselves.

    An oracle checks all its output, so every test that uses it checks the wire as well.
    """

    def __init__(self, command: list[str], *, watched: bool = True) -> None:
        """`watched=False` disables the oracle, which cannot follow two requests with one id."""
        super().__init__(command, subprocess.PIPE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout
        self.oracle = WireOracle()
        self.watched = watched
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._aside: list[dict[str, Any]] = []
        self._ids = 0
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def close_input(self) -> None:
        """Leave, as a client does that closes its pipe."""
        self._in.close()

    def __exit__(self, *_: object) -> None:
        self.close_input()
        try:
            self.ended()
        finally:
            self._out.close()

    def write(self, data: bytes) -> None:
        """Send bytes unchanged; the oracle gets each line."""
        if self.watched:
            for line in data.split(b"\n"):
                self.oracle.client_sent(line)
        self._in.write(data)
        self._in.flush()

    def send(self, message: Any) -> None:
        """Send one message on a line."""
        self.write(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """The next message it wrote."""
        line = self._lines.get(timeout=WAIT_S)
        if line is None:
            raise EOFError(f"it has closed its output:\n{self.stderr()}")
        if self.watched:
            self.oracle.server_sent(line)
        message: dict[str, Any] = json.loads(line)
        return message

    def answer_to(self, id: Any) -> dict[str, Any]:
        """Return the answer to a request; keep earlier messages for `received_before`."""
        while True:
            for message in self._aside:
                if "method" not in message and message.get("id") == id:
                    self._aside.remove(message)
                    return message
            self._aside.append(self.receive())

    def received_before(self) -> list[dict[str, Any]]:
        """The messages that arrived while `answer_to` waited."""
        aside, self._aside = self._aside, []
        return aside

    def start(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request; its id."""
        self._ids += 1
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": self._ids, "method": method}
        if params is not None:
            message["params"] = params
        self.send(message)
        return self._ids

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        return self.answer_to(self.start(method, params))

    def initialize(self, version: str = "2025-11-25") -> dict[str, Any]:
        """Shake hands."""
        answer = self.ask("initialize", initialize_params(version))
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def _read(self) -> None:
        with contextlib.suppress(ValueError, OSError):  # closed under our feet: the test is over
            for line in self._out:
                self._lines.put(line)
        self._lines.put(None)


class StdioServer(Piped):
    """A component on a pair of pipes."""

    def __init__(self, component: Path, *options: str, watched: bool = True) -> None:
        super().__init__(portico_run(component, *options), watched=watched)


def initialize_params(version: str) -> dict[str, Any]:
    """The `initialize` params of a client without capabilities."""
    client = {"name": "tests", "version": "1"}
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": client}


def modern_meta(version: str = MODERN, **more: Any) -> dict[str, Any]:
    """The `_meta` that every modern request carries."""
    prefix = "io.modelcontextprotocol/"
    return {
        f"{prefix}protocolVersion": version,
        f"{prefix}clientInfo": {"name": "tests", "version": "1"},
        f"{prefix}clientCapabilities": {},
        **more,
    }
