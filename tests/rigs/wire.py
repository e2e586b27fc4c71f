"""The wire under the scripted upstreams: messages, and lines on pipes.

By hand, because what is scripted is also how the bytes are wrong. Only the standard library.
"""

import itertools
import json
import os
import queue
import re
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

_DECODER = json.JSONDecoder()
_BLANK = re.compile(r"[ \t\r\n]*")
_waiting: dict[Any, queue.Queue[dict[str, Any]]] = {}
_questions = itertools.count(1)


def dumps(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def raw_member(raw: bytes, wanted: str) -> bytes | None:
    """A member of an object as it was written, byte for byte."""
    text = raw.decode(errors="surrogateescape")
    at = _past_blanks(text, 0) + 1
    while text[at - 1] != "}" and text[_past_blanks(text, at)] != "}":
        key, at = _DECODER.raw_decode(text, _past_blanks(text, at))
        begin = _past_blanks(text, _past_blanks(text, at) + 1)
        _, end = _DECODER.raw_decode(text, begin)
        if key == wanted:
            return text[begin:end].encode(errors="surrogateescape")
        at = _past_blanks(text, end) + 1
    return None


def _past_blanks(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    assert found is not None
    return found.end()


class Call:
    """One message that came, and the way back to who sent it: here, our stdout."""

    session = ""
    _lock = threading.Lock()

    def __init__(self, raw: bytes) -> None:
        """Raises ValueError for JSON that is not an object."""
        self.raw = raw
        self.message: dict[str, Any] = json.loads(raw)
        if not isinstance(self.message, dict):
            raise ValueError("not an object")
        self.method: str = self.message.get("method", "")
        self.params: dict[str, Any] = self.message.get("params") or {}
        self.id = raw_member(raw, "id")

    def stream(self, parts: Iterable[bytes], end: bytes = b"\n") -> None:
        """Send one message in parts, as they are."""
        with self._lock:
            for part in parts:
                write_all(1, part)
            write_all(1, end)

    def emit(self, raw: bytes, end: bytes = b"\n") -> None:
        """Send one message as it is."""
        self.stream([raw], end)

    def burst(self, messages: list[bytes]) -> None:
        """Send many messages at once."""
        self.stream([b"".join(message + b"\n" for message in messages)], b"")

    def broadcast(self, raw: bytes) -> None:
        """Send one message to all who are connected."""
        self.emit(raw)

    def question(self, raw: bytes) -> None:
        """Send a request."""
        self.emit(raw)

    def result(self, result: Any) -> None:
        """Answer."""
        self.raw_result(dumps(result))

    def raw_result(self, result: bytes) -> None:
        """Answer with a result as it is."""
        self.emit(b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (self.id, result))

    def text(self, words: str) -> None:
        """Answer a tool call with a text."""
        self.result({"content": [{"type": "text", "text": words}]})

    def error(self, code: int, message: str, **more: Any) -> None:
        """Refuse."""
        error = dumps({"code": code, "message": message, **more})
        self.emit(b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (self.id, error))

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification on the way to the answer."""
        self.emit(dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the client, and wait for what it answers."""
        id = f"ask-{next(_questions)}"
        _waiting[id] = queue.Queue()
        self.question(dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
        return _waiting[id].get()


Handle = Callable[[Call], None]


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, past all buffers."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def take(call: Call, handle: Handle) -> None:
    """Hand on a message, unless it answers a question of ours."""
    waiting = None if call.method else _waiting.get(call.message.get("id"))
    if waiting is not None:
        waiting.put(call.message)
    elif call.method:
        handle(call)


def serve_stdio(
    handle: Handle,
    apart: Callable[[Call], bool] = lambda call: False,
    heard: Callable[[bytes], None] = lambda raw: None,
) -> None:
    """Serve our pipes until stdin ends; run the messages that `apart` selects in threads."""
    for line in sys.stdin.buffer:
        heard(line)
        try:
            call = Call(line)
        except (ValueError, RecursionError):
            continue
        if apart(call):
            threading.Thread(target=take, args=(call, handle), daemon=True).start()
        else:
            take(call, handle)
