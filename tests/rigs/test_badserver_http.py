"""The bad server over HTTP, driven with nothing but sockets."""

import gzip
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.rigs.running import bad, listening

WAIT_S = 60.0
pytestmark = pytest.mark.slow


class Web:
    """A client with one session."""

    def __init__(self, url: str) -> None:
        self._port = urlsplit(url).port
        self.session = ""
        self.connection = http.client.HTTPConnection("127.0.0.1", self._port or 0, timeout=WAIT_S)

    def post(self, method: str, id: Any = 1, **params: Any) -> http.client.HTTPResponse:
        """Send a request; the answer, unread."""
        self.connection.request("POST", "/mcp", self._body(method, id, params), self._headers())
        return self.connection.getresponse()

    def initialize(self) -> None:
        """Open a session."""
        self.session = ""
        answer = self.post("initialize", protocolVersion="2025-11-25")
        self.session = answer.headers["Mcp-Session-Id"]
        answer.read()

    def bad(self) -> http.client.HTTPResponse:
        """Call for what the mode does."""
        return self.post("tools/call", name="bad")

    def echoes(self) -> bool:
        """True if it still does what it should."""
        answer = self.post("tools/call", name="echo", arguments={"text": "here"})
        return said(messages(answer.read())[-1]) == "here"

    def raw(self) -> socket.socket:
        """A connection on which only the call for the mode was sent."""
        body = self._body("tools/call", 1, {"name": "bad"})
        sock = socket.create_connection(("127.0.0.1", self._port or 0), WAIT_S)
        head = "".join(f"{name}: {value}\r\n" for name, value in self._headers().items())
        start = f"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{head}\r\n"
        sock.sendall(start.encode() + body)
        return sock

    @contextmanager
    def stream(self) -> Iterator[http.client.HTTPResponse]:
        """The session's own stream, opened."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port or 0, timeout=WAIT_S)
        connection.request("GET", "/mcp", headers=self._headers())
        answer = connection.getresponse()
        assert answer.readline() + answer.readline() == b": open\n\n"
        with closing(connection), closing(answer):
            yield answer

    def _body(self, method: str, id: Any, params: dict[str, Any]) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()

    def _headers(self) -> dict[str, str]:
        return {"Mcp-Session-Id": self.session} if self.session else {}


def messages(body: bytes) -> list[Any]:
    """The messages of a stream, or the one of a body."""
    if body.startswith(b"{"):
        return [json.loads(body)]
    return [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: ")]


def said(message: Any) -> str:
    text: str = message["result"]["content"][0]["text"]
    return text


@contextmanager
def server(*options: str) -> Iterator[Web]:
    with listening(bad("http", *options)) as url:
        web = Web(url)
        web.initialize()
        try:
            yield web
        finally:
            web.connection.close()


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["streams", "bodies"])
def test_sessions_are_kept(form: tuple[str, ...]) -> None:
    with server("plain", *form) as web:
        assert web.echoes()
        web.connection.request("DELETE", "/mcp", headers={"Mcp-Session-Id": web.session})
        assert web.connection.getresponse().read() == b""
        assert web.post("ping").status == 404
        web.connection.close()
        web.session = ""
        assert web.post("ping").status == 400


def test_a_lost_session_is_not_found_and_a_new_one_is() -> None:
    with server("session-lost", "3") as web:
        assert [web.echoes() for _ in range(3)] == [True] * 3
        for _ in range(2):
            answer = web.post("ping")
            answer.read()
            assert answer.status == 404
        web.initialize()
        assert web.echoes()


@pytest.mark.parametrize("code", ["500", "502", "503"])
def test_a_status_has_no_message(code: str) -> None:
    with server("status", code) as web:
        answer = web.bad()
        assert (answer.status, answer.read()) == (int(code), b"<h1>Sorry</h1>")
        assert web.echoes()


def test_reset_comes_in_the_middle_of_a_stream() -> None:
    with server("reset") as web:
        seen: list[bytes] = []
        with web.raw() as sock, pytest.raises(ConnectionResetError):
            seen.extend(iter(lambda: sock.recv(65536), b""))
        assert b"text/event-stream" in b"".join(seen)
        assert b"so far, so good" in b"".join(seen)
        assert web.echoes()


def test_a_gzip_bomb_is_1_gb_out_of_1_mb() -> None:
    with server("gzip-bomb") as web:
        answer = web.bad()
        assert answer.headers["Content-Encoding"] == "gzip"
        body = answer.read()
        assert len(body) < 1_500_000
        size, tail = 0, b""
        with gzip.GzipFile(fileobj=BytesIO(body)) as file:
            while part := file.read(10_000_000):
                size, tail = size + len(part), part
        assert size > 1_000_000_000
        assert said(json.loads(tail)) == "after the blanks"
        assert web.echoes()


def test_a_redirect_leads_to_itself() -> None:
    with server("redirect") as web:
        for _ in range(30):
            answer = web.bad()
            answer.read()
            assert (answer.status, answer.headers["Location"]) == (307, "/mcp")
        assert web.echoes()


def test_a_header_is_1_mb() -> None:
    with server("big-header") as web, web.raw() as sock, sock.makefile("rb") as file:
        assert file.readline() == b"HTTP/1.1 200 OK\r\n"
        assert len(file.readline()) > 1_000_000


def test_a_trickle_is_a_byte_at_a_time() -> None:
    with server("trickle", "0.02") as web, web.raw() as sock:
        seen = b""
        while not seen.endswith(b"\r\n\r\n"):
            seen += sock.recv(1)
        parts = [sock.recv(65536) for _ in range(20)]
        assert max(len(part) for part in parts) <= 3
        assert b"".join(parts).startswith(b'{"jsonrpc"')


def test_silent_sends_nothing_or_only_a_head() -> None:
    with server("silent") as web, web.raw() as sock:
        assert web.echoes()
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(1)
    with server("silent", "stream") as web:
        assert web.bad().status == 200


def test_killed_takes_the_port_with_it() -> None:
    with server("killed") as web:
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            web.bad()
        assert refused(web)


def refused(web: Web) -> bool:
    """True once the port is closed; a dying process closes its sockets one by one."""
    while True:
        web.connection.close()
        try:
            web.initialize()
        except ConnectionRefusedError:
            return True
        except ConnectionError:
            continue


def test_half_ends_within_a_message() -> None:
    with server("half") as web:
        answer = web.bad()
        with pytest.raises(http.client.IncompleteRead):
            answer.read()


@pytest.mark.parametrize(
    ("mode", "ids"),
    [
        ("wrong-id", [987654321, 1]),
        ("string-id", ["1", 1]),
        ("duplicate-id", [1, 1]),
        ("unasked", [None, None, "nobody", 1]),
    ],
)
def test_answers_come_to_other_questions(mode: str, ids: list[Any]) -> None:
    with server(mode) as web:
        assert [message.get("id") for message in messages(web.bad().read())] == ids


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["streams", "bodies"])
@pytest.mark.parametrize(
    ("mode", "part"),
    [
        ("deep", b"[" * 100_000),
        ("nan", b"NaN"),
        ("bad-utf8", b"\xff\xfe"),
        ("bom", b'\xef\xbb\xbf{"jsonrpc"'),
        ("nul", b"\x00"),
        ("huge", b"x" * 1_000_000),
    ],
)
def test_the_answer_holds_what_it_should_not(mode: str, part: bytes, form: tuple[str, ...]) -> None:
    with server(mode, *form) as web:
        answer = web.bad()
        kind = "application/json" if form else "text/event-stream"
        assert answer.headers["Content-Type"] == kind
        assert part in answer.read()
        assert web.echoes()


def test_garbage_is_events_that_are_no_messages() -> None:
    with server("garbage", "5000") as web:
        body = web.bad().read()
        assert body.count(b"data: this is no message\n\n") == 5000
        assert b"after the garbage" in body


def test_endless_is_past_100_mb_without_an_end() -> None:
    with server("endless") as web:
        answer = web.bad()
        for _ in range(100):
            assert b"\n" not in answer.read(1_000_000)
        answer.close()


def test_a_storm_comes_on_the_stream_of_the_session() -> None:
    with server("storm", "--json") as web, web.stream() as stream:
        assert said(messages(web.bad().read())[0]) == "after the storm"
        for _ in range(10_000):
            assert b"tools/list_changed" in stream.readline()
            assert stream.readline() == b"\n"


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["streams", "bodies"])
def test_ask_asks_and_says_the_answer(form: tuple[str, ...]) -> None:
    with server("plain", *form) as web, web.stream() as stream:
        other = Web(f"http://127.0.0.1:{web.connection.port}/mcp")
        other.session = web.session
        body = json.dumps(
            {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "ask"}}
        )
        web.connection.request("POST", "/mcp", body, {"Mcp-Session-Id": web.session})
        answer = None if form else web.connection.getresponse()
        question = json.loads((answer or stream).readline()[6:])
        assert question["method"] == "elicitation/create"
        reply = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}
        headers = {"Mcp-Session-Id": web.session}
        other.connection.request("POST", "/mcp", json.dumps(reply), headers)
        assert other.connection.getresponse().status == 202
        other.connection.close()
        answer = answer or web.connection.getresponse()
        assert said(messages(answer.read())[-1]) == '{"action":"decline"}'


def test_an_update_comes_on_the_stream_of_the_session() -> None:
    with server("plain") as web, web.stream() as stream:
        web.post("resources/subscribe", uri="test://note").read()
        assert said(messages(web.post("tools/call", name="update").read())[-1]) == "told"
        assert b"notifications/resources/updated" in stream.readline()
