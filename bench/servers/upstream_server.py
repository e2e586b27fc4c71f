"""The server behind every proxy: ready bytes over stdio.

It needs no more than the standard library and msgspec, so that little of what is measured is its
own. Its echo repeats the text a given number of times. A second argument is how many seconds it
thinks about its list.
"""

import os
import sys
import time
from pathlib import Path

import msgspec

_CHUNK = 64 * 1024
_LIST_S = float(sys.argv[2]) if __name__ == "__main__" and sys.argv[2:] else 0.0


class _Arguments(msgspec.Struct):
    text: str = ""
    repeat: int = 1


class _Params(msgspec.Struct):
    arguments: _Arguments = msgspec.field(default_factory=_Arguments)


class _Request(msgspec.Struct):
    method: str = ""
    id: msgspec.Raw = msgspec.Raw(b"")
    params: _Params = msgspec.field(default_factory=_Params)


_READY = {
    "initialize": b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
    b'"serverInfo":{"name":"bench","version":"1.0.0"}}',
    "tools/list": Path(sys.argv[1]).read_bytes(),
    "ping": b"{}",
}
_UNKNOWN = b',"error":{"code":-32601,"message":"Method not found"}}'
_decode = msgspec.json.Decoder(_Request).decode
_encode = msgspec.json.encode


def answer(message: bytes) -> bytes:
    """Return the answer to one message, empty for a notification."""
    request = _decode(message)
    if not request.id:
        return b""
    head = b'{"jsonrpc":"2.0","id":' + request.id
    if request.method == "tools/call":
        arguments = request.params.arguments
        text = _encode(arguments.text * arguments.repeat)
        return head + b',"result":{"content":[{"type":"text","text":' + text + b"}]}}"
    if request.method == "tools/list" and _LIST_S:
        time.sleep(_LIST_S)
    ready = _READY.get(request.method)
    return head + (_UNKNOWN if ready is None else b',"result":' + ready + b"}")


def serve_stdio() -> None:
    """Answer line by line until the client leaves."""
    rest: list[bytes] = []
    while data := os.read(0, _CHUNK):
        *lines, last = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*rest, lines[0]))
            rest.clear()
        rest.append(last)
        for found in map(answer, lines):
            left = memoryview(found + b"\n" if found else b"")
            while left:
                left = left[os.write(1, left) :]


if __name__ == "__main__":
    serve_stdio()
