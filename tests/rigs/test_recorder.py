"""The recorder keeps every byte it receives and sends every byte of its script."""

import http.client
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.rigs.recorder import recorded
from tests.rigs.running import listening, recorder

HEARD = [
    b'{"jsonrpc":"2.0", "id": 1,"method":"initialize","params":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
    b'{ "id":"\xc3\xa9","jsonrpc":"2.0","method":"tools/call","params":{"n":1.0e+2,"n":[]}}',
    b'{"jsonrpc":"2.0","id":3,"method":"tools/call"}',
    b'{"jsonrpc":"2.0","id":4,"method":"tools/call"}',
    b'{"jsonrpc":"2.0","id":5,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":6,"method":"x/none"}',
    b'{"jsonrpc":"2.0","id":"nobody","result":{}}',
]
SCRIPT = b"""\
# What to say.
tools/call before {"jsonrpc":"2.0","method":"notifications/x", "params":{"a" :1}}
tools/call result { "content":[],"b":1E400,"b":"\\ud800" }
tools/call result {"content":[] }
ping error {"code":7,"message":"no", "data": [ ]}
"""
BEFORE = b'{"jsonrpc":"2.0","method":"notifications/x", "params":{"a" :1}}'
SAID = [
    BEFORE,
    b'{"jsonrpc":"2.0","id":"\xc3\xa9","result":{ "content":[],"b":1E400,"b":"\\ud800" }}',
    BEFORE,
    b'{"jsonrpc":"2.0","id":3,"result":{"content":[] }}',
    BEFORE,
    b'{"jsonrpc":"2.0","id":4,"result":{"content":[] }}',
    b'{"jsonrpc":"2.0","id":5,"error":{"code":7,"message":"no", "data": [ ]}}',
    b'{"jsonrpc":"2.0","id":6,"error":{"code":-32601,"message":"Method not found"}}',
]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "script"
    file.write_bytes(SCRIPT)
    return file


def test_over_stdio_every_byte_is_kept(script: Path, tmp_path: Path) -> None:
    recording = tmp_path / "heard"
    lines = [*(line + b"\n" for line in HEARD), b"no json at all\r\n", b"\xff\n"]
    done = subprocess.run(
        recorder("stdio", str(recording), str(script)),
        input=b"".join(lines),
        capture_output=True,
        check=True,
    )
    said = done.stdout.splitlines()
    assert said[1:] == SAID
    assert recorded(Path(f"{recording}.sent")) == said
    assert recorded(recording) == lines


def test_over_http_every_byte_is_kept(script: Path, tmp_path: Path) -> None:
    recording = tmp_path / "heard"
    with listening(recorder("http", str(recording), str(script))) as url:
        connection = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port or 0, timeout=20)
        headers = {"X-Kept": "yes"}
        said = []
        for body in [*HEARD, b"{\n\xff"]:
            connection.request("POST", "/mcp", body, headers)
            answer = connection.getresponse()
            headers["Mcp-Session-Id"] = (
                answer.headers["Mcp-Session-Id"] or headers["Mcp-Session-Id"]
            )
            events = answer.read().split(b"\n\n")
            said += [event.removeprefix(b"data: ") for event in events if event]
        connection.close()
    assert said[1:] == SAID
    assert recorded(Path(f"{recording}.sent")) == said
    assert recorded(recording) == [*HEARD, b"{\n\xff"]
    heads = recorded(Path(f"{recording}.heads"))
    assert len(heads) == len(HEARD) + 1
    assert all(b"X-Kept: yes\r\n" in head for head in heads)
