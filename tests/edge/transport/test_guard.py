"""Access checks: Host, Origin and token."""

import json
from typing import Any

import pytest

from portico import Server
from portico.core.model.errors import RegistrationError
from portico.edge.transport.guard import EVENT_STREAM, JSON, Guard, Head, answer_type
from portico.edge.transport.http_limits import HttpLimits
from portico.edge.transport.reply import Reply
from tests.support.messages import initialize, modern
from tests.support.web import mirrored, post_bytes, serving

PORT = 8123


def admitted(guard: Guard, *headers: tuple[str, str], port: int = PORT) -> Head | Reply:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    return guard.admit({"type": "http", "headers": raw, "server": ("127.0.0.1", port)})


def is_in(guard: Guard, host: str | None, origin: str | None, port: int = PORT) -> bool:
    headers = [("host", host)] if host is not None else []
    if origin is not None:
        headers.append(("origin", origin))
    verdict = admitted(guard, *headers, port=port)
    if isinstance(verdict, Reply):
        assert verdict.status == 403
        assert b'"error"' in verdict.body
        assert b'"id"' not in verdict.body
        return False
    return True


LOCAL = "127.0.0.1:8123"

LOOPBACK = [
    ("localhost:8123", None, True),
    ("127.0.0.1:8123", None, True),
    ("[::1]:8123", None, True),
    ("localhost", None, True),
    ("127.0.0.1", None, True),
    ("[::1]", None, True),
    ("LocalHost:8123", None, True),
    (None, None, False),
    ("", None, False),
    ("evil.test", None, False),
    ("evil.test:8123", None, False),
    ("localhost.evil.test:8123", None, False),
    ("evil.localhost:8123", None, False),
    ("localhost.:8123", None, False),
    ("localhost:8124", None, False),
    ("localhost:80", None, False),
    ("127.0.0.1:", None, False),
    ("127.0.0.2:8123", None, False),
    ("127.1:8123", None, False),
    ("0x7f000001:8123", None, False),
    ("2130706433:8123", None, False),
    ("0.0.0.0:8123", None, False),
    ("::1:8123", None, False),
    ("[0:0:0:0:0:0:0:1]:8123", None, False),
    ("[::ffff:127.0.0.1]:8123", None, False),
    ("user@localhost:8123", None, False),
    ("localhost:8123, evil.test", None, False),
    (" localhost:8123", None, False),
    ("169.254.169.254", None, False),
    (LOCAL, "http://127.0.0.1:8123", True),
    (LOCAL, "http://localhost:8123", True),
    (LOCAL, "http://[::1]:8123", True),
    (LOCAL, "https://localhost:8123", True),
    (LOCAL, "http://localhost", False),
    (LOCAL, "http://localhost:3000", False),
    (LOCAL, "http://localhost:8123/", False),
    (LOCAL, "http://localhost:8123.evil.test", False),
    (LOCAL, "http://evil.test", False),
    (LOCAL, "http://evil.test:8123", False),
    (LOCAL, "null", False),
    (LOCAL, "", False),
    (LOCAL, "localhost:8123", False),
    (LOCAL, "file://", False),
    (LOCAL, "chrome-extension://abcdefgh", False),
    (LOCAL, "http://localhost:8123, http://evil.test", False),
    ("evil.test", "http://localhost:8123", False),
    ("evil.test", "http://evil.test", False),
]


@pytest.mark.parametrize("host, origin, allowed", LOOPBACK)
def test_only_loopback_may_come_in_by_default(
    host: str | None, origin: str | None, allowed: bool
) -> None:
    assert is_in(Guard(HttpLimits()), host, origin) is allowed


@pytest.mark.parametrize(
    "host, origin, allowed",
    [
        ("mcp.example.com", None, True),
        ("MCP.example.com:8123", None, True),
        ("mcp.example.com", "https://mcp.example.com", True),
        ("mcp.example.com:443", None, False),
        ("other.example.com", None, False),
        ("sub.mcp.example.com", None, False),
        ("exact.example.com:9000", "http://exact.example.com:9000", True),
        ("exact.example.com", None, False),
        ("[fd00::7]", None, True),
        ("[fd00::7]:8123", "http://[fd00::7]:8123", True),
        ("mcp.example.com", "https://app.example.com", True),
        ("mcp.example.com", "http://app.example.com", False),
        ("localhost:8123", None, True),
    ],
)
def test_configured_hosts_and_origins_come_on_top(
    host: str, origin: str | None, allowed: bool
) -> None:
    guard = Guard(
        HttpLimits(),
        hosts=["mcp.example.com", "exact.example.com:9000", "fd00::7"],
        origins=["https://app.example.com"],
    )

    assert is_in(guard, host, origin) is allowed


@pytest.mark.parametrize(
    "host, origin, allowed",
    [
        ("anything.test", None, True),
        (None, None, True),
        ("anything.test", "https://anything.test", True),
        ("anything.test", "https://evil.test", False),
        (None, "https://evil.test", False),
        ("anything.test", "null", False),
    ],
)
def test_where_any_host_will_do_the_origin_must_be_the_same(
    host: str | None, origin: str | None, allowed: bool
) -> None:
    assert is_in(Guard(HttpLimits(), hosts=None), host, origin) is allowed


def test_any_origin_can_be_allowed() -> None:
    assert is_in(Guard(HttpLimits(), hosts=None, origins=None), "a.test", "https://b.test")
    assert is_in(Guard(HttpLimits(), origins=None), "localhost", "https://b.test")
    assert not is_in(Guard(HttpLimits(), origins=None), "a.test", "https://b.test")


@pytest.mark.parametrize("name", ["host", "origin"])
def test_a_header_that_comes_twice_is_refused(name: str) -> None:
    value = "localhost:8123" if name == "host" else "http://localhost:8123"
    rest = [("host", "localhost:8123")] if name == "origin" else []

    verdict = admitted(Guard(HttpLimits()), *rest, (name, value), (name, value))

    assert isinstance(verdict, Reply)
    assert verdict.status == 403


def test_on_the_default_port_an_origin_needs_none() -> None:
    assert is_in(Guard(HttpLimits()), "localhost", "http://localhost", port=80)
    assert not is_in(Guard(HttpLimits()), "localhost", "https://localhost", port=80)


TOKEN = "correct-horse-battery-staple"


@pytest.mark.parametrize(
    "authorization, allowed",
    [
        (f"Bearer {TOKEN}", True),
        (f"bearer {TOKEN}", True),
        (f"Bearer  {TOKEN} ", True),
        (None, False),
        ("", False),
        ("Bearer", False),
        ("Bearer wrong", False),
        (f"Bearer {TOKEN}x", False),
        (f"Basic {TOKEN}", False),
        (TOKEN, False),
        (f"Bearer {TOKEN}, Bearer {TOKEN}", False),
        ("Bearer \xff\xfe", False),
    ],
)
def test_only_the_token_opens_the_door(authorization: str | None, allowed: bool) -> None:
    guard = Guard(HttpLimits(), token=TOKEN)
    headers = [] if authorization is None else [("authorization", authorization)]
    head = admitted(guard, ("host", "localhost"), *headers)
    assert isinstance(head, Head)

    assert guard.is_authorized(head) is allowed
    if not allowed:
        refused = guard.challenge({"path": "/mcp"}, head)
        assert refused.status == 401
        challenge = dict(refused.headers)[b"www-authenticate"]
        assert challenge.startswith(b"Bearer")
        assert TOKEN.encode() not in refused.body + challenge


def test_headers_are_bounded_in_number_and_size() -> None:
    guard = Guard(HttpLimits(header_bytes=200, header_count=5))
    many = admitted(guard, ("host", "localhost"), *((f"x-{n}", "") for n in range(5)))
    large = admitted(guard, ("host", "localhost"), ("x-large", "x" * 200))
    repeated = admitted(guard, ("host", "localhost"), *([("x", "x" * 60)] * 4))

    for verdict in (many, large, repeated):
        assert isinstance(verdict, Reply)
        assert verdict.status == 431


def test_a_head_shows_others_only_what_mirrors_the_body() -> None:
    head = admitted(
        Guard(HttpLimits()),
        ("host", "localhost"),
        ("authorization", "Bearer secret"),
        ("mcp-param-region", " us-west1\t"),
        ("mcp-name", "caf\xe9"),
    )

    assert isinstance(head, Head)
    assert dict(head) == {"mcp-param-region": "us-west1", "mcp-name": "caf\udce9"}
    assert head.get("authorization") is None
    assert len(head) == 2


@pytest.mark.parametrize(
    "accept, type",
    [
        (b"", JSON),
        (b"*/*", JSON),
        (b"application/*, text/*", JSON),
        (b"application/json, text/event-stream", JSON),
        (b"Application/JSON , text/event-stream; q=0.5", JSON),
        (b"text/event-stream, application/json", EVENT_STREAM),
        (b"application/json;q=0.5, text/event-stream", EVENT_STREAM),
        (b"text/event-stream, */*;q=0.1", EVENT_STREAM),
        (b"text/html, */*", JSON),
        (b"application/json;q=0.0, text/*", b""),
        (b"application/json;q=nonsense, text/*", b""),
        (b"application/json", b""),
        (b"text/event-stream", b""),
        (b",;,=", b""),
    ],
)
def test_the_type_of_an_answer_is_what_the_client_would_rather_have(
    accept: bytes, type: bytes
) -> None:
    assert answer_type(accept) == type


PLACE = "in the file /home/ana/token"


def challenged(
    *headers: tuple[str, str], path: str = "/mcp", client: str = "127.0.0.1"
) -> tuple[str, str]:
    """Return the body and content type of the refusal for a client without the token."""
    guard = Guard(HttpLimits(), token=TOKEN, token_place=PLACE, hosts=["mcp.example.com"])
    head = admitted(guard, *(("host", "localhost:8123"),) if not headers else (), *headers)
    assert isinstance(head, Head)
    reply = guard.challenge({"path": path, "client": (client, 5555)}, head)
    assert reply.status == 401
    return reply.body.decode(), dict(reply.headers)[b"content-type"].decode()


def test_who_lacks_the_token_is_told_how_to_pass_it() -> None:
    body, type = challenged()

    assert type == "application/json"
    assert "Authorization: Bearer TOKEN" in json.loads(body)["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "client", "shown"),
    [
        ([("host", "localhost:8123")], "127.0.0.1", True),
        ([("host", "[::1]:8123")], "::1", True),
        ([("host", "127.0.0.1")], "127.0.0.1", True),
        ([("host", "localhost:8123")], "192.0.2.7", False),
        ([("host", "mcp.example.com")], "127.0.0.1", False),
        ([("host", "localhost:8123"), ("x-forwarded-for", "192.0.2.7")], "127.0.0.1", False),
        ([("host", "localhost:8123"), ("via", "1.1 proxy")], "127.0.0.1", False),
    ],
)
def test_only_a_client_of_this_machine_is_told_where_the_token_is(
    headers: list[tuple[str, str]], client: str, shown: bool
) -> None:
    body, _ = challenged(*headers, client=client)

    assert (PLACE in body) is shown


@pytest.mark.parametrize(
    ("accept", "text"),
    [
        ("text/html,application/xhtml+xml,*/*;q=0.8", True),
        ("text/plain", True),
        ("application/json, text/event-stream", False),
        ("*/*", False),
    ],
)
def test_who_reads_text_is_told_in_text(accept: str, text: bool) -> None:
    body, type = challenged(("host", "localhost"), ("accept", accept))

    assert type.startswith("text/plain") is text
    assert body.startswith("a bearer token is required") is text


@pytest.mark.parametrize(
    "path",
    [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
        "/register",
    ],
)
def test_who_looks_for_a_login_is_told_in_the_words_of_oauth(path: str) -> None:
    body = json.loads(challenged(path=path)[0])

    assert body["error"] == "access_denied"
    assert "Authorization: Bearer TOKEN" in body["error_description"]


@pytest.mark.parametrize(
    ("site", "origin", "allowed"),
    [
        (None, None, True),
        ("none", None, True),
        ("same-origin", None, True),
        ("same-origin", "http://localhost:8123", True),
        ("cross-site", None, False),
        ("same-site", None, False),
        ("cross-site", "http://localhost:8123", False),
        ("cross-site, same-origin", None, False),
        ("", None, False),
    ],
)
def test_without_a_token_pages_of_other_sites_are_refused(
    site: str | None, origin: str | None, allowed: bool
) -> None:
    sent = [("host", "localhost:8123")]
    sent += [] if site is None else [("sec-fetch-site", site)]
    sent += [] if origin is None else [("origin", origin)]

    verdict = admitted(Guard(HttpLimits()), *sent)

    assert isinstance(verdict, Head) is allowed
    # A client with the token is not a page of another site.
    assert isinstance(admitted(Guard(HttpLimits(), token=TOKEN), *sent), Head)


def test_a_page_whose_origin_is_allowed_may_be_of_another_site() -> None:
    sent = (
        ("host", "localhost:8123"),
        ("origin", "https://app.example.com"),
        ("sec-fetch-site", "cross-site"),
    )

    assert isinstance(
        admitted(Guard(HttpLimits(), origins=["https://app.example.com"]), *sent), Head
    )
    assert isinstance(admitted(Guard(HttpLimits(), origins=None), *sent), Head)
    assert isinstance(admitted(Guard(HttpLimits()), *sent), Reply)


async def test_the_door_is_guarded_on_a_real_socket_before_anything_else() -> None:
    app = Server("x").asgi(token=TOKEN)
    wanted = {"authorization": f"Bearer {TOKEN}"}
    cases: list[tuple[Any, dict[str, str], int]] = [
        (initialize(), {**wanted, "host": "evil.test"}, 403),
        (initialize(), {**wanted, "origin": "http://evil.test"}, 403),
        (modern("server/discover"), {**wanted, "host": "evil.test"}, 403),
        (initialize(), {}, 401),
        (modern("server/discover"), {}, 401),
        (initialize(), wanted, 200),
        (modern("server/discover"), wanted, 200),
    ]
    async with serving(app) as site:
        for message, headers, status in cases:
            era = mirrored(message) if message["method"] != "initialize" else {}
            response = await site.post(message, {**era, **headers})
            assert response.status_code == status, (message["method"], headers)
        probe = await site.raw(b"GET /healthz HTTP/1.0\r\n\r\n")
        one_zero = await site.raw(b"GET /mcp HTTP/1.0\r\n\r\n")
        nameless = await site.raw(b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n")
        twice = await site.raw(
            b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n"
            b"connection: close\r\n\r\n"
        )

    assert probe.startswith(b"HTTP/1.1 200")  # as load balancers do
    assert one_zero.startswith(b"HTTP/1.1 403")
    assert nameless.startswith(b"HTTP/1.1 403")
    assert twice.startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n"
        b"transfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: +5\r\n\r\nhello",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: xchunked\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nhost : localhost\r\n\r\n",
        b"POST /mcp HTTP/1.1\nhost: localhost\n\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: a\r\n b\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-name: a\rb\r\n\r\n",
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
async def test_requests_that_two_servers_could_read_differently_are_refused(
    request_bytes: bytes,
) -> None:
    async with serving(Server("x").asgi()) as site:
        answer = await site.raw(request_bytes)
        alive = await site.client.get(site.url + "/healthz")

    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1 ") == 1
    assert alive.status_code == 200


async def test_a_plain_request_with_its_own_bytes_is_not_refused() -> None:
    async with serving(Server("x").asgi()) as site:
        answer = await site.raw(post_bytes(initialize(), close=True))

    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("host", ["", "https://a.test", "a.test/mcp", "a test", "ü.test", "*.test"])
def test_what_no_host_header_could_say_is_refused_at_once(host: str) -> None:
    with pytest.raises(RegistrationError, match="is not a host"):
        Guard(HttpLimits(), hosts=[host])


@pytest.mark.parametrize("origin", ["a.test", "https://", "https://a.test/", "https://*.test"])
def test_what_no_origin_header_could_say_is_refused_at_once(origin: str) -> None:
    with pytest.raises(RegistrationError, match="is not an origin"):
        Guard(HttpLimits(), origins=[origin])


def test_a_text_where_a_list_of_hosts_belongs_is_refused() -> None:
    with pytest.raises(RegistrationError, match="hosts must be a list"):
        Guard(HttpLimits(), hosts="a.test")


@pytest.mark.parametrize("token", ["", " ", "a b", "secret\n"])
def test_a_token_that_would_let_in_all_or_nobody_is_refused_at_once(token: str) -> None:
    with pytest.raises(RegistrationError, match="token must be a single word"):
        Guard(HttpLimits(), token=token)
