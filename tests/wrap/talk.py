"""Clients that send raw JSON-RPC to `portico wrap` and keep every byte they receive."""

import base64
import contextlib
import http.client
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any, Self

from tests.rigs.wire import dumps, raw_member
from tests.support.messages import MODERN, initialize, modern_meta
from tests.support.running import PLAIN, WAIT_S, Child
from tests.support.web import NAMED
from tests.wrap.faults import alive, descendants, until, wrap_command

LEGACY = "2025-11-25"
_BOTH = "application/json, text/event-stream"

Answers = dict[str, dict[str, Any]]
"""A client's answers to questions, by method."""


class Client:
    """A client over any transport; it keeps received messages byte for byte."""

    def __init__(self, answers: Answers | None = None, modern: bool = False) -> None:
        self.modern = modern
        self.told: list[bytes] = []
        """Notifications and questions, in order."""
        self.answers: dict[bytes, bytes] = {}
        """Whole answers, by the id as it is written."""
        self._replies = answers or {}
        self.is_over = False
        """True when no more messages can come."""
        self._news = threading.Condition()
        self._numbers = itertools.count(1)

    def send(self, raw: bytes) -> None:
        """Send a message as it is."""
        raise NotImplementedError

    def hear(self, raw: bytes) -> None:
        """Take in one message; a question is answered at once."""
        json.loads(raw)  # invalid JSON must not pass for JSON
        id, method = raw_member(raw, "id"), raw_member(raw, "method")
        with self._news:
            if method is None:
                assert id not in self.answers, "a second answer"
                self.answers[id or b""] = raw
            else:
                self.told.append(raw)
            self._news.notify_all()
        if id is not None and method is not None:
            reply = self._replies.get(json.loads(method))
            refusal = b'"error":{"code":-32601,"message":"cannot be asked"}'
            said = refusal if reply is None else b'"result":' + dumps(reply)
            self.send(b'{"jsonrpc":"2.0","id":%s,%s}' % (id, said))

    def hello(
        self, capabilities: dict[str, Any] | None = None, version: str = LEGACY, id: bytes = b"0"
    ) -> bytes:
        """Shake hands; the result."""
        params = initialize(version, capabilities)["params"]
        self.request("initialize", dumps(params), id)
        result = self.result(id)
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        return result

    def request(
        self, method: str, params: bytes | dict[str, Any] | None = None, id: bytes = b""
    ) -> bytes:
        """Send a request, raw params as they are; its id."""
        id = id or b"%d" % next(self._numbers)
        if not isinstance(params, bytes):
            fields = dict(params or {})
            if self.modern:
                fields["_meta"] = {**modern_meta(), **fields.get("_meta", {})}
            params = dumps(fields)
        named = (id, dumps(method), params)
        self.send(b'{"jsonrpc":"2.0","id":%s,"method":%s,"params":%s}' % named)
        return id

    def notify(self, method: str, params: bytes) -> None:
        """Send a notification."""
        self.send(b'{"jsonrpc":"2.0","method":%s,"params":%s}' % (dumps(method), params))

    def answer(self, id: bytes) -> bytes:
        """The whole answer to a request."""
        self._wait(lambda: id in self.answers, f"no answer to {id!r}")
        return self.answers[id]

    def result(self, id: bytes) -> bytes:
        """The raw result of a request."""
        answer = self.answer(id)
        result = raw_member(answer, "result")
        assert result is not None, answer
        return result

    def error(self, id: bytes) -> bytes:
        """The raw error of a request."""
        answer = self.answer(id)
        error = raw_member(answer, "error")
        assert error is not None, answer
        return error

    def ask(self, method: str, params: bytes | dict[str, Any] | None = None) -> bytes:
        """The raw result of a request that is sent now."""
        return self.result(self.request(method, params))

    def start(self, tool: str, *, meta: dict[str, Any] | None = None, **arguments: Any) -> bytes:
        """Begin to call a tool; the id."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if meta:
            params["_meta"] = meta
        return self.request("tools/call", params)

    def said(self, id: bytes) -> str:
        """The text that a tool answered."""
        text: str = json.loads(self.result(id))["content"][0]["text"]
        return text

    def call(self, tool: str, **arguments: Any) -> str:
        """Call a tool; the text it answers."""
        return self.said(self.start(tool, **arguments))

    def heard(self, method: str) -> list[bytes]:
        """The raw params of all notifications and questions of a method, so far."""
        name = dumps(method)
        found = [raw for raw in list(self.told) if raw_member(raw, "method") == name]
        return [raw_member(raw, "params") or b"" for raw in found]

    def next(self, method: str, number: int = 1) -> bytes:
        """The raw params of the notification or question of this number."""
        self._wait(lambda: len(self.heard(method)) >= number, f"no {method}")
        return self.heard(method)[number - 1]

    def _wait(self, done: Callable[[], bool], why: str) -> None:
        with self._news:
            assert self._news.wait_for(lambda: done() or self.is_over, WAIT_S), why
        assert done(), f"{why}: the connection has ended"


class Pipes(Client):
    """A client of a `portico wrap` of its own, over stdio, or of another command."""

    def __init__(
        self,
        home: Path,
        *options: str,
        words: list[str] | None = None,
        by: Sequence[str] = PLAIN,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.child = Child(words or wrap_command(home, *options, by=by), PIPE)
        assert self.child.process.stdin is not None
        assert self.child.process.stdout is not None
        self._in, self._out = self.child.process.stdin, self.child.process.stdout
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        kin = descendants(self.child.process.pid)
        with contextlib.suppress(OSError):
            self._in.close()
        try:
            self.child.ended()
            assert until(lambda: not alive(kin)), "it left processes behind"
        finally:
            self._reader.join(WAIT_S)
            self._out.close()

    @property
    def kin(self) -> set[int]:
        """The processes that were started for it."""
        return descendants(self.child.process.pid)

    def send(self, raw: bytes) -> None:
        """Write one line."""
        self._in.write(raw + b"\n")
        self._in.flush()

    def _read(self) -> None:
        for line in self._out:
            self.hear(line.removesuffix(b"\n"))
        with self._news:
            self.is_over = True
            self._news.notify_all()


class Web(Client):
    """A client over HTTP; each POST has a connection and a thread of its own."""

    token = ""
    """Sent with every request, if there is one."""
    headers: Mapping[str, str] = {}
    """More headers of every request."""

    def __init__(self, port: int, path: str = "/mcp", **more: Any) -> None:
        super().__init__(**more)
        self.port = port
        self.path = path
        self.session: dict[str, str] = {}
        self.events: dict[bytes, str] = {}
        """By request, the id of the last event on its stream."""
        self._open: dict[bytes, socket.socket] = {}
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()
        for open in list(self._open.values()):
            with contextlib.suppress(OSError):
                open.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()

    def hello(
        self, capabilities: dict[str, Any] | None = None, version: str = LEGACY, id: bytes = b"0"
    ) -> bytes:
        """Shake hands, and listen for what comes unasked."""
        result = super().hello(capabilities, version, id)
        self._exchange(b"GET", "GET", None, {})
        return result

    def leave(self) -> None:
        """End the session, if there is one."""
        if self.session:
            ended = threading.Event()
            self._exchange(b"DELETE", "DELETE", None, {}, ended)
            assert ended.wait(WAIT_S)
            self.session = {}

    def resume(self, id: bytes, last_event: str) -> None:
        """Come back for the answer to a request."""
        self._exchange(id, "GET", None, {"last-event-id": last_event})

    def hang_up(self, id: bytes) -> None:
        """Drop the connection of a request."""
        self._open.pop(id).shutdown(socket.SHUT_RDWR)

    def send(self, raw: bytes) -> None:
        """Post one message; a notification has been posted when this returns."""
        message = json.loads(raw)
        headers = {"content-type": "application/json"}
        method, params = message.get("method", ""), message.get("params", {})
        if self.modern:
            headers |= {"mcp-protocol-version": MODERN, "mcp-method": method}
            if method in NAMED:
                headers["mcp-name"] = _in_header(params[NAMED[method]])
        id = raw_member(raw, "id")
        done = threading.Event()
        self._exchange(id or b"", "POST", raw, headers, done)
        if id is None or not method or method == "initialize":
            assert done.wait(WAIT_S)

    def _exchange(
        self,
        id: bytes,
        verb: str,
        body: bytes | None,
        headers: dict[str, str],
        done: threading.Event | None = None,
    ) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=3 * WAIT_S)
        connection.connect()
        self._open[id] = connection.sock
        accept = "text/event-stream" if verb == "GET" else _BOTH
        known = {"authorization": f"Bearer {self.token}"} if self.token else {}
        headers = {"accept": accept, **known, **self.session, **self.headers, **headers}
        connection.request(verb, self.path, body, headers)

        def read() -> None:
            # Closed under its feet, it was hung up, or the test is over.
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                self._read(connection.getresponse(), id)
            connection.close()
            if done is not None:
                done.set()

        self._threads.append(threading.Thread(target=read, daemon=True))
        self._threads[-1].start()

    def _read(self, response: http.client.HTTPResponse, id: bytes) -> None:
        if session := response.headers.get("mcp-session-id"):
            self.session = {"mcp-session-id": session, "mcp-protocol-version": LEGACY}
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            body = response.read()
            if body:
                self.hear(body)
            return
        for line in response:
            name, _, value = line.rstrip(b"\n").partition(b": ")
            if name == b"id":
                self.events[id] = value.decode()
            elif name == b"data" and value:
                self.hear(value)


def _in_header(value: str) -> str:
    """A value as 2026-07-28 writes it in a header."""
    if value.isascii():
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


@contextlib.contextmanager
def web(port: int, capabilities: dict[str, Any] | None = None, **more: Any) -> Iterator[Web]:
    """A client over HTTP that has shaken hands, if it is of the era for it."""
    with Web(port, **more) as client:
        if not client.modern:
            client.hello(capabilities)
        yield client
