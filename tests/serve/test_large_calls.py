"""Many large calls that wait for a slow server: little more than their arguments is kept."""

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.rigs.running import laggard
from tests.serve.gateway import Gateway, Pipes, command, result_of, text_in, written
from tests.support.running import WAIT_S, Piped
from tests.support.soak import each
from tests.wrap.faults import Client, Wrap, until, wrap_command

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("serve-faults")]

CALLS, SIZE = 40, 3_900_000
PEAK_MB, REST_MB, REST_S = 350, 120, 10.0
"""Two copies of all arguments fit, and no third."""

Take = Callable[[int], dict[str, Any]]
"""The params of a call with so much text."""


def wrapped(size: int) -> dict[str, Any]:
    return {"name": "take", "arguments": {"text": "x" * size}}


def executed(size: int) -> dict[str, Any]:
    asked = {"name": "lag__take", "arguments": {"text": "x" * size}}
    return {"name": "execute_tool", "arguments": asked}


def config_of(folder: Path, mode: str) -> Path:
    return written(folder / "portico.toml", {"lag": command(laggard(mode, CALLS))})


@contextmanager
def wrap_stdio(folder: Path, mode: str) -> Iterator[tuple[Piped, Take]]:
    with Piped(wrap_command(folder, "--", *laggard(mode, CALLS)), watched=False) as piped:
        yield piped, wrapped


@contextmanager
def serve_stdio(folder: Path, mode: str) -> Iterator[tuple[Piped, Take]]:
    with Pipes(folder, config_of(folder, mode), watched=False) as piped:
        yield piped, executed


@contextmanager
def wrap_http(folder: Path, mode: str) -> Iterator[tuple[Wrap, Take]]:
    with Wrap(folder, "--", *laggard(mode, CALLS)) as wrap:
        yield wrap, wrapped


@contextmanager
def serve_http(folder: Path, mode: str) -> Iterator[tuple[Wrap, Take]]:
    with Gateway(folder, config_of(folder, mode)) as gateway:
        yield gateway, executed


def megabytes(pid: int, field: str) -> int:
    """How much memory a process has now (VmRSS), or had at most (VmHWM)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) // 1024


def process_of(portico: Piped | Wrap) -> int:
    """The process itself: `env` has become it by now."""
    return portico.process.pid


def check_memory(portico: Piped | Wrap) -> None:
    pid = process_of(portico)
    peak = megabytes(pid, "VmHWM")
    rests = until(lambda: megabytes(pid, "VmRSS") < REST_MB, REST_S)
    assert peak <= PEAK_MB, f"{peak} MB at most"
    assert rests, f"{megabytes(pid, 'VmRSS')} MB are left"


def taken(answer: dict[str, Any]) -> bool:
    return text_in(result_of(answer)) == "taken"


@pytest.mark.parametrize(("opened", "mode"), each([wrap_stdio, serve_stdio], ["late", "slow"]))
def test_large_calls_over_stdio_are_kept_at_most_twice(
    tmp_path: Path, opened: Any, mode: str
) -> None:
    with opened(tmp_path, mode) as (portico, params):
        portico.initialize()
        assert taken(portico.ask("tools/call", params(1)))
        body = json.dumps(params(SIZE)).encode()
        for id in range(100, 100 + CALLS):
            head = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":' % id
            portico.write(b"".join((head, body, b"}\n")))
        assert all(taken(portico.answer_to(id)) for id in range(100, 100 + CALLS))
        check_memory(portico)


def post(portico: Wrap, headers: dict[str, str], body: bytes) -> dict[str, Any]:
    """What is answered to one POST on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", portico.port, timeout=WAIT_S)
    try:
        connection.request("POST", "/mcp", body, headers)
        answer = connection.getresponse().read()
    finally:
        connection.close()
    found: dict[str, Any] = json.loads(answer[answer.index(b'{"jsonrpc"') :])
    return found


@pytest.mark.parametrize(("opened", "mode"), each([wrap_http, serve_http], ["slow", "late"]))
def test_large_calls_over_http_are_kept_at_most_twice(
    tmp_path: Path, opened: Any, mode: str
) -> None:
    answers: list[dict[str, Any]] = []
    with opened(tmp_path, mode) as (portico, params), Client(portico.port) as client:
        assert taken(client.ask("tools/call", params(1)))
        rest = json.dumps(params(SIZE)).encode()

        def call(id: int) -> None:
            head = b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":' % id
            answers.append(post(portico, client.headers, head + rest + b"}"))

        calls = [threading.Thread(target=call, args=(id,)) for id in range(100, 100 + CALLS)]
        for thread in calls:
            thread.start()
        for thread in calls:
            thread.join()
        assert len(answers) == CALLS
        assert all(map(taken, answers))
        check_memory(portico)
