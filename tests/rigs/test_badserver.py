"""Each mode of the bad server misbehaves as described; driven over plain pipes."""

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests.rigs.badmodes import MODES, ONLY_HTTP, SECRET
from tests.rigs.running import bad

pytestmark = pytest.mark.slow


class Pipes:
    """A bad server on its pipes."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = process.stdout
        self.stderr: IO[bytes] = process.stderr
        self._ids = 0

    def send(self, method: str, **params: Any) -> int:
        """Send a request; its id."""
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}
        self.stdin.write(json.dumps(message).encode() + b"\n")
        self.stdin.flush()
        return self._ids

    def call(self, tool: str, **arguments: Any) -> int:
        """Call a tool; the request's id."""
        return self.send("tools/call", name=tool, arguments=arguments)

    def hear(self) -> dict[str, Any]:
        """The next message."""
        message: dict[str, Any] = json.loads(self.stdout.readline())
        return message

    def said(self) -> str:
        """The text of the next answer."""
        text: str = self.hear()["result"]["content"][0]["text"]
        return text

    def echoes(self) -> bool:
        """True if its next message is the answer."""
        self.call("echo", text="still here")
        return self.said() == "still here"


@contextmanager
def server(*options: str) -> Iterator[Pipes]:
    pipe = subprocess.PIPE
    with subprocess.Popen(bad("stdio", *options), stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield Pipes(process)
        finally:
            process.kill()
            # Our buffer still has data, but the reader has exited.
            with contextlib.suppress(BrokenPipeError):
                process.communicate()


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode not in (*ONLY_HTTP, "exits")])
def test_but_for_its_mode_it_behaves(mode: str, tmp_path: Path) -> None:
    arguments = [str(tmp_path / "starts"), "1"] if mode == "exits-until" else []
    with server(mode, *arguments) as it:
        if mode == "banner":
            assert it.stdout.readline() + it.stdout.readline() == b"Welcome to the bad server!\n\n"
        it.send("initialize", protocolVersion="2025-06-18")
        assert it.hear()["result"]["protocolVersion"] == "2025-06-18"
        for method, key in (("resources/list", "resources"), ("prompts/list", "prompts")):
            it.send(method)
            assert it.hear()["result"][key]
        it.send("tools/list")
        assert it.hear()["result"]["tools"]
        it.send("server/discover")
        assert it.hear()["error"]["code"] == -32601
        assert it.echoes()


def test_a_mode_of_the_other_transport_is_refused() -> None:
    with server("trickle") as it:
        assert b"no mode trickle over stdio" in it.stderr.read()


def test_killed_dies_by_the_signal() -> None:
    with server("killed") as it:
        it.call("bad")
        assert it.stdout.read() == b""
        assert it.process.wait() == -signal.SIGKILL


def test_silent_never_answers() -> None:
    with server("silent") as it:
        it.call("bad")
        assert it.echoes()


def test_stops_reading_lets_the_pipe_fill() -> None:
    with server("stops-reading") as it:
        it.call("bad")
        os.set_blocking(it.stdin.fileno(), False)
        written = 0
        while select.select([], [it.stdin], [], 0.5)[1]:
            written += os.write(it.stdin.fileno(), b" " * 4096)
        assert 0 < written < 1_000_000


def test_garbage_is_a_million_lines() -> None:
    with server("garbage") as it:
        it.call("bad")
        for _ in range(1_000_000):
            assert it.stdout.readline() == b"this is no message\n"
        assert it.said() == "after the garbage"


def test_huge_is_one_line_of_100_mb_and_is_json() -> None:
    with server("huge") as it:
        it.call("bad")
        line = it.stdout.readline()
        assert len(line) == 100_000_001
        assert json.loads(line)["id"] == 1
        assert it.echoes()


def test_endless_is_past_300_mb_without_an_end() -> None:
    with server("endless") as it:
        it.call("bad")
        for _ in range(300):
            assert b"\n" not in it.stdout.read(1_000_000)


@pytest.mark.parametrize(
    ("mode", "part"),
    [
        ("deep", b"[" * 100_000 + b"]" * 100_000),
        ("bigint", b"9" * 100_000),
        ("nan", b"[NaN,Infinity,-Infinity]"),
        ("duplicate-keys", b'"text":"one","text":"two"'),
        ("case-keys", b'"ID":"other","id":1,"Result":{},"result"'),
        ("bad-utf8", b'"\xff\xfe\xc0\x80"'),
        ("bom", b'\xef\xbb\xbf{"jsonrpc"'),
        ("crlf", b"}\r\n"),
        ("surrogate", b'"\\ud800"'),
        ("nul", b'"a\x00b"'),
    ],
)
def test_the_answer_holds_what_it_should_not(mode: str, part: bytes) -> None:
    with server(mode) as it:
        it.call("bad")
        line = it.stdout.readline()
        assert part in line
        assert b'"id":1' in line
        assert it.echoes()


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
    with server(mode) as it:
        it.call("bad")
        assert [it.hear().get("id") for _ in ids] == ids
        assert it.echoes()


def test_half_ends_within_a_line() -> None:
    with server("half") as it:
        it.call("bad")
        rest = it.stdout.read()
        assert rest.startswith(b'{"jsonrpc":"2.0","id":1')
        assert not rest.endswith(b"}")
        assert b"\n" not in rest


def test_stderr_gets_100_mb_and_a_secret() -> None:
    with server("stderr") as it:
        it.call("bad")
        size, seen = 0, b""
        while not seen.endswith(b"Bearer " + SECRET.encode() + b"\n"):
            seen = it.stderr.readline()
            size += len(seen)
        assert size > 99_000_000
        assert it.said() == "after the noise"


def test_exits_ends_at_the_start() -> None:
    with server("exits", "3") as it:
        assert it.process.wait() == 3
        assert it.stderr.read() == b"no API key\n"


def test_exits_until_the_third_start(tmp_path: Path) -> None:
    for _ in range(2):
        with server("exits-until", str(tmp_path / "starts"), "3") as it:
            assert it.process.wait() == 1
    with server("exits-until", str(tmp_path / "starts"), "3") as it:
        assert it.echoes()


def test_storm_is_10000_changes_and_lists_are_counted() -> None:
    with server("storm") as it:
        it.call("bad")
        for _ in range(10_000):
            assert it.hear()["method"] == "notifications/tools/list_changed"
        assert it.said() == "after the storm"
        for _ in range(3):
            it.send("tools/list")
            it.hear()
        it.call("count")
        assert it.said() == "3"


def test_a_cursor_never_ends() -> None:
    with server("cursor") as it:
        cursor = "0"
        for page in range(1000):
            it.send("tools/list", cursor=cursor)
            result = it.hear()["result"]
            assert result["tools"][0]["name"] == f"tool-{page}"
            cursor = result["nextCursor"]


def test_many_is_100000_tools_in_one_answer() -> None:
    with server("many") as it:
        it.send("tools/list")
        assert len(it.hear()["result"]["tools"]) > 100_000


def test_bad_takes_its_mode_as_an_argument() -> None:
    with server("plain") as it:
        it.call("bad", mode="duplicate-id")
        assert [it.said(), it.said()] == ["first", "second"]
        it.call("bad")
        assert it.said() == "well"


def test_what_does_not_exist_is_refused() -> None:
    with server("plain") as it:
        for tool, arguments in (("none", {}), ("echo", {"x": 1}), ("bad", {"mode": "none"})):
            it.call(tool, **arguments)
            assert it.hear()["error"]["code"] == -32602
        assert it.echoes()


def test_extra_fields_are_at_every_level() -> None:
    with server("extra") as it:
        it.send("initialize", protocolVersion="2025-11-25")
        result = it.hear()["result"]
        for level in (result, result["capabilities"]["tools"], result["serverInfo"]):
            assert level["x-extra"] is True
        it.send("tools/list")
        result = it.hear()["result"]
        for level in (result, result["tools"][0], result["tools"][0]["inputSchema"]):
            assert level["x-extra"] is True
        it.call("fail")
        error = it.hear()["error"]
        assert error["code"] == 1234
        assert error["data"] == {"why": ["because", None]}
        assert error["x-extra"] is True
        it.call("bad")
        assert it.hear()["method"] == "notifications/x/unknown"
        assert it.hear()["result"]["resultType"] == "x/odd"


def test_an_unknown_method_gives_back_its_params_byte_for_byte() -> None:
    params = b'{"a" : 1e3,  "A":[ ],"\\u0061":12345678901234567890.10}'
    with server("extra") as it:
        it.stdin.write(b'{"jsonrpc":"2.0", "id":"q" ,"method":"x/echo","params": %s }\n' % params)
        it.stdin.flush()
        assert it.stdout.readline() == b'{"jsonrpc":"2.0","id":"q","result":%s}\n' % params


def test_slow_reports_progress_and_others_pass_it() -> None:
    with server("plain") as it:
        meta = {"progressToken": "t"}
        it.send("tools/call", name="slow", arguments={"ms": 300, "steps": 3}, _meta=meta)
        assert it.echoes()
        assert [it.hear()["params"]["progress"] for _ in range(3)] == [1, 2, 3]
        assert it.said() == "slept 300 ms"


def test_slow_gives_no_answer_when_cancelled() -> None:
    with server("plain") as it:
        id = it.call("slow", ms=100_000)
        note = {"method": "notifications/cancelled", "params": {"requestId": id}}
        it.stdin.write(json.dumps({"jsonrpc": "2.0", **note}).encode() + b"\n")
        it.stdin.flush()
        while it.call("count", method="cancelled") and it.said() != "1":
            pass
        assert it.echoes()


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("elicitation", "elicitation/create"),
        ("sampling", "sampling/createMessage"),
        ("roots", "roots/list"),
    ],
)
def test_ask_asks_and_says_the_answer(kind: str, method: str) -> None:
    with server("plain") as it:
        it.call("ask", kind=kind)
        question = it.hear()
        assert question["method"] == method
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": {"made": "up"}}
        it.stdin.write(json.dumps(answer).encode() + b"\n")
        it.stdin.flush()
        assert it.said() == '{"made":"up"}'


def test_log_speaks_at_every_level() -> None:
    with server("plain") as it:
        it.call("log")
        levels = [it.hear()["params"]["level"] for _ in range(8)]
        assert levels[0] == "debug"
        assert levels[-1] == "emergency"
        assert it.said() == "logged"


def test_an_update_is_told_to_those_who_watch() -> None:
    with server("plain") as it:
        it.call("update")
        assert it.said() == "nobody watches"
        it.send("resources/subscribe", uri="test://note")
        assert it.hear()["result"] == {}
        it.call("update")
        assert it.hear()["params"] == {"uri": "test://note"}
        assert it.said() == "told"
