"""The ways to be bad: what the tool `bad` does, by mode. Only the standard library.

A mode's further arguments come from the command line, as words.
"""

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.rigs.door import HttpCall
from tests.rigs.wire import Call, dumps

SECRET = "sk-SECRET-0123456789abcdef"
PIECE = b"x" * 65536


def said(call: Call, words: str, id: Any = None) -> bytes:
    """A whole answer with a text, for any id."""
    raw = call.id if id is None else dumps(id)
    result = dumps({"content": [{"type": "text", "text": words}]})
    return b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (raw, result)


def holding(call: Call, value: bytes) -> bytes:
    """A whole answer with something in its structured content."""
    return b'{"jsonrpc":"2.0","id":%s,"result":{"content":[],"structuredContent":{"value":%s}}}' % (
        call.id,
        value,
    )


# Gone, silent or deaf.


def killed(call: Call) -> None:
    """Die in the middle of a call, as by kill -9."""
    os.kill(os.getpid(), signal.SIGKILL)


def silent(call: Call, stream: str = "") -> None:
    """Never answer; with `stream`, over HTTP only after the head."""
    if stream and isinstance(call, HttpCall):
        call.open()
        threading.Event().wait()


def stops_reading(call: Call) -> None:
    """Read nothing more from stdin, nor from this connection."""
    threading.Event().wait()


def half(call: Call) -> None:
    """Send half an answer, then exit."""
    whole = said(call, "never whole")
    call.stream([whole[: len(whole) // 2]], b"")
    os._exit(0)


# Too much.


def garbage(call: Call, lines: str = "1000000") -> None:
    """Send thousands of lines that are not messages, then the answer."""
    for _ in range(int(lines) // 1000):
        call.burst([b"this is no message"] * 1000)
    call.text("after the garbage")


def huge(call: Call, size: str = "100000000") -> None:
    """Answer in one line of 100 MB."""
    opening, closing = said(call, "|").split(b"|")
    whole, rest = divmod(int(size) - len(opening) - len(closing), len(PIECE))
    call.stream([opening, *itertools.repeat(PIECE, whole), PIECE[:rest] + closing])


def endless(call: Call) -> None:
    """Answer in a line that never ends."""
    opening, _ = said(call, "|").split(b"|")
    call.stream(itertools.chain([opening], itertools.repeat(PIECE)))


def stderr(call: Call, size: str = "100000000") -> None:
    """Flood stderr, a secret in it, then answer."""
    os.write(2, f"connecting with token={SECRET}\n".encode())
    line = b"noise " * 1000 + b"\n"
    for _ in range(int(size) // len(line)):
        os.write(2, line)
    os.write(2, f"Authorization: Bearer {SECRET}\n".encode())
    call.text("after the noise")


def storm(call: Call, number: str = "10000") -> None:
    """Say 10,000 times that the tools have changed, then answer."""
    for _ in range(int(number)):
        call.broadcast(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}')
    call.text("after the storm")


# Work for the one who reads it.


def nested(call: Call, size: str = "14000000") -> None:
    """Answer with 14 MB of lists in lists, none of them too deep."""
    piece = b"[" * 100 + b"]" * 100
    call.emit(holding(call, b"[%s]" % b",".join([piece] * (int(size) // 201))))


def links(call: Call, number: str = "150000") -> None:
    """Answer with 150,000 links."""
    link = b'{"type":"resource_link","name":"n","uri":"linked://host/%d"}'
    blocks = b",".join([link % at for at in range(int(number))])
    call.raw_result(b'{"content":[%s]}' % blocks)


def batch(call: Call, size: str = "14000000") -> None:
    """Send millions of members of one batch, then the answer."""
    call.emit(b"[%s1]" % (b"1," * (int(size) // 2)))
    call.text("after the batch")


def chatter(call: Call) -> None:
    """Send log messages forever, and no answer."""
    _for_ever(call, [_log(b'"all is well"')] * 1000)


def too_deep(call: Call, size: str = "1000000") -> None:
    """Alternate between deeply nested and valid messages forever; send no answer."""
    deep = b"[" * 200 + b"]" * 200
    bad = _log(b"[%s]" % b",".join([deep] * (int(size) // 401)))
    _for_ever(call, [bad, _log(b'"all is well"')])


def _log(data: bytes) -> bytes:
    head = b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":'
    return head + data + b"}}"


def _for_ever(call: Call, messages: list[bytes]) -> None:
    while True:
        call.burst(messages)


# Invalid JSON, or JSON that parsers disagree on.


def deep(call: Call, depth: str = "100000") -> None:
    """Answer with lists in lists."""
    call.emit(holding(call, b"[" * int(depth) + b"]" * int(depth)))


def bigint(call: Call, digits: str = "100000") -> None:
    """Answer with a number of many digits."""
    call.emit(holding(call, b"9" * int(digits)))


def nan(call: Call) -> None:
    """Answer with what JSON has no numbers for."""
    call.emit(holding(call, b"[NaN,Infinity,-Infinity]"))


def duplicate_keys(call: Call) -> None:
    """Answer with each key twice."""
    call.emit(
        b'{"jsonrpc":"2.0","id":%s,"result":{"content":[],"content":[{"type":"text",'
        b'"text":"one","text":"two"}]},"id":%s}' % (call.id, call.id)
    )


def case_keys(call: Call) -> None:
    """Answer with keys that differ in case only."""
    call.emit(
        b'{"JSONRPC":"1.0","jsonrpc":"2.0","ID":"other","id":%s,"Result":{},"result":{'
        b'"Content":[],"content":[{"type":"text","TEXT":"wrong","text":"right"}]}}' % call.id
    )


# Answers to other questions.


def wrong_id(call: Call) -> None:
    """Answer another id first."""
    call.emit(said(call, "wrong", 987654321))
    call.text("right")


def duplicate_id(call: Call) -> None:
    """Answer twice."""
    call.text("first")
    call.text("second")


def string_id(call: Call) -> None:
    """Answer the id as a string first."""
    call.emit(said(call, "wrong", str(call.message["id"])))
    call.text("right")


def unasked(call: Call) -> None:
    """Send answers without an id, or with an unknown one, before the answer."""
    call.emit(b'{"jsonrpc":"2.0","id":null,"result":{}}')
    call.emit(b'{"jsonrpc":"2.0","result":{}}')
    call.emit(b'{"jsonrpc":"2.0","id":"nobody","error":{"code":-1,"message":"to nobody"}}')
    call.text("right")


# Bytes that are not text.


def bad_utf8(call: Call) -> None:
    """Answer with bytes that no encoding allows."""
    call.emit(holding(call, b'"\xff\xfe\xc0\x80"'))


def bom(call: Call) -> None:
    """Answer after a byte order mark."""
    call.emit(b"\xef\xbb\xbf" + said(call, "after the mark"))


def crlf(call: Call) -> None:
    """Answer with the line end of Windows."""
    call.emit(said(call, "before the end"), b"\r\n")


def surrogate(call: Call) -> None:
    """Answer with half a pair."""
    call.emit(holding(call, b'"\\ud800"'))


def nul(call: Call) -> None:
    """Answer with a NUL inside a text."""
    call.emit(holding(call, b'"a\x00b"'))


# HTTP gone wrong.


def status(call: Call, code: str = "503") -> None:
    """Answer with a status and no MCP."""
    http(call).write(
        b"HTTP/1.1 %s Sorry\r\nContent-Type: text/html\r\nContent-Length: 14\r\n\r\n<h1>Sorry</h1>"
        % code.encode()
    )


def reset(call: Call) -> None:
    """Reset the connection in the middle of a stream."""
    call.notify("notifications/message", {"level": "info", "data": "so far, so good"})
    call.stream([b'{"jsonrpc":"2.0",'], b"")
    http(call).reset()


def gzip_bomb(call: Call, size: str = "1000000000") -> None:
    """Answer 1 GB of blanks, and then the message, in 1 MB of gzip."""
    import gzip

    blanks = gzip.compress(b" " * 10_000_000, 9)
    # Members of gzip may follow each other, so one is enough to repeat.
    body = blanks * (int(size) // 10_000_000) + gzip.compress(said(call, "after the blanks"))
    http(call).write(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )


def redirect(call: Call) -> None:
    """Send the client to where it is."""
    http(call).write(
        b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /mcp\r\nContent-Length: 0\r\n\r\n"
    )


def big_header(call: Call, size: str = "1000000") -> None:
    """Answer with a header of 1 MB."""
    body = said(call, "after the header")
    http(call).write(
        b"HTTP/1.1 200 OK\r\nX-Big: %s\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (b"x" * int(size), len(body), body)
    )


def trickle(call: Call, seconds: str = "1") -> None:
    """Answer a byte at a time."""
    body = said(call, "drop by drop")
    answer = http(call)
    answer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
    )
    for byte in body:
        answer.write(bytes((byte,)))
        time.sleep(float(seconds))


def http(call: Call) -> HttpCall:
    """The call, whose answer is now the mode's alone."""
    assert isinstance(call, HttpCall), "this mode is for HTTP"
    call.answered = True
    return call


# Beyond the spec.


def extra(call: Call) -> None:
    """Send a notification and an answer of unknown kinds."""
    call.notify("notifications/x/unknown", {"x-extra": [1, {"two": None}]})
    call.result({"resultType": "x/odd", "x-extra": {"deep": [True]}, "content": []})


def plain(call: Call, *_: str) -> None:
    """Answer correctly; the fault is elsewhere."""
    call.text("well")


# The numbers are the rows of the upstream faults in ../shared/reference/reliability.md.
MODES: dict[str, Callable[..., None]] = {
    "killed": killed,  # U1
    "silent": silent,  # U2
    "stops-reading": stops_reading,  # U3
    "garbage": garbage,  # U4
    "huge": huge,  # U5
    "endless": endless,
    "deep": deep,  # U6
    "bigint": bigint,
    "nan": nan,
    "duplicate-keys": duplicate_keys,
    "case-keys": case_keys,
    "wrong-id": wrong_id,  # U7
    "duplicate-id": duplicate_id,
    "string-id": string_id,
    "unasked": unasked,
    "bad-utf8": bad_utf8,  # U8
    "bom": bom,
    "crlf": crlf,
    "surrogate": surrogate,
    "nul": nul,
    "half": half,  # U9
    "stderr": stderr,  # U10
    "exits": plain,  # U11; at the start, in badserver.py
    "exits-until": plain,
    "storm": storm,  # U12
    "nested": nested,
    "links": links,
    "batch": batch,
    "chatter": chatter,
    "too-deep": too_deep,
    "status": status,  # U13
    "reset": reset,
    "gzip-bomb": gzip_bomb,
    "redirect": redirect,
    "big-header": big_header,
    "trickle": trickle,
    "session-lost": plain,  # in door.py
    "cursor": plain,  # U14; in the lists of badserver.py
    "many": plain,
    "schema": plain,
    "extra": extra,
    "banner": plain,
    "plain": plain,
}
ONLY_HTTP = ("status", "reset", "gzip-bomb", "redirect", "big-header", "trickle", "session-lost")
ONLY_STDIO = ("banner",)
