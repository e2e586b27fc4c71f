"""The floor of a proxy over HTTP: a bare uvicorn callable; `--cache` keeps the list."""

import asyncio
import sys
from typing import Any

import msgspec
import uvicorn

from bench.servers.upstream_child import Child

_CACHE = sys.argv[1] == "--cache"
_PORT, *_UPSTREAM = sys.argv[2 if _CACHE else 1 :]


class _Request(msgspec.Struct):
    method: str
    id: msgspec.Raw
    params: msgspec.Raw = msgspec.Raw(b"")


_decode = msgspec.json.Decoder(_Request).decode


class _Front:
    def __init__(self) -> None:
        self._child: Child | None = None
        self._list = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        request = _decode(body)
        answer = b'{"jsonrpc":"2.0","id":' + request.id + await self._answer(request)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(answer)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, request: _Request) -> bytes:
        listing = _CACHE and request.method == "tools/list"
        if listing and self._list:
            return self._list
        if self._child is None:
            self._child = Child()
            await self._child.start(_UPSTREAM)
        found: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._child.ask(request.method.encode(), request.params, found.set_result)
        answer = await found
        if listing:
            self._list = answer
        return answer


uvicorn.run(
    _Front(),
    port=int(_PORT),
    loop="uvloop",
    http="httptools",
    lifespan="off",
    log_level="warning",
    access_log=False,
)
