"""The corpora of awkward input, and ways to send them to a running server."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any, NoReturn, Protocol

from tests.support.oracle import WireOracle
from tests.support.running import (
    FEATURES,
    HttpServer,
    StdioServer,
    http_server,
    initialize_params,
    modern_meta,
)
from tests.support.shared import shared

_CALL = b'"id": "call"'
LINES = ("stdio legacy", "stdio modern", "http legacy", "http modern")


def json_files() -> dict[str, bytes]:
    """Every file of the JSON parsing suite: y_ is JSON, n_ is not, i_ is a matter of opinion."""
    files = sorted(shared("corpora/json-parsing").glob("*.json"))
    assert len(files) == 318
    return {file.name: file.read_bytes() for file in files}


def naughty_strings() -> list[str]:
    """Strings that have broken programs."""
    strings: list[str] = json.loads(shared("corpora/naughty/blns.json").read_bytes())
    assert len(strings) == 515
    return strings


def is_json(data: bytes) -> bool:
    """True for JSON by the letter: UTF-8, no NaN, nothing after it."""
    try:
        json.loads(data.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


class Line(Protocol):
    """A connection on which anything can be said."""

    oracle: WireOracle
    modern: bool
    splits: bool
    """True if a newline in a body makes it several messages."""

    def say(self, body: bytes, method: str = "", name: str = "") -> list[dict[str, Any]]:
        """Send a body; all answers to it, and proof that the next good request is answered."""
        ...

    def stderr(self) -> str:
        """What the server has complained about."""
        ...


def request(line: Line, id: Any, method: str, params: dict[str, Any]) -> bytes:
    """A request as the line's era has it."""
    if line.modern:
        params = {**params, "_meta": modern_meta()}
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()


def call(line: Line, value: bytes) -> bytes:
    """A call of the echo tool with any bytes in the place of its argument."""
    body = request(line, "call", "tools/call", {"name": "echo", "arguments": {"value": "HERE"}})
    return body.replace(b'"HERE"', value)


class StdioLine:
    """One message a line."""

    splits = True

    def __init__(self, server: StdioServer, modern: bool) -> None:
        self.oracle = server.oracle
        self.modern = modern
        self._server = server
        self._count = 0
        if not modern:
            server.initialize()

    def say(self, body: bytes, method: str = "", name: str = "") -> list[dict[str, Any]]:
        self._count += 1
        good = request(self, f"good {self._count}", "tools/list", {})
        self._server.write(body + b"\n" + good + b"\n")
        answer = self._server.answer_to(f"good {self._count}")
        assert answer["result"]["tools"]
        return self._server.received_before() or self._settled(body)

    def stderr(self) -> str:
        return self._server.stderr()

    def _settled(self, body: bytes) -> list[dict[str, Any]]:
        # A call takes longer than a list, so its answer may come after that of the good request;
        # and it has a thread of its own, so that of another call may come before.
        if _CALL in body:
            return [self._server.answer_to("call"), *self._server.received_before()]
        self._count += 1
        good = request(self, f"good {self._count}", "tools/call", {"name": "text"})
        self._server.write(good + b"\n")
        self._server.answer_to(f"good {self._count}")
        return self._server.received_before()


class HttpLine:
    """One message a body; a status without a body is a refusal too."""

    splits = False

    def __init__(self, server: HttpServer, modern: bool) -> None:
        self.oracle = WireOracle("2026-07-28" if modern else None)
        self.modern = modern
        self._server = server
        self._connection = server.connection()
        self._headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28" if modern else "2025-11-25",
        }
        if not modern:
            message = {"jsonrpc": "2.0", "id": 0, "method": "initialize"}
            params = initialize_params("2025-11-25")
            (answer,) = self._post(json.dumps({**message, "params": params}).encode(), "", "")
            assert "result" in answer

    def say(self, body: bytes, method: str = "", name: str = "") -> list[dict[str, Any]]:
        answers = self._post(body, method, name)
        (good,) = self._post(request(self, "good", "tools/list", {}), "tools/list", "")
        assert good["result"]["tools"]
        return answers

    def stderr(self) -> str:
        return self._server.stderr()

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _post(self, body: bytes, method: str, name: str) -> list[dict[str, Any]]:
        self.oracle.client_sent(body)
        headers = dict(self._headers)
        if self.modern and method:
            headers["Mcp-Method"] = method
        if self.modern and name:
            headers["Mcp-Name"] = name
        self._connection.request("POST", "/mcp", body, headers)
        response = self._connection.getresponse()
        data = response.read()
        if session := response.getheader("Mcp-Session-Id"):
            self._headers["Mcp-Session-Id"] = session
        kind = (response.getheader("Content-Type") or "").partition(";")[0]
        messages = [data] if kind == "application/json" else []
        if kind == "text/event-stream":
            lines = data.split(b"\n")
            messages = [line[5:] for line in lines if line[:5] == b"data:" and line[5:].strip()]
        for message in messages:
            self.oracle.server_sent(message)
        if not messages and response.status >= 400:
            return [{"error": {"code": 0, "message": f"bare {response.status}"}}]
        return [json.loads(message) for message in messages]


@contextlib.contextmanager
def opened(kind: str) -> Iterator[Line]:
    """A line to a server of its own."""
    transport, era = kind.split()
    if transport == "stdio":
        with StdioServer(FEATURES) as server:
            yield StdioLine(server, era == "modern")
    else:
        with http_server(FEATURES) as running:
            line = HttpLine(running, era == "modern")
            try:
                yield line
            finally:
                line.close()
