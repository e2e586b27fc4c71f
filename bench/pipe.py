"""The driver over stdio: writes ready lines, reads lines, checks ids, and does no more."""

import json
import os
import re
import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench import workload
from bench.contenders import Asked, Contender
from bench.process import Process, Workspace
from bench.workload import WrongAnswer

_CHUNK = 64 * 1024
_PATIENCE_S = 60.0
_EDGE = 64
_ID = re.compile(rb'"id":(\d+)')
UNASKED = b'{"jsonrpc":"2.0","method":'
"""How a notification begins."""

MakeRequest = Callable[[int], bytes]


@dataclass(frozen=True)
class Started:
    """The time from the spawn to the first list."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True)
class Load:
    """The outcome of many requests."""

    requests: int
    seconds: float
    cpu_us: float
    """Of the contender, a request."""
    faults: float
    """Pages that the kernel handed the contender, a request."""


class PipeServer:
    """A contender on a pair of pipes."""

    def __init__(self, contender: Contender, workspace: Workspace, tools: int = 50) -> None:
        self.contender = contender
        self._modern = contender.asked is Asked.MODERN
        self._tools = tools
        command = contender.command(workspace.tools(tools))
        self._spawned = time.perf_counter()
        self.process = Process(command, workspace, tools, pipes=True)
        assert self.process.popen.stdin is not None
        assert self.process.popen.stdout is not None
        self._in = self.process.popen.stdin.fileno()
        self._out = self.process.popen.stdout.fileno()
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._out, selectors.EVENT_READ)
        self._next = 1

    def open(self) -> Started:
        """Shake hands where the era has it, ask for the list, and take the time."""
        if not self._modern:
            self._answer_to(workload.initialize_request(0))
            self._write(workload.INITIALIZED + b"\n")
        answer = self._answer_to(self.list_request(self._next))
        wall = time.perf_counter() - self._spawned
        started = Started(wall, self.process.cpu_s())
        workload.check_list(answer, self._next, workload.tools(self._tools))
        self._next += 1
        return started

    def check_call(self) -> None:
        """Call the echo once and look at the answer."""
        workload.check_call(self._answer_to(self.call_request(self._next)), self._next)
        self._next += 1

    def list_request(self, id: int) -> bytes:
        """A request for the tools."""
        return workload.list_request(id, modern=self._modern)

    def call_request(self, id: int) -> bytes:
        """A call of the echo tool."""
        return workload.call_request(id, modern=self._modern)

    def ask(self, make: MakeRequest) -> dict[str, Any]:
        """Send one request, and return its whole answer."""
        answer = self._answer_to(make(self._next))
        self._next += 1
        while b"\n" + UNASKED in b"\n" + answer or _id_of(answer) != self._next - 1:
            answer = answer.partition(b"\n")[2] or self._read()
        found: dict[str, Any] = json.loads(answer)
        return found

    def load(self, make: MakeRequest, count: int, in_flight: int = 1) -> Load:
        """Send requests with a number of them in flight; every id must come back once."""
        first = self._next
        self._next += count
        lines = [make(id) + b"\n" for id in range(first, first + count)]
        faults = self.process.faults()
        before, started = self.process.cpu_s(), time.perf_counter()
        self._exchange(lines, first, in_flight)
        seconds = time.perf_counter() - started
        cpu_us = (self.process.cpu_s() - before) / count * 1e6
        return Load(count, seconds, cpu_us, (self.process.faults() - faults) / count)

    def _exchange(self, lines: list[bytes], first: int, in_flight: int) -> None:
        """Send all lines and read all answers; a changed list is no answer."""
        waiting = set(range(first, first + len(lines)))
        sent = min(in_flight, len(lines))
        self._write(b"".join(lines[:sent]))
        edges = b""
        while waiting:
            *ended, rest = self._read().split(b"\n")
            before = len(waiting)
            for part in ended:
                line, edges = edges + part, b""
                if line.startswith(UNASKED):
                    continue
                id = _id_of(line)
                if id not in waiting:
                    raise WrongAnswer(f"an answer to {id}, which was not asked or is answered")
                waiting.remove(id)
            edges = _edges(edges + rest)
            answered = before - len(waiting)
            if answered and sent < len(lines):
                until = sent + answered
                self._write(b"".join(lines[sent:until]))
                sent = until

    def _answer_to(self, request: bytes) -> bytes:
        self._write(request + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            answer += self._read()
        return answer

    def _read(self) -> bytes:
        if not self._ready.select(_PATIENCE_S):
            raise WrongAnswer(f"no answer within {_PATIENCE_S:g} s")
        data = os.read(self._out, _CHUNK)
        if not data:
            raise WrongAnswer(f"it ended: {self.process.complaint()}")
        return data

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._in, data) :]
        except BrokenPipeError:
            raise WrongAnswer(f"it ended: {self.process.complaint()}") from None


def _edges(line: bytes) -> bytes:
    """The two ends of a line, one of which has its id; the middle is not needed."""
    return line if len(line) <= 2 * _EDGE else line[:_EDGE] + line[-_EDGE:]


def _id_of(line: bytes) -> int:
    found = _ID.search(line[:_EDGE]) or _ID.search(line[-_EDGE:])
    if found is None:
        raise WrongAnswer(f"an answer without an id: {line[:200]!r}")
    return int(found[1])
