"""A server at a URL that refuses says why in its own words, and Portico passes them on."""

import pytest

from portico.core.model.errors import TargetError
from portico.edge.client.connect import connect
from portico.upstream.wires.http_error_body import error_message
from portico.upstream.wires.streamable_http import Url
from tests.upstream.connections.web_server import Asked, reply, web_server
from tests.upstream.connections.web_talks import QUICK, Writer

SECRETS = ["a-header-of-mine", "Bearer abcdefgh"]


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("text/plain", b'JSON RPC not handled: "no/such" unsupported\n', None),
        ("application/json", b'{"error":"Forbidden","message":"Not here"}', "Not here"),
        ("application/json", b'{"jsonrpc":"2.0","error":{"code":1,"message":"no"}}', "no"),
        ("application/json", b'{"detail":[{"msg":"no"}]}', ""),
        ("application/json", b"{", ""),
        ("text/html", b"<h1>no</h1>", ""),
        ("", b"<h1>no</h1>", ""),
        ("", b"no", "no"),
        ("text/plain", b" \n", ""),
        ("text/plain", b"no \x1b[31mred\nlines", "no \\x1b[31mred lines"),
        ("text/plain", b"not with a-header-of-mine", "not with ***"),
        ("text/plain", b"not with abcdefgh", "not with ***"),
        ("text/plain", b"x" * 1000, "x" * 200),
    ],
)
def test_only_words_for_people_are_quoted(kind: str, body: bytes, words: str | None) -> None:
    expected = body.decode().strip() if words is None else words
    assert error_message(kind, body, SECRETS) == (f": {expected}" if expected else "")


@pytest.mark.parametrize(
    ("status", "meaning"),
    [(403, "denied access (HTTP 403 Said)"), (500, "returned HTTP 500 Said")],
)
async def test_they_stand_behind_the_status(status: int, meaning: str) -> None:
    async def talk(asked: Asked, writer: Writer) -> None:
        reply(writer, status, b"Access is only allowed at localhost:8931", "text/plain")

    async with web_server(talk) as server:
        with pytest.raises(TargetError) as caught:
            await connect(Url(server.url), limits=QUICK)
    assert f"{meaning}: Access is only allowed at localhost:8931" in str(caught.value)
