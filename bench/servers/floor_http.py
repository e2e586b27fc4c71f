"""The floor over HTTP: uvicorn and a callable that answers ready bytes and checks nothing."""

import sys
from pathlib import Path
from typing import Any

import uvicorn

_TAIL = (
    b',"resultType":"complete","ttlMs":0,"cacheScope":"private",'
    b'"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1.0.0"}}}}'
)
_LIST = b'{"jsonrpc":"2.0","id":100,"result":' + Path(sys.argv[1]).read_bytes()[:-1] + _TAIL
_CALL = (
    b'{"jsonrpc":"2.0","id":100,"result":{"content":[{"type":"text",'
    b'"text":"The quick brown fox jumps over the lazy dog."}]' + _TAIL
)


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Read the body, answer the same bytes every time."""
    body = b""
    more = True
    while more:
        message = await receive()
        body += message["body"]
        more = message["more_body"]
    answer = _CALL if b'"tools/call"' in body else _LIST
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(answer)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


uvicorn.run(
    app,
    port=int(sys.argv[2]),
    loop="uvloop",
    http="httptools",
    lifespan="off",
    log_level="warning",
    access_log=False,
)
