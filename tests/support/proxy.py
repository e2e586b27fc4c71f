"""A byte-transparent HTTP proxy; oracles check everything that the server sends."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, Self

import httptools

from tests.support.oracle import WireOracle
from tests.support.running import PLAIN, free_port, http_server

_SESSION = "mcp-session-id"
_VERSION = "mcp-protocol-version"


class Listening(Protocol):
    """A server process with a port of its own."""

    port: int

    def stderr(self) -> str:
        """All it has said so far."""
        ...


class RecordingProxy:
    """Passes connections on, and every message to the oracle of its session.

    Modern requests are stateless, so each exchange has an oracle of its own.
    """

    def __init__(self, server: Listening, port: int) -> None:
        self.server = server
        self.port = port
        self.oracles: list[WireOracle] = []
        self._sessions: dict[str, WireOracle] = {}
        self._open: set[asyncio.StreamWriter] = set()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def url(self, path: str = "/mcp") -> str:
        """Where clients find it."""
        return f"http://localhost:{self.port}{path}"

    @property
    def checked(self) -> int:
        """How many messages were held against a schema so far."""
        return sum(oracle.checked for oracle in self.oracles)

    @property
    def problems(self) -> list[str]:
        """The violations that the oracles found."""
        return [problem for oracle in self.oracles for problem in oracle.problems]

    def oracle_of(self, url: str, headers: dict[str, str]) -> WireOracle:
        """The oracle of the session a request belongs to, or a new one."""
        # The old transport names its session in the address that messages are posted to.
        for key in (headers.get(_SESSION, ""), url):
            if key in self._sessions:
                return self._sessions[key]
        oracle = WireOracle(headers.get(_VERSION))
        self.oracles.append(oracle)
        return oracle

    def join(self, session: str, oracle: WireOracle) -> None:
        """Assign the messages of a new session to this oracle."""
        self._sessions[session] = oracle

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", self.port)
        )
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for writer in tuple(self._open):
            writer.close()  # which ends the tasks that read from it
        tasks = asyncio.all_tasks(self._loop)
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        except OSError:
            writer.close()
            return
        asked = _Asked(self)
        answered = _Answered(self, asked.open)
        self._open.update((writer, up_writer))
        pumps = [
            asyncio.create_task(_pump(reader, up_writer, asked.feed)),
            asyncio.create_task(_pump(up_reader, writer, answered.feed)),
        ]
        try:
            # Either side's end is the end: a client that leaves is how the modern era cancels.
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            up_writer.close()
            writer.close()
            self._open.difference_update((writer, up_writer))


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hear: Callable[[bytes], None]
) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            hear(data)  # checked first, then passed on
            writer.write(data)
            await writer.drain()


class _Asked:
    """The requests of a client on one connection."""

    def __init__(self, proxy: RecordingProxy) -> None:
        self.open: deque[WireOracle] = deque()
        self._proxy = proxy
        self._parser = httptools.HttpRequestParser(self)
        self.on_message_begin()

    def feed(self, data: bytes) -> None:
        with contextlib.suppress(httptools.HttpParserError):  # a bad request is a test's business
            self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        oracle = self._proxy.oracle_of(self._url.decode("latin-1"), self._headers)
        oracle.client_sent(b"".join(self._body))
        self.open.append(oracle)


class _Answered:
    """The responses of the server on one connection: whole bodies and events."""

    def __init__(self, proxy: RecordingProxy, open: deque[WireOracle]) -> None:
        self._proxy = proxy
        self._open = open
        self._parser = httptools.HttpResponseParser(self)
        self.on_message_begin()

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._headers: dict[str, str] = {}
        self._rest = b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._oracle = self._open.popleft()
        if session := self._headers.get(_SESSION):
            self._proxy.join(session, self._oracle)

    def on_body(self, body: bytes) -> None:
        self._rest += body
        if self._headers.get("content-type", "").startswith("text/event-stream"):
            *events, self._rest = self._rest.replace(b"\r\n", b"\n").split(b"\n\n")
            for event in events:
                self._hear_event(event)

    def on_message_complete(self) -> None:
        if self._headers.get("content-type", "").startswith("application/json") and self._rest:
            # After the session has ended, the version of a 404 without an id is unknown.
            gone = self._parser.get_status_code() == 404 and b'"id"' not in self._rest
            (WireOracle() if gone else self._oracle).server_sent(self._rest)

    def _hear_event(self, event: bytes) -> None:
        fields = [line.partition(b":")[::2] for line in event.split(b"\n")]
        data = b"\n".join(value.removeprefix(b" ") for name, value in fields if name == b"data")
        if (b"event", b" endpoint") in fields:
            self._proxy.join(data.decode("latin-1"), self._oracle)
        elif data:
            self._oracle.server_sent(data)


@contextlib.contextmanager
def recorded_http_server(
    component: Path, *options: str, by: Sequence[str] = PLAIN
) -> Iterator[RecordingProxy]:
    """A component over HTTP, behind a proxy that checks all its messages against the schemas."""
    door = free_port()
    hosts = [f"--allow-host={name}:{door}" for name in ("localhost", "127.0.0.1")]
    with (
        http_server(component, *hosts, *options, by=by) as server,
        RecordingProxy(server, door) as proxy,
    ):
        yield proxy
