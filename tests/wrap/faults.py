"""A real `portico wrap` before a bad server, a client of it, and one that must not care."""

import http.client
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from sys import executable
from typing import Any, Self

from tests.support.running import PLAIN, WAIT_S, Child, initialize_params

VERSION = "2025-11-25"
MIB = 1024 * 1024
CAP = 16 * MIB
BOUND = 64 * MIB + CAP
"""The memory that Portico may grow by, for any output of one upstream."""

NAME = "the bad one"
"""The name of the bad server."""
ODD = [
    ("wrong-id", "right"),
    ("string-id", "right"),
    ("unasked", "right"),
    ("duplicate-id", "first"),
    ("bom", "after the mark"),
    ("crlf", "before the end"),
    ("duplicate-keys", "two"),
    ("case-keys", "right"),
]
"""Ways to answer that are odd but can be read, and the text to be had all the same."""

_BOTH = "application/json, text/event-stream"
_URL = re.compile(r"serving http://127\.0\.0\.1:(\d+)/mcp")


def failure(answer: dict[str, Any], kind: str) -> dict[str, Any]:
    """The error of an answer, which names the server and the kind."""
    error: dict[str, Any] = answer["error"]
    assert NAME in error["message"]
    assert (error["data"]["kind"], error["data"]["server"]) == (kind, NAME)
    return error


def wrap_command(home: Path, *words: str, by: Sequence[str] = PLAIN) -> list[str]:
    """The command line of `portico wrap`, with all that it keeps in a folder of the test's."""
    return portico_command(home, "wrap", *words, by=by)


def portico_command(home: Path, *words: str, by: Sequence[str] = PLAIN) -> list[str]:
    """The command line of any command, likewise; `by` is what runs it."""
    return ["env", f"PORTICO_HOME={home}", executable, *by, *words]


class Wrap(Child):
    """A running `portico wrap --http`."""

    verb = "wrap"

    def __init__(self, home: Path, *words: str, by: Sequence[str] = PLAIN) -> None:
        address = ("--http", "127.0.0.1:0", "--auth", "none", "--drain", "1")
        super().__init__(portico_command(home, self.verb, *address, *words, by=by), PIPE)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.port = self._bound()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        kin = descendants(self.process.pid)
        self.stop()
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert until(lambda: not alive(kin)), "it left processes behind"

    def client(self, capabilities: dict[str, Any] | None = None) -> "Client":
        """A client with a session of its own."""
        return Client(self.port, capabilities)

    def peak(self) -> int:
        """The most memory it ever had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])

    def kin(self) -> int:
        """How many processes it has started that still run."""
        return len(descendants(self.process.pid))

    def files(self) -> int:
        """How many files, pipes and sockets it has open."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def _bound(self) -> int:
        found: list[str] = []

        def said() -> bool:
            found.extend(_URL.findall(self.stderr()))
            return bool(found) or self.process.poll() is not None

        if not until(said) or not found:
            words = self.stderr()
            self.stop()
            raise RuntimeError(f"it does not serve:\n{words}")
        return int(found[0])


class Client:
    """A legacy client over HTTP, one request at a time."""

    path = "/mcp"

    def __init__(self, port: int, capabilities: dict[str, Any] | None = None) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=2 * WAIT_S)
        self._port = port
        self._ids = 0
        self.headers = {"content-type": "application/json", "accept": _BOTH}
        hello = {**initialize_params(VERSION), "capabilities": capabilities or {}}
        self.hello = self.ask("initialize", hello)
        self.headers["mcp-protocol-version"] = VERSION
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.request("DELETE", self.path, headers=self.headers)
        self._http.getresponse().read()
        self._http.close()

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """The one answer to a request."""
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params or {}}
        messages = self._post(message)
        answers = [message for message in messages if "method" not in message]
        assert len(answers) == 1, messages
        assert answers[0]["id"] == self._ids
        return answers[0]

    def call(self, tool: str, within: float | None = None, **arguments: Any) -> dict[str, Any]:
        """The answer to the call of a tool."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if within is not None:
            params["_meta"] = {"portico/timeoutS": within}
        return self.ask("tools/call", params)

    def said(self, tool: str, **arguments: Any) -> str:
        """The text that a tool answers."""
        answer = self.call(tool, **arguments)
        assert "result" in answer, answer
        text: str = answer["result"]["content"][0]["text"]
        return text

    @contextmanager
    def listening(self) -> Iterator[list[dict[str, Any]]]:
        """Collect the messages on the session's own stream while the block runs."""
        stream = http.client.HTTPConnection("127.0.0.1", self._port, timeout=2 * WAIT_S)
        stream.request("GET", self.path, headers={**self.headers, "accept": "text/event-stream"})
        response = stream.getresponse()
        assert response.status == 200
        heard: list[dict[str, Any]] = []

        def read() -> None:
            events = (line[6:] for line in response if line.startswith(b"data: {"))
            heard.extend(json.loads(event) for event in events)

        reader = threading.Thread(target=_unless_closed(read), daemon=True)
        reader.start()
        try:
            yield heard
        finally:
            stream.sock.shutdown(socket.SHUT_RDWR)
            reader.join(WAIT_S)
            response.close()
            stream.close()

    def _post(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        self._http.request("POST", self.path, json.dumps(message).encode(), self.headers)
        response = self._http.getresponse()
        body = response.read()
        session = response.headers.get("mcp-session-id")
        if session:
            self.headers["mcp-session-id"] = session
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            lines = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")]
        else:
            lines = [body] if body else []
        return [json.loads(line, parse_int=_number) for line in lines]


class Steady:
    """A client that calls `echo` all the time, and whom nothing may disturb."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._call, daemon=True)
        self.calls = 0
        self.wrong: list[str] = []

    def __enter__(self) -> Self:
        self._once()
        self._thread.start()
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        self._stop.set()
        self._thread.join(2 * WAIT_S)
        if failed is None:
            assert not self.wrong, self.wrong
            assert not self._thread.is_alive(), f"call {self.calls} was not answered"

    def _call(self) -> None:
        while not self._stop.wait(0.01):
            self._once()

    def _once(self) -> None:
        try:
            answer = self._client.call("echo", text=f"steady {self.calls}")
            if answer.get("result", {}).get("content", [{}])[0].get("text", "") == "":
                self.wrong.append(json.dumps(answer))
        except (OSError, http.client.HTTPException) as error:
            self.wrong.append(repr(error))
        self.calls += 1


class Forward:
    """A port that stays the same, whatever server is behind it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target = 0
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/mcp"

    def __enter__(self) -> Self:
        threading.Thread(target=_unless_closed(self._serve), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leads_to("")
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def leads_to(self, url: str) -> None:
        """Connect to this server, or to none, from now on; cut open connections."""
        self._target = int(url.rpartition(":")[2].partition("/")[0]) if url else 0
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._open.clear()

    def _serve(self) -> None:
        while True:
            near, _ = self._listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            self._open += (near, far)
            for pair in ((near, far), (far, near)):
                threading.Thread(target=_pass_on, args=pair, daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)


@contextmanager
def bounded(portico: Wrap) -> Iterator[None]:
    """Whatever happens in the block, little memory is used for it and nothing of it is left."""
    before = portico.rss_kib() * 1024
    files, kin = portico.files(), portico.kin()
    yield
    grown = portico.peak() - before
    assert grown < BOUND, f"it grew by {grown // MIB} MiB"
    assert until(lambda: portico.kin() <= kin), "it left a process"
    assert until(lambda: portico.files() <= files + 2), "it left files open"


def until(done: Any, within_s: float = WAIT_S) -> bool:
    """Wait for what shows only from outside; False if it does not come."""
    deadline = time.monotonic() + within_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def descendants(pid: int) -> set[int]:
    """The processes that a process has started, and theirs."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            children.setdefault(_parent(folder), []).append(int(folder.name))
    found, todo = set[int](), [pid]
    while todo:
        new = children.get(todo.pop(), [])
        found.update(new)
        todo += new
    return found


def command_line(pid: int) -> str:
    """The words of a process's command; empty once it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ")
    except OSError:
        return ""


def alive(pids: set[int]) -> set[int]:
    """The processes that still run."""
    return {pid for pid in pids if _parent(Path(f"/proc/{pid}")) >= 0}


def _parent(folder: Path) -> int:
    try:
        state, parent = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
    except OSError:
        return -1
    return -1 if state in "ZX" else int(parent)


def _number(digits: str) -> int | str:
    return int(digits) if len(digits) < 100 else digits


def _unless_closed(read: Any) -> Any:
    def quietly() -> None:
        try:
            read()
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            return  # closed under its feet: the test is over

    return quietly
