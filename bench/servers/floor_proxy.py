"""The floor of a proxy over stdio: asyncio and msgspec envelopes; `--cache` keeps the list."""

import asyncio
import sys

import msgspec

from bench.servers.upstream_child import Child


class _Request(msgspec.Struct):
    method: str
    id: msgspec.Raw = msgspec.Raw(b"")
    params: msgspec.Raw = msgspec.Raw(b"")


_decode = msgspec.json.Decoder(_Request).decode


class _Front(asyncio.Protocol):
    def __init__(
        self, out: asyncio.WriteTransport, child: Child, over: asyncio.Event, *, cache: bool
    ) -> None:
        self._out, self._child, self._over, self._cache = out, child, over, cache
        self._rest = b""
        self._list = b""

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._pass_on(line)

    def _pass_on(self, line: bytes) -> None:
        request = _decode(line)
        if not request.id:
            self._child.tell(line)
            return
        head = b'{"jsonrpc":"2.0","id":' + request.id
        listing = self._cache and request.method == "tools/list"
        if listing and self._list:
            self._out.writelines((head, self._list))
            return

        def answered(what: bytes) -> None:
            what += b"\n"
            if listing:
                self._list = what
            self._out.writelines((head, what))

        self._child.ask(request.method.encode(), request.params, answered)

    def connection_lost(self, exc: Exception | None) -> None:
        self._over.set()


async def main() -> None:
    """Pass everything on until the client leaves."""
    loop, over, child = asyncio.get_running_loop(), asyncio.Event(), Child()
    cache = sys.argv[1] == "--cache"
    await child.start(sys.argv[2 if cache else 1 :])
    out, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout)
    await loop.connect_read_pipe(lambda: _Front(out, child, over, cache=cache), sys.stdin)
    await over.wait()


asyncio.run(main())
