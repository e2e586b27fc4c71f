"""Parts: the cost of each step of the fast path in process, to locate regressions."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from timeit import Timer
from typing import Any

import msgspec

from bench import workload
from bench.report import Section, Table
from bench.scale import Scale
from portico import Context, Response, Server
from portico.core.http1.port import Scope
from portico.core.model.session import Session
from portico.core.model.version import LATEST_LEGACY
from portico.core.protocol.inbound import read, read_message
from portico.core.protocol.line_reader import LineReader
from portico.edge.transport.asgi import Message
from portico.edge.transport.http_app import HttpApp
from portico.edge.transport.pipes import StdioServer

HEADING = "Parts, in process"

_REPEATS = 5
_HEADERS = {"mcp-protocol-version": workload.MODERN, "mcp-method": "tools/list"}
_CALL_HEADERS = {**_HEADERS, "mcp-method": "tools/call", "mcp-name": "echo"}
_MODERN = workload.list_request(1, modern=True)
_LEGACY = workload.list_request(1, modern=False)
_CALL = workload.call_request(1, modern=True)
_LEGACY_CALL = workload.call_request(1, modern=False)
_LIST = workload.encode({"tools": workload.tools(50)})

Part = Callable[[], object]
AsyncPart = Callable[[], Awaitable[object]]


def measure(scale: Scale) -> Section:
    """Time every part alone."""
    times = {name: _best(part, scale.part_seconds) for name, part in _parts().items()}
    times |= asyncio.run(_measure_async(scale.part_seconds))
    rows = [(name, f"{us:,.2f}") for name, us in times.items()]
    return Section([Table("CPU us, best of five", ("", "us"), rows)])


def _parts() -> dict[str, Part]:
    server, context = _server(), Context()
    endpoint = server.endpoint()
    request = _admitted(_MODERN, _HEADERS)
    response = endpoint.handle(request, context)
    assert isinstance(response, Response)
    workload.check_list(response.encode(), 1, workload.tools(50))
    lines = LineReader(1 << 20)
    return {
        "for scale: json, list of 50 decoded and encoded": lambda: json.dumps(json.loads(_LIST)),
        "for scale: msgspec, the same": lambda: msgspec.json.encode(msgspec.json.decode(_LIST)),
        "lines: feed one line": lambda: list(lines.feed(_LEGACY + b"\n")),
        "codec: envelope of a modern list": lambda: read_message(_MODERN),
        "codec: envelope of a legacy list": lambda: read_message(_LEGACY),
        "codec + ladder: modern list over HTTP": lambda: read(_MODERN, None, _HEADERS),
        "codec + ladder: modern list over stdio": lambda: read(_MODERN, None),
        "codec + ladder: legacy list": lambda: read(_LEGACY, LATEST_LEGACY),
        "codec + ladder: modern call over HTTP": lambda: read(_CALL, None, _CALL_HEADERS),
        "context made": lambda: Context(session=Session(_ignore)),
        "core: answer of a list": lambda: endpoint.handle(request, context),
        "response: its parts": lambda: response.parts,
        "response: joined": response.encode,
        "start: 50 tools loaded": _server,
        "start: catalog and first page of 50 tools": lambda: (
            _server().catalog().page("tools", LATEST_LEGACY, "")
        ),
    }


async def _measure_async(seconds: float) -> dict[str, float]:
    server = _server()
    stdio = StdioServer(server.endpoint(), _ignore)
    stdio.received(workload.initialize_request(0) + b"\n")
    app = server.asgi(hosts=None)
    list_scope, call_scope = _scope(_HEADERS), _scope(_CALL_HEADERS)
    parts: dict[str, AsyncPart] = {
        "handle: modern list": lambda: server.handle(_MODERN),
        "handle: echo call": lambda: server.handle(_LEGACY_CALL),
        "stdio transport: legacy list": lambda: _feed(stdio, _LEGACY + b"\n"),
        "HTTP app over ASGI: modern list": lambda: _post(app, list_scope, _MODERN),
        "HTTP app over ASGI: echo call": lambda: _post_call(app, call_scope, _CALL),
    }
    workload.check_list(await _post(app, list_scope, _MODERN), 1, workload.tools(50))
    workload.check_call(await _post(app, call_scope, _CALL), 1)
    return {name: await _best_async(part, seconds) for name, part in parts.items()}


def _server() -> Server:
    server = Server("bench", version="1.0.0")
    server.load_tools(_LIST)
    server.handler("echo", _echo)
    return server


async def _echo(arguments: dict[str, Any], context: Context) -> str:
    text: str = arguments["text"]
    return text


def _admitted(body: bytes, headers: dict[str, str]) -> Any:
    return read(body, None, headers)


def _ignore(_: object) -> None:
    """Where written bytes go."""


async def _feed(stdio: StdioServer, line: bytes) -> None:
    stdio.received(line)


def _scope(routing: dict[str, str]) -> Scope:
    headers = {
        "host": "127.0.0.1:8000",
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        **routing,
    }
    return {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
    }


async def _post(app: HttpApp, scope: Scope, body: bytes) -> bytes:
    """One request through the ASGI app; the body of its answer."""
    asked: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
    answer: list[bytes] = []

    async def receive() -> Message:
        if asked:
            return asked.pop()
        await asyncio.Event().wait()  # the client stays
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            answer.append(message["body"])

    await app(scope, receive, send)
    return b"".join(answer)


async def _post_call(app: HttpApp, scope: Scope, body: bytes) -> bytes:
    """The same for a call, whose watch over the client has yet to end."""
    answer = await _post(app, scope, body)
    await asyncio.sleep(0)
    return answer


def _best(part: Part, seconds: float) -> float:
    timer = Timer(part, timer=time.process_time)
    count, took = timer.autorange()
    count = max(1, int(count * seconds / took))
    return min(timer.repeat(_REPEATS, count)) / count * 1e6


async def _best_async(part: AsyncPart, seconds: float) -> float:
    count = max(1, int(seconds / max(await _timed(part, 20) / 20, 1e-7)))
    return min([await _timed(part, count) for _ in range(_REPEATS)]) / count * 1e6


async def _timed(part: AsyncPart, count: int) -> float:
    started = time.process_time()
    for _ in range(count):
        await part()
    return time.process_time() - started
