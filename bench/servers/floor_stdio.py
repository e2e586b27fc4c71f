"""The floor over stdio: asyncio, a msgspec envelope and ready bytes; it checks nothing."""

import asyncio
import sys
from pathlib import Path

import msgspec


class _Envelope(msgspec.Struct):
    method: str
    id: msgspec.Raw = msgspec.Raw(b"")


_ANSWERS = {
    "initialize": b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},'
    b'"serverInfo":{"name":"bench","version":"1.0.0"}}',
    "tools/list": Path(sys.argv[1]).read_bytes(),
    "tools/call": b'{"content":[{"type":"text",'
    b'"text":"The quick brown fox jumps over the lazy dog."}]}',
}
_decode = msgspec.json.Decoder(_Envelope).decode


class _Server(asyncio.Protocol):
    def __init__(self, out: asyncio.WriteTransport, over: asyncio.Event) -> None:
        self._out = out
        self._over = over
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            request = _decode(line)
            if request.id:
                answer = _ANSWERS[request.method]
                parts = (b'{"jsonrpc":"2.0","id":', request.id, b',"result":', answer, b"}\n")
                self._out.writelines(parts)

    def connection_lost(self, exc: Exception | None) -> None:
        self._over.set()


async def main() -> None:
    """Serve until the client leaves."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
    await loop.connect_read_pipe(lambda: _Server(out, over), sys.stdin)
    await over.wait()


asyncio.run(main())
