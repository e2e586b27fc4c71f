"""Requests whose framing is odd, wrong or an attack, and how each server answers them.

Every request is followed by another one, so a server that reads the first one in another way
answers the second one with another status, or not at all. The columns are the statuses of our own
server, of haproxy in front of it, and of nginx in front of it.
"""

# ruff: noqa: E501  (a case is a line)

import json
from typing import NamedTuple

from tests.support.messages import modern
from tests.support.web import mirrored

_HELLO = modern("server/discover")
_BODY = json.dumps(_HELLO).encode()
_LENGTH = b"content-length: %d\r\n" % len(_BODY)
_CHUNK = b"%x\r\n%b\r\n" % (len(_BODY), _BODY)
_CODED = b"transfer-encoding: chunked\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n"
"""A request that is part of a body, so no server may serve it."""
LAST = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"


def _head(*lines: bytes, begin: bytes = b"POST /mcp HTTP/1.1", host: bytes = b"localhost") -> bytes:
    named = [f"{name}: {value}\r\n".encode() for name, value in mirrored(_HELLO).items()]
    accept = b"accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n"
    return b"%b\r\nhost: %b\r\n%b%b%b\r\n" % (begin, host, accept, b"".join(named), b"".join(lines))


def _get(*lines: bytes, begin: bytes = b"GET /healthz HTTP/1.1", end: bytes = b"\r\n") -> bytes:
    return begin + end + b"host: localhost" + end + b"".join(lines) + end


class Case(NamedTuple):
    """One odd request, and the statuses of the answers to it and to the one after it."""

    name: str
    data: bytes
    ours: str
    haproxy: str
    nginx: str


_SMALL = b"content-length: 5\r\n"

# fmt: off
CASES = [
    Case("a plain request", _head(_LENGTH) + _BODY, "200 200", "200 200", "200 200"),
    Case("a chunked request", _head(_CODED) + _CHUNK + b"0\r\n\r\n", "200 200", "200 200", "200 200"),
    Case("many small chunks", _head(_CODED) + b"".join(b"1\r\n%c\r\n" % byte for byte in _BODY) + b"0\r\n\r\n", "200 200", "200 200", "200 200"),
    Case("two equal lengths", _head(_LENGTH, _LENGTH) + _BODY, "400", "200 200", "400"),
    Case("two lengths", _head(_LENGTH, b"content-length: 0\r\n") + _BODY, "400", "400", "400"),
    Case("a list of lengths", _head(b"content-length: 5, 5\r\n") + b"12345", "400", "400 200", "400"),
    Case("a signed length", _head(b"content-length: +5\r\n") + b"12345", "400", "400", "400"),
    Case("a negative length", _head(b"content-length: -5\r\n") + b"12345", "400", "400", "400"),
    Case("a hexadecimal length", _head(b"content-length: 0x5\r\n") + b"12345", "400", "400", "400"),
    Case("an endless length", _head(b"content-length: 99999999999999999999999\r\n") + b"12345", "400", "400", "400"),
    Case("a length with 5,000 zeros", _head(b"content-length: " + b"0" * 5000 + b"5\r\n") + b"12345", "400", "400 200", "400 200"),
    Case("an empty length", _head(b"content-length: \r\n"), "400", "400", "400"),
    Case("a blank after the length", _head(b"content-length: %d \r\n" % len(_BODY)) + _BODY, "400", "200 200", "200 200"),
    Case("no length and no chunks", _head(), "400 200", "400 200", "400 200"),
    Case("length, then chunks", _head(_SMALL, _CODED) + b"0\r\n\r\n" + SMUGGLED, "400", "400", "400"),
    Case("chunks, then length", _head(_CODED, _SMALL) + b"0\r\n\r\n" + SMUGGLED, "400", "400", "400"),
    Case("chunked twice", _head(b"transfer-encoding: chunked, chunked\r\n") + b"0\r\n\r\n" + SMUGGLED, "400", "400", "501"),
    Case("two headers of coding", _head(_CODED, b"transfer-encoding: identity\r\n") + b"0\r\n\r\n" + SMUGGLED, "400", "400", "400"),
    Case("gzip, then chunked", _head(b"transfer-encoding: gzip, chunked\r\n") + b"0\r\n\r\n", "501", "422", "501"),
    Case("chunked, then gzip", _head(b"transfer-encoding: chunked, gzip\r\n") + b"0\r\n\r\n" + SMUGGLED, "400", "400", "501"),
    Case("an unknown coding", _head(b"transfer-encoding: xchunked\r\n") + b"0\r\n\r\n" + SMUGGLED, "400", "400", "501"),
    Case("a quoted coding", _head(b'transfer-encoding: "chunked"\r\n') + b"0\r\n\r\n" + SMUGGLED, "400", "400", "501"),
    Case("a coding after a vertical tab", _head(b"transfer-encoding: \x0bchunked\r\n") + b"0\r\n\r\n" + SMUGGLED, "400", "400", "501"),
    Case("a coding after a tab", _head(b"transfer-encoding:\tchunked\r\n") + _CHUNK + b"0\r\n\r\n", "200 200", "200 200", "501"),
    Case("a blank before the colon", _head(b"transfer-encoding : chunked\r\n") + b"0\r\n\r\n" + SMUGGLED, "400", "400", "400"),
    Case("chunks of HTTP/1.0", _head(_CODED, begin=b"POST /mcp HTTP/1.0") + _CHUNK + b"0\r\n\r\n", "200", "200", "400"),
    Case("lines that end with LF alone", _get(end=b"\n"), "400", "200 200", "200 200"),
    Case("a head that ends with LF alone", _get()[:-2] + b"\n", "400", "200 200", "200 200"),
    Case("a header that ends with LF alone", _get(b"x: y\n"), "400", "200 200", "200 200"),
    Case("a CR within a header", _get(b"x: y\rcontent-length: 5\r\n"), "400", "400", "400"),
    Case("a folded header", _get(b"x: y\r\n z\r\n"), "400", "200 200", "400"),
    Case("a folded coding", _head(b"transfer-encoding:\r\n chunked\r\n") + b"0\r\n\r\n" + SMUGGLED, "400", "400 404 200", "400"),
    Case("NUL in a header", _get(b"x: y\0z\r\n"), "400", "400 200", "400"),
    Case("a header without a colon", _get(b"x\r\n"), "400", "400", "200 200"),
    Case("a header without a name", _get(b": y\r\n"), "400", "400", "400"),
    Case("a blank in the name of a header", _get(b"x y: z\r\n"), "400", "400", "400"),
    Case("a name that is not ASCII", _get("\u00fc: z\r\n".encode()), "400", "400", "200 200"),
    Case("a value that is not ASCII", _get("x: \u00fc\r\n".encode()), "200 200", "200 200", "200 200"),
    Case("a first header after a blank", b"GET /healthz HTTP/1.1\r\n x: y\r\nhost: localhost\r\n\r\n", "400", "400", "400"),
    Case("an extension of a chunk", _head(_CODED) + _CHUNK.replace(b"\r\n", b";a=b\r\n", 1) + b"0\r\n\r\n", "200 200", "200 200", "200 200"),
    Case("a blank after the size of a chunk", _head(_CODED) + _CHUNK.replace(b"\r\n", b" \r\n", 1) + b"0\r\n\r\n", "400", "200 200", "200 200"),
    Case("a size of a chunk with 0x", _head(_CODED) + b"0x" + _CHUNK + b"0\r\n\r\n", "400", "400", "400"),
    Case("a signed size of a chunk", _head(_CODED) + b"+" + _CHUNK + b"0\r\n\r\n", "400", "400", "400"),
    Case("an endless size of a chunk", _head(_CODED) + b"fffffffffffffffff1\r\n" + SMUGGLED, "400", "400", "400"),
    Case("a size of a chunk that ends with LF", _head(_CODED) + _CHUNK.replace(b"\r\n", b"\n", 1) + b"0\r\n\r\n", "400", "200 200", "200 200"),
    Case("a chunk that is longer than its size", _head(_CODED) + b"3\r\n12345\r\n0\r\n\r\n" + SMUGGLED, "400", "400", "400"),
    Case("a chunk without its end", _head(_CODED) + b"5\r\n12345" + b"0\r\n\r\n" + SMUGGLED, "400", "400", "400"),
    Case("trailers", _head(_CODED) + _CHUNK + b"0\r\nx: y\r\n\r\n", "200 200", "200 200", "200 200"),
    Case("a length in the trailers", _head(_CODED) + _CHUNK + b"0\r\ncontent-length: 500\r\n\r\n", "400", "400 200", "200 200"),
    Case("a coding in the trailers", _head(_CODED) + _CHUNK + b"0\r\ntransfer-encoding: chunked\r\n\r\n", "400", "400 200", "200 200"),
    Case("three requests at once", _get() * 3, "200 200 200 200", "200 200 200 200", "200 200 200 200"),
    Case("two POSTs at once", (_head(_LENGTH) + _BODY) * 2, "200 200 200", "200 200 200", "200 200 200"),
    Case("more requests at once than we take", _get() * 101, "200 " * 100 + "503", "200 " * 101 + "200", "200 " * 101 + "200"),
    Case("HTTP/1.0", _get(begin=b"GET /healthz HTTP/1.0"), "200", "200", "200"),
    Case("HTTP/1.0 that stays", _get(b"connection: keep-alive\r\n", begin=b"GET /healthz HTTP/1.0"), "200", "200 200", "200 200"),
    Case("HTTP/1.2", _get(begin=b"GET /healthz HTTP/1.2"), "400", "200 200", "200 200"),
    Case("HTTP/2.0", _get(begin=b"GET /healthz HTTP/2.0"), "505", "200 200", "505"),
    Case("HTTP/0.9", b"GET /healthz\r\n", "400", "400", ""),
    Case("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400", "", "400"),
    Case("an unknown protocol", _get(begin=b"GET /healthz HTTX/1.1"), "400", "400", "400"),
    Case("HEAD", _get(begin=b"HEAD /healthz HTTP/1.1"), "200 200", "200 200", "200 200"),
    Case("HEAD of a path that is none", _get(begin=b"HEAD /none HTTP/1.1"), "404 200", "404 200", "404 200"),
    Case("an invitation that is awaited", _head(_LENGTH, b"expect: 100-continue\r\n") + _BODY, "200 200", "200 200", "100 200 200"),
    Case("another expectation", _head(_LENGTH, b"expect: tea\r\n") + _BODY, "200 200", "200 200", "200 200"),
    Case("an absolute target", _get(begin=b"GET http://localhost/healthz HTTP/1.1"), "200 200", "200 200", "200 200"),
    Case("a target with another host", _get(begin=b"GET http://evil.test/healthz HTTP/1.1"), "403 200", "400", "200 200"),
    Case("a target with a user", _get(begin=b"GET http://localhost@evil.test/healthz HTTP/1.1"), "403 200", "400", "400"),
    Case("a target without a path", _get(begin=b"GET localhost:80 HTTP/1.1"), "400", "400", "400"),
    Case("a target that is an asterisk", _get(begin=b"OPTIONS * HTTP/1.1"), "400", "400 200", "400"),
    Case("a tunnel", _get(begin=b"CONNECT localhost:80 HTTP/1.1"), "405", "405 200", "400"),
    Case("a blank in the target", _get(begin=b"GET /heal thz HTTP/1.1"), "400", "400", "400"),
    Case("a target that is not ASCII", _get(begin="GET /\u00fc HTTP/1.1".encode()), "400", "400", "400 200"),
    Case("a fragment in the target", _get(begin=b"GET /healthz#x HTTP/1.1"), "200 200", "400", "200 200"),
    Case("two blanks before the target", _get(begin=b"GET  /healthz HTTP/1.1"), "200 200", "200 200", "200 200"),
    Case("a tab before the target", _get(begin=b"GET\t/healthz HTTP/1.1"), "400", "200 200", "400"),
    Case("a method in lower case", _get(begin=b"get /healthz HTTP/1.1"), "400", "400 200", "400"),
    Case("an unknown method", _get(begin=b"BREW /healthz HTTP/1.1"), "400", "400 200", "400 200"),
    Case("an empty line before the request", b"\r\n" + _get(), "200 200", "200 200", "200 200"),
    Case("no host", b"GET /healthz HTTP/1.1\r\n\r\n", "403 200", "403 200", "400"),
    Case("two hosts", _get(b"host: evil.test\r\n"), "403 200", "400", "400"),
    Case("a GET with a body", _get(b"content-length: %d\r\n" % len(SMUGGLED)) + SMUGGLED, "200 200", "200 200", "200 200"),
    Case("a refused POST with a body", _head(b"content-length: %d\r\n" % len(SMUGGLED), begin=b"POST /none HTTP/1.1") + SMUGGLED, "404 200", "404 200", "404 200"),
    Case("more than the length", _head(_LENGTH) + _BODY + b"garbage", "200 400", "200 400", "200 400"),
    Case("an upgrade to WebSocket", _get(b"connection: upgrade\r\nupgrade: websocket\r\n"), "200 200", "400", "200 200"),
    Case("an upgrade with a body", _head(_LENGTH, b"connection: upgrade\r\nupgrade: h2c\r\n") + _BODY, "200 200", "200 200", "200 200"),
    Case("an upgrade whose body is a request", _head(b"content-length: %d\r\n" % len(SMUGGLED), b"connection: upgrade\r\nupgrade: h2c\r\n") + SMUGGLED, "400 200", "400 200", "400 200"),
    Case("101 headers", _get(b"x: y\r\n" * 101), "431", "400", "431 200"),
    Case("headers of 40 KB", _get(b"x: " + b"y" * 40_000 + b"\r\n"), "431", "400", "400"),
    Case("a target of 40 KB", _get(begin=b"GET /" + b"y" * 40_000 + b" HTTP/1.1"), "414", "400", "414"),
]
# fmt: on
