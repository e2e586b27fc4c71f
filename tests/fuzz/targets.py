"""What is fuzzed: the pure core, a real stdio child and a real HTTP server."""

import asyncio
import contextlib
import http.client
import json
import queue
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Protocol

from portico import Context, Version
from portico.core.protocol.inbound import read as read_inbound
from tests.fuzz import expect
from tests.interop.servers.features import server
from tests.support.running import FEATURES, HttpServer, StdioServer, initialize_params

PATIENCE_S = 15.0
_MOST_GROWTH_KIB = 150 * 1024


class Broken(Exception):
    """An invariant does not hold; carries the inputs that may have broken it."""

    def __init__(self, why: str, inputs: Sequence[bytes]) -> None:
        super().__init__(why)
        self.inputs = inputs


class Target(Protocol):
    """Something that takes any input and must survive it."""

    name: str
    group: int
    """How many inputs it takes at once."""

    @property
    def valid(self) -> Sequence[Any]:
        """The messages to start from; empty for those of MCP."""
        ...

    def feed(self, inputs: Sequence[bytes]) -> None:
        """Take some inputs; raises Broken."""
        ...

    def close(self) -> None:
        """Check what only the end can show, and end; raises Broken."""
        ...


class CoreTarget:
    """`Server.handle` and the inbound reader, in this process: fast, so it sees the most."""

    name = "core"
    group = 50
    valid = ()

    def __init__(self, random: Random) -> None:
        self._random = random
        self._runner = asyncio.Runner()

    def feed(self, inputs: Sequence[bytes]) -> None:
        for body in inputs:
            version = self._random.choice((None, *Version))
            try:
                read_inbound(body, version)
                self._runner.run(asyncio.wait_for(self._handle(body, version), PATIENCE_S))
            except Broken:
                raise
            except BaseException as error:
                raise Broken(f"{type(error).__name__}: {error}", [body]) from error

    async def _handle(self, body: bytes, version: Version | None) -> None:
        message = expect.read(body)
        response = await server.handle(body, Context(version=version))
        wanted = expect.request_id(message)
        if response.is_nothing:
            if wanted is not None:
                raise Broken("a request without an answer", [body])
            return
        answer = json.loads(response.encode())
        if wanted is not None and json.dumps(answer.get("id")) not in (wanted, "null"):
            raise Broken(f"an answer to another id: {answer}", [body])

    def close(self) -> None:
        self._runner.close()


class StdioTarget:
    """A real child on pipes: every request answered once, and the next good one as well."""

    name = "stdio"
    group = 20
    valid = ()

    def __init__(self, random: Random) -> None:
        self._server = StdioServer(FEATURES, watched=False)
        if random.random() < 0.8:  # an unopened connection has its own ways to fail
            self._server.initialize(random.choice(("2024-11-05", "2025-03-26", "2025-11-25")))
        self._before = self._server.rss_kib()
        self._good = 0

    def feed(self, inputs: Sequence[bytes]) -> None:
        lines = [line for body in inputs for line in body.split(b"\n")]
        messages = [expect.read(line) for line in lines]
        members = [m for msg in messages for m in (msg if isinstance(msg, list) else [msg])]
        alone = [message for message in messages if not isinstance(message, list)]
        wanted = Counter(id for m in alone if (id := expect.request_id(m)) is not None)
        for member in members:
            # A batch may be refused as a whole, a subscription stays open, a cancelled call ends.
            if expect.may_stay_open(member) or member not in alone:
                wanted.pop(json.dumps(member.get("id")) if isinstance(member, dict) else "", None)
            wanted.pop(expect.cancelled_id(member) or "", None)
        try:
            self._server.write(b"\n".join(inputs) + b"\n" + self._close_streams(members))
            self._expect(wanted)
        except (OSError, EOFError, queue.Empty) as error:
            raise Broken(
                f"{type(error).__name__}; still open: {dict(+wanted)}\n{self._server.stderr()}",
                inputs,
            ) from error
        if "Traceback" in self._server.stderr():
            raise Broken(self._server.stderr(), inputs)

    def close(self) -> None:
        growth = self._server.rss_kib() - self._before
        with self._server:
            pass
        if growth > _MOST_GROWTH_KIB:
            raise Broken(f"it grew by {growth} KiB", [])

    def _close_streams(self, members: list[Any]) -> bytes:
        self._good += 1
        ends = [
            {
                "jsonrpc": "2.0",
                "method": "notifications/cancelled",
                "params": {"requestId": m["id"]},
            }
            for m in members
            if expect.may_stay_open(m) and "id" in m
        ]
        ping = {"jsonrpc": "2.0", "id": f"good {self._good}", "method": "ping"}
        return b"".join(json.dumps(message).encode() + b"\n" for message in (*ends, ping))

    def _expect(self, wanted: Counter[str]) -> None:
        wanted[json.dumps(f"good {self._good}")] = 1
        while +wanted:
            answer: Any = self._server.receive()
            for member in answer if isinstance(answer, list) else [answer]:
                if "method" not in member:
                    wanted[json.dumps(member.get("id"))] -= 1


class HttpTarget:
    """A real HTTP server: a proper status, an answer to a request, and no stream that hangs."""

    name = "http"
    group = 5
    valid: Sequence[Any] = ()
    known: ClassVar[Mapping[str, str]] = {}
    """Headers of every request."""
    proper = frozenset({200, 202, 400, 404, 405, 406, 411, 413, 415, 429, 431, 503})

    def __init__(self, random: Random) -> None:
        self._random = random
        self._server = self._start()
        self._connection = self._server.connection()
        self._session = self._open_session()
        self._before = self._server.rss_kib()

    def feed(self, inputs: Sequence[bytes]) -> None:
        for body in inputs:
            message = expect.read(body)
            try:
                status, answers = self.post(body, self.headers_of(message), message)
                good, _ = self.post(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', self._session)
                if good == 404:  # a fuzzed request was allowed to end the session
                    self._session = self._open_session()
            except (OSError, http.client.HTTPException) as error:
                why = f"{type(error).__name__}: {error}\n{self._server.stderr()}"
                raise Broken(why, [body]) from error
            if status not in self.proper or good not in (200, 404):
                raise Broken(f"status {status}, then {good}", [body])
            if status == 200 and expect.request_id(message) and not answers:
                raise Broken("a request without an answer", [body])
        if "Traceback" in self._server.stderr():
            raise Broken(self._server.stderr(), inputs)

    def close(self) -> None:
        growth = self._server.rss_kib() - self._before
        self._connection.close()
        code = self._server.stop()
        if code != 0 or growth > _MOST_GROWTH_KIB:
            raise Broken(f"exit {code}, it grew by {growth} KiB", [])

    def _start(self) -> HttpServer:
        return HttpServer(FEATURES)

    def _open_session(self) -> dict[str, str]:
        params = initialize_params("2025-11-25")
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        headers = {"Accept": "application/json, text/event-stream", **self.known}
        headers["Content-Type"] = "application/json"
        self._connection.request("POST", "/mcp", json.dumps(body), headers)
        response = self._connection.getresponse()
        response.read()
        return {**headers, "Mcp-Session-Id": response.getheader("Mcp-Session-Id") or ""}

    def headers_of(self, message: Any) -> dict[str, str]:
        headers = dict(self._session)
        if self._random.random() < 0.5:
            del headers["Mcp-Session-Id"]
            headers["MCP-Protocol-Version"] = "2026-07-28"
            method = message.get("method") if isinstance(message, dict) else None
            params = message.get("params") if isinstance(message, dict) else None
            if isinstance(method, str) and method.isascii() and method.isprintable():
                headers["Mcp-Method"] = method
            if isinstance(params, dict):
                name = params.get("name", params.get("uri", params.get("taskId")))
                if isinstance(name, str) and name.isascii() and name.isprintable():
                    headers["Mcp-Name"] = name
        if self._random.random() < 0.05:
            headers[self._random.choice(tuple(headers))] = "\xff" * self._random.choice((0, 1, 300))
        return headers

    def post(self, body: bytes, headers: dict[str, str], message: Any = None) -> tuple[int, bytes]:
        self._connection.request("POST", "/mcp", body, headers)
        response = self._connection.getresponse()
        if expect.may_stay_open(message) and response.getheader("Content-Type", "").startswith(
            "text/event-stream"
        ):
            first = response.readline()
            self._connection.close()  # the next request opens it again
            return response.status, first
        answers = response.read()
        with contextlib.suppress(OSError):
            if response.getheader("Connection") == "close":
                self._connection.close()
        return response.status, answers


TARGETS: dict[str, Callable[[Random], Target]] = {
    "core": CoreTarget,
    "stdio": StdioTarget,
    "http": HttpTarget,
}
"""By name; other modules add theirs."""
