"""A server cannot send Portico to an address that only this machine can reach."""

import asyncio
from collections.abc import Callable

import pytest

from portico.core.http1.pool import Pool
from portico.upstream.auth.address_rule import AddressRule, is_global
from portico.upstream.auth.flow import IssuerUnavailable, LoginError, WebRequest
from portico.upstream.auth.flow_runner import FlowRunner, address_rule
from tests.upstream.connections.web_server import Asked, reply, web_server

PRIVATE = [
    "127.0.0.1",
    "127.255.255.255",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.127.255.255",
    "192.0.0.1",
    "198.18.0.1",
    "192.0.2.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "fec0::1",
    "ff02::1",
    "2001:db8::1",
    "100::1",
    "::ffff:127.0.0.1",
    "::ffff:a9fe:a9fe",
    "::127.0.0.1",
    "::ffff:0:7f00:1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2001::1",
    "nonsense",
]
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "2606:4700::1111",
    "64:ff9b::808:808",
    "2002:808:808::1",
    "::ffff:8.8.8.8",
]
# Each is one of this machine or of a private network, however it is written.
WRITTEN = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0177.0.0.1",
    "017700000001",
    "0x7f.0.0.1",
    "0x7f000001",
    "0",
    "10.0.0.1",
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "100.64.0.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::]",
    "[fd00:ec2::254]",
    "[fe80::1%25lo]",
    "localhost",
]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_recognised(address: str) -> None:
    assert not is_global(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_recognised(address: str) -> None:
    assert is_global(address)


async def never(asked: Asked, writer: asyncio.StreamWriter) -> None:
    raise AssertionError(f"contacted: {asked}")


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


@pytest.mark.parametrize("host", WRITTEN)
@pytest.mark.parametrize("is_proxied", [False, True], ids=["direct", "proxied"])
async def test_a_private_address_is_refused_however_it_is_written(
    host: str, is_proxied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with web_server(never) as server:
        if is_proxied:
            monkeypatch.setenv("HTTPS_PROXY", server.url.removesuffix("/mcp"))
        request = WebRequest(f"https://{host}:{port_of(server.url)}/x", about="the metadata")
        with pytest.raises(LoginError, match=r"not a public address|cannot be contacted") as caught:
            await FlowRunner(AddressRule()).fetch(request)
        assert not isinstance(caught.value, IssuerUnavailable)
        assert server.asked == []


async def test_a_name_that_does_not_resolve_here_is_left_to_the_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reply(writer, 403)

    async with web_server(refuse) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url.removesuffix("/mcp"))
        request = WebRequest("https://id.invalid/x", about="the metadata")
        with pytest.raises(IssuerUnavailable, match="its proxy returned HTTP 403"):
            await FlowRunner(AddressRule()).fetch(request)
        assert proxy.asked[0].path == "id.invalid:443"


async def test_a_redirect_is_checked_like_the_first_address() -> None:
    async with web_server(never) as secret:
        place = f"http://localhost:{port_of(secret.url)}/secret"

        async def send_away(asked: Asked, writer: asyncio.StreamWriter) -> None:
            reply(writer, 302, location=place)

        async with web_server(send_away) as server:
            named = AddressRule(trusted=frozenset({"127.0.0.1"}))
            request = WebRequest(server.url, about="the metadata")
            with pytest.raises(LoginError, match=r"localhost leads to .* not a public address"):
                await FlowRunner(named).fetch(request)


@pytest.mark.parametrize(
    ("server", "issuer", "is_allowed"),
    [
        ("http://localhost:1/mcp", "", True),
        ("http://127.0.0.1:1/mcp", "", True),
        ("https://10.0.0.1/mcp", "", True),
        ("https://8.8.8.8/mcp", "", False),
        ("https://8.8.8.8/mcp", "http://127.0.0.1:1", True),
        ("https://8.8.8.8/mcp", "http://localhost:1", False),
        ("https://nowhere.invalid/mcp", "", False),
    ],
)
async def test_a_private_address_is_allowed_where_the_server_or_the_config_leads(
    server: str, issuer: str, is_allowed: bool
) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reply(writer, 200, {})

    async with web_server(answer) as local:
        runner = FlowRunner(await address_rule(server, issuer))
        request = WebRequest(local.url, about="the metadata")
        if is_allowed:
            assert (await runner.fetch(request)).status == 200
        else:
            with pytest.raises(LoginError, match=r"127\.0\.0\.1 is not a public address"):
                await runner.fetch(request)


Reply = Callable[[asyncio.StreamWriter], None]


@pytest.mark.parametrize(
    ("talk", "said"),
    [
        (lambda writer: reply(writer, 200, b"x" * 10_000_000), "is longer than 262144 bytes"),
        (lambda writer: reply(writer, 302, location="/mcp"), "redirects more than 5 times"),
        (lambda writer: reply(writer, 302, location="http://evil.test/"), "must use https"),
        (lambda writer: reply(writer, 302, location="file:///etc/passwd"), "not a valid URL"),
        (lambda writer: writer.close(), "without a response"),
    ],
)
async def test_an_answer_is_bounded_and_leads_nowhere_else(talk: Reply, said: str) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        talk(writer)

    async with web_server(answer) as server:
        with pytest.raises(LoginError, match=said):
            await FlowRunner(AddressRule(True)).fetch(WebRequest(server.url, about="the metadata"))


async def test_a_post_is_never_redirected() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reply(writer, 307, location="http://127.0.0.1:1/other")

    async with web_server(answer) as server:
        request = WebRequest(server.url, form={"code": "c0de"}, about="a token")
        assert (await FlowRunner(AddressRule(True)).fetch(request)).status == 307
        assert len(server.asked) == 1


async def test_a_pool_forgets_credentials_that_were_replaced() -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        reply(writer, 200, {})

    async with web_server(answer) as server:
        pool = Pool({}, 5.0)
        for token in ("first", "second", ""):
            pool.use_credentials("authorization", token)
            response = await pool.send("GET", server.url, {})
            await response.head()
        assert [asked.headers.get("authorization") for asked in server.asked] == [
            "first",
            "second",
            None,
        ]
        assert "first" not in repr(vars(pool))
        assert "second" not in repr(vars(pool))
        await pool.close()
