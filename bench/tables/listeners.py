"""Listeners: how long others wait while a changed list is told to thousands of streams."""

import json
import socket
import threading
import time
from contextlib import ExitStack
from http.client import HTTPConnection
from statistics import median

from bench import workload
from bench.contenders import PYTHON, Asked, Contender
from bench.process import Workspace
from bench.report import Budget, Section, Table, at_most, rounded
from bench.rounds import Samples
from bench.scale import Scale
from bench.web import WebServer
from bench.workload import ROOT, WrongAnswer

HEADING = "Listeners"

_STREAMS = 9_900
"""Its limit is 10,000 connections."""
_CALLS, _FEW = 200, 300
_LIMIT_MS = 50
_QUIET, _TELLING = "before", "while they are told"
_P50, _LATEST, _TOLD = "p50, ms", "latest, ms", "all told, ms"
_PATIENCE_S = 60
_COMMAND = (
    *(PYTHON, "-m", "portico", "run", str(ROOT / "bench/servers/portico_announcing.py")),
    *("--http", "127.0.0.1:{port}", "--auth", "none"),
)
_ABOUT = (
    "A server with this many open listeners (modern, over HTTP), and another client that calls its "
    "echo, one call after the other. Then its list changes: the call that waits longest is the "
    "row's latest. All told: until the last listener has the notification, with the driver on the "
    "same machine."
)


def measure(scale: Scale) -> Section:
    """Measure the calls of a client before and during a change."""
    streams = min(_STREAMS, scale.calls * _FEW // 10)
    samples, notes = Samples(), [_ABOUT]
    contender = Contender("Portico", _COMMAND, asked=Asked.MODERN)
    try:
        for _ in range(scale.rounds):
            _round(contender, streams, samples)
    except WrongAnswer as wrong:
        notes.append(f"not measured to the end: {wrong}")
    columns = (_P50, _LATEST, _TOLD)
    rows = [
        (name, *(samples.cell(name, column, rounded) for column in columns))
        for name in (_QUIET, _TELLING)
    ]
    table = Table(f"Calls of others, beside {streams:,} streams", ("", *columns), rows)
    notes += [f"noisy: {noise}" for noise in samples.noisy()]
    return Section(notes=notes, tables=[table], budgets=budgets(samples))


def budgets(samples: Samples) -> list[Budget]:
    """The promise to the others."""
    latest, best = (of(_TELLING, _LATEST) for of in (samples.median, samples.best))
    return [at_most("latest call while a change is told", latest, _LIMIT_MS, " ms", best)]


def _round(contender: Contender, streams: int, samples: Samples) -> None:
    with Workspace() as workspace, ExitStack() as stack:
        web = WebServer(contender, workspace, 2)
        stack.enter_context(web.process)
        web.wait()
        listeners = [stack.enter_context(_listener(web.port)) for _ in range(streams)]
        quiet = [_call(web.port) for _ in range(_CALLS)]
        samples.add(_QUIET, _P50, median(quiet))
        samples.add(_QUIET, _LATEST, max(quiet))
        calls = _Calls(web.port)
        began = time.perf_counter()
        _call(web.port, "announce")
        for listener in listeners:
            _read_until(listener, b"tools/list_changed")
        samples.add(_TELLING, _TOLD, (time.perf_counter() - began) * 1e3)
        beside = calls.finish()
        samples.add(_TELLING, _P50, median(beside))
        samples.add(_TELLING, _LATEST, max(beside))


class _Calls:
    """Calls, one after the other, from a thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._took: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> list[float]:
        """Stop, and return what each took, in ms."""
        self._is_over.set()
        self._thread.join()
        return self._took

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._took.append(_call(self._port))


def _call(port: int, tool: str = "echo") -> float:
    """Call a tool; return what it took, in ms."""
    given = {"text": "x"} if tool == "echo" else {}
    body = workload.tool_request(1, tool, given, modern=True)
    connection = HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)
    try:
        connection.connect()
        began = time.perf_counter()
        connection.request("POST", "/mcp", body, _headers("tools/call", tool))
        answer = json.loads(connection.getresponse().read())
        took = time.perf_counter() - began
    finally:
        connection.close()
    if "result" not in answer:
        raise WrongAnswer(f"{tool}: {answer}"[:300])
    return took * 1e3


def _listener(port: int) -> socket.socket:
    """Open a stream that is told of changed lists."""
    method = "subscriptions/listen"
    body = workload.listen_request(1)
    lines = [f"{name}: {value}" for name, value in _headers(method).items()]
    head = ["POST /mcp HTTP/1.1", f"Host: 127.0.0.1:{port}", *lines, f"Content-Length: {len(body)}"]
    made = socket.create_connection(("127.0.0.1", port), _PATIENCE_S)
    made.sendall("\r\n".join([*head, "", ""]).encode() + body)
    _read_until(made, b"acknowledged")
    return made


def _read_until(stream: socket.socket, words: bytes) -> None:
    seen = b""
    while words not in seen:
        data = stream.recv(65536)
        if not data:
            raise WrongAnswer(f"a stream ended: {seen[-300:]!r}")
        seen += data


def _headers(method: str, name: str = "") -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": workload.MODERN,
        "Mcp-Method": method,
        **({"Mcp-Name": name} if name else {}),
    }
