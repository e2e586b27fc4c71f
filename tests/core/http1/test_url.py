"""URLs taken apart, and which of them the environment sends through a proxy."""

import pytest

from portico.core.http1.errors import InvalidRequest
from portico.core.http1.proxies import proxy_for
from portico.core.http1.url import Origin, join_url, parse_url


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port", "path"),
    [
        ("http://a.test", "http", "a.test", 80, "/"),
        ("HTTPS://A.Test:443/MCP?", "https", "a.test", 443, "/MCP"),
        ("http://a.test:8080/x?y=z&q#part", "http", "a.test", 8080, "/x?y=z&q"),
        ("http://a_b.test./", "http", "a_b.test.", 80, "/"),
        ("http://[::1]:81/mcp", "http", "::1", 81, "/mcp"),
        ("http://[fe80::1%25eth0]/", "http", "fe80::1%eth0", 80, "/"),
        ("https://bücher.example/ü", "https", "xn--bcher-kva.example", 443, "/%C3%BC"),
        ("http://a.test/a/./b/../c/..", "http", "a.test", 80, "/a/"),
        ("http://a.test/../../x", "http", "a.test", 80, "/x"),
        ("http://a.test//x//y", "http", "a.test", 80, "//x//y"),
        ('http://a.test/ "<>`{}%zz%2f', "http", "a.test", 80, "/%20%22%3C%3E%60%7B%7D%25zz%2f"),
        ("http://a.test/?a b%20`{}'", "http", "a.test", 80, "/?a%20b%20`{}'"),
    ],
)
def test_a_url_says_whom_to_ask_for_what(
    url: str, scheme: str, host: str, port: int, path: str
) -> None:
    target = parse_url(url)
    assert (target.origin, target.path) == (Origin(scheme, host, port), path)
    assert parse_url(str(target)).origin.port == port


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a.test",
        "ftp://user:secret@a.test/",
        "http://",
        "http:///mcp",
        "http://:80/",
        "http://user:secret@a.test:port/",
        "http://user:secret@a.test:99999/",
        "http://user:secret@[::1/",
        "http://user:secret@[a.test]/",
        "http://a..test/",
        "http://a test/",
        "http://a%20.test/",
        "http://a.test/\r\nX-A:1",
        "http://a.test/\t",
        "http://stra\u00dfe.test/",
        "http://\u2488.test/",
        "http://a.test/" + "x" * 70_000,
    ],
)
def test_what_is_no_url_is_said_to_be_none_without_its_secrets(url: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be contacted: ") as caught:
        parse_url(url)
    assert "secret" not in str(caught.value)


def test_an_origin_is_written_as_others_expect_it() -> None:
    assert parse_url("https://a.test:443/").origin.shown == "a.test"
    assert parse_url("https://a.test:443/").origin.authority == "a.test:443"
    assert parse_url("http://a.test:443/").origin.shown == "a.test:443"
    assert parse_url("http://[fe80::1%25eth0]:1/").origin.shown == "[fe80::1]:1"
    assert parse_url("https://a.test./").origin.verified == "a.test"


def test_user_and_password_are_credentials_and_are_not_shown() -> None:
    target = parse_url("http://us%3Aer:p%C3%A4ss@a.test/x")
    assert target.login == "Basic dXM6ZXI6cMOkc3M="
    assert str(target) == "http://a.test/x"
    assert parse_url("http://only@a.test/").login == "Basic b25seTo="


def test_what_is_found_at_a_url_leads_on_from_there() -> None:
    assert join_url("http://me:pw@a.test/x/y?z", "../p?s=1") == "http://me:pw@a.test/p?s=1"
    assert join_url("http://a.test/x", "//b.test/y") == "http://b.test/y"
    with pytest.raises(InvalidRequest):
        join_url("http://a.test/x", "http://[::1/y")


PLAIN = parse_url("http://api.a.test:8080/").origin
SAFE = parse_url("https://api.a.test/").origin


@pytest.mark.parametrize(
    ("environ", "plain", "safe"),
    [
        ({}, None, None),
        ({"HTTP_PROXY": "http://p:1"}, "p:1", None),
        ({"https_proxy": "p:1"}, None, "p:1"),
        ({"ALL_PROXY": "http://p:1", "HTTPS_PROXY": "http://s:2"}, "p:1", "s:2"),
        ({"HTTP_PROXY": "http://p:1", "http_proxy": ""}, None, None),
        ({"HTTP_PROXY": "http://p:1", "http_proxy": "http://q:2"}, "q:2", None),
        ({"HTTP_PROXY": "http://p:1", "REQUEST_METHOD": "GET"}, None, None),
        ({"http_proxy": "http://p:1", "REQUEST_METHOD": "GET"}, "p:1", None),
        ({"ALL_PROXY": "https://p"}, "p:443", "p:443"),
    ],
)
def test_the_environment_names_a_proxy(
    environ: dict[str, str], plain: str | None, safe: str | None
) -> None:
    for origin, expected in ((PLAIN, plain), (SAFE, safe)):
        proxy = proxy_for(origin, environ)
        assert (proxy and proxy.origin.authority) == expected


def test_a_proxy_may_want_a_password() -> None:
    proxy = proxy_for(SAFE, {"HTTPS_PROXY": "http://me:p%40ss@p:1"})
    assert proxy is not None
    assert proxy.login == "Basic bWU6cEBzcw=="


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("socks5h://me:secret@p:1", "ALL_PROXY names a socks5h:// proxy, which is not"),
        ("quic://me:secret@p:1", "ALL_PROXY names a quic:// proxy"),
        ("http://me:secret@p:port", "the proxy URL in ALL_PROXY is not valid"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_named_by_its_variable(value: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        proxy_for(SAFE, {"ALL_PROXY": value})
    assert "secret" not in str(caught.value)
    assert proxy_for(SAFE, {"ALL_PROXY": value, "NO_PROXY": "a.test"}) is None


@pytest.mark.parametrize(
    ("entries", "url", "is_spared"),
    [
        ("*", "http://a.test", True),
        ("b.test, a.test", "http://a.test", True),
        ("A.Test", "http://x.a.test", True),
        ("a.test", "http://xa.test", False),
        (".a.test", "http://x.a.test", True),
        (".a.test", "http://a.test", False),
        ("*.a.test", "http://x.a.test", True),
        ("a.test:81", "http://a.test:81", True),
        ("a.test:81", "http://a.test", False),
        ("https://a.test", "http://a.test", False),
        ("https://a.test", "https://a.test", True),
        ("localhost", "http://localhost:1", True),
        ("10.0.0.1", "http://10.0.0.1", True),
        ("10.0.0.0/8", "http://10.1.2.3", True),
        ("10.0.0.0/8", "http://11.1.2.3", False),
        ("10.0.0.0/8", "http://a.test", False),
        ("fd00::/8,::1", "http://[fd00::2]", True),
        ("[::1]", "http://[::1]:81", True),
        ("[::1]:81", "http://[::1]:81", True),
        ("[::1]:81", "http://[::1]:82", False),
        ("", "http://a.test", False),
        (",.,:80, ", "http://a.test", False),
    ],
)
def test_what_is_not_for_the_proxy_does_not_go_there(
    entries: str, url: str, is_spared: bool
) -> None:
    environ = {"ALL_PROXY": "http://p:1", "no_proxy": entries}
    assert (proxy_for(parse_url(url).origin, environ) is None) == is_spared
