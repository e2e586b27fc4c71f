"""The way to a server: names, addresses, certificates, proxies, and how long it may take."""

import asyncio
import shutil
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from portico.core.http1 import certificates, dial
from portico.core.http1.errors import ConnectError, InvalidRequest
from portico.core.http1.url import Origin
from portico.upstream.wires.http_client import HttpClient, Site
from tests.support.shared import unavailable
from tests.upstream.connections.fakes import WAIT_S
from tests.upstream.connections.raw_server import (
    RawServer,
    Reader,
    Writer,
    asking,
    certified,
    fetched,
    loosely_certified,
    raw_server,
    saying,
)

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """What a server called localhost shows, which is trusted."""
    context, trusted = certified(tmp_path, "localhost", "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    return context


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1"])
async def test_a_server_with_a_certificate_is_asked(tls: ssl.SSLContext, host: str) -> None:
    names: list[str | None] = []
    tls.sni_callback = lambda _, name, __: names.append(name)
    body = b"y" * 3_000_000
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    async with raw_server(saying(answer), tls) as server, asking() as pool:
        for _ in range(3):
            asked = await fetched(pool, f"https://{host}:{server.port}/", b"x" * 2_000_000)
            assert asked == (200, body)
    assert server.connections == 1
    assert names == [None if host == "127.0.0.1" else "localhost"]


async def test_an_answer_over_tls_may_end_with_its_connection(tls: ssl.SSLContext) -> None:
    converse = saying(b"HTTP/1.1 200 OK\r\n\r\nall of it", closes=True)
    async with raw_server(converse, tls) as server, asking() as pool:
        assert await fetched(pool, f"https://localhost:{server.port}/") == (200, b"all of it")


async def test_a_folder_of_certificates_is_trusted_too(
    tls: ssl.SSLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("openssl") is None:
        unavailable("openssl, which names the files in such a folder, is not there")
    folder = tmp_path / "trusted"
    folder.mkdir()
    argv = ("openssl", "x509", "-hash", "-noout", "-in", str(tmp_path / "trusted.pem"))
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    hashed = (await process.communicate())[0].decode().strip()
    (folder / f"{hashed}.0").write_bytes((tmp_path / "trusted.pem").read_bytes())
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))
    async with raw_server(saying(OK), tls) as server, asking() as pool:
        assert await fetched(pool, f"https://localhost:{server.port}/") == (200, b"ok")


async def test_a_certificate_that_nobody_trusts_is_told(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    async with raw_server(saying(OK), tls) as server, asking() as pool:
        with pytest.raises(
            ConnectError, match=r"certificate is not trusted: self.signed.*set SSL_CERT_FILE"
        ):
            await fetched(pool, f"https://localhost:{server.port}/")
        assert server.heads == []


@pytest.fixture(params=["named", "known"])
def trusting(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Path], None]]:
    """Has a file of certificates trusted, by the environment or by the system."""

    def trust_it(file: Path) -> None:
        if request.param == "named":
            monkeypatch.setenv("SSL_CERT_FILE", str(file))
            return
        none = ssl.DefaultVerifyPaths("", "", "", "", "", "")
        monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: none)
        monkeypatch.setattr(certificates, "BUNDLES", (str(file),))
        monkeypatch.setattr(sys, "platform", "linux")

    certificates.context_of.cache_clear()
    yield trust_it
    certificates.context_of.cache_clear()


async def test_whoever_names_the_certificates_the_same_is_demanded_of_them(
    trusting: Callable[[Path], None], tmp_path: Path
) -> None:
    context, trusted = loosely_certified(tmp_path, "localhost")
    trusting(trusted)
    async with raw_server(saying(OK), context) as server, asking() as pool:
        asked = fetched(pool, f"https://localhost:{server.port}/")
        if sys.version_info < (3, 13):
            assert await asked == (200, b"ok")
        else:
            with pytest.raises(ConnectError, match="not trusted"):
                await asked


def test_tls_is_as_strict_as_the_default_of_this_python_on_each_way(
    trusting: Callable[[Path], None], tmp_path: Path
) -> None:
    trusting(certified(tmp_path, "localhost")[1])
    found, usual = certificates.tls_context(), ssl.create_default_context()
    assert found.minimum_version == ssl.TLSVersion.TLSv1_2
    assert found.verify_flags == usual.verify_flags
    assert found.options == usual.options
    assert (found.verify_mode, found.check_hostname) == (ssl.CERT_REQUIRED, True)


async def test_a_certificate_for_somebody_else_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, trusted = certified(tmp_path, "elsewhere.test")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    async with raw_server(saying(OK), context) as server, asking() as pool, asking() as other:
        with pytest.raises(ConnectError, match=r"is not trusted: Hostname mismatch.*'localhost'"):
            await fetched(other, f"https://localhost:{server.port}/")
        with pytest.raises(ConnectError, match=r"is not trusted: IP address mismatch"):
            await fetched(pool, f"https://127.0.0.1:{server.port}/")
        assert server.heads == []


async def test_who_speaks_no_tls_is_told(tls: ssl.SSLContext) -> None:
    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with raw_server(converse) as server, asking() as pool:
        with pytest.raises(ConnectError, match="cannot be reached: the TLS handshake failed"):
            await fetched(pool, f"https://localhost:{server.port}/")


async def test_a_file_of_certificates_that_is_not_there_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/trusted.pem")
    async with asking() as pool:
        with pytest.raises(InvalidRequest, match="SSL_CERT_FILE or SSL_CERT_DIR cannot be loaded"):
            await fetched(pool, "https://localhost:1/")


async def test_a_handshake_without_end_is_not_waited_for() -> None:
    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        await reader.read()

    async with raw_server(converse) as server, asking(1.0) as pool:
        with pytest.raises(ConnectError, match=r"did not accept the connection within 1 s"):
            await fetched(pool, f"https://127.0.0.1:{server.port}/")
        await asyncio.wait_for(server.left.get(), WAIT_S)


def leads_to(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """From now on every name has these addresses."""

    async def addresses(origin: Any) -> list[tuple[int, Any]]:
        return [(socket.AF_INET, (host, origin.port)) for host in hosts]

    monkeypatch.setattr(dial, "addresses_of", addresses)


async def test_all_addresses_of_a_name_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    leads_to(monkeypatch, "127.0.0.3", "127.0.0.2", "127.0.0.1")
    async with raw_server(saying(OK)) as server, asking() as pool:
        assert await fetched(pool, f"http://many.test:{server.port}/") == (200, b"ok")


async def test_an_address_that_keeps_silent_does_not_keep_others_from_being_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leads_to(monkeypatch, "127.0.0.2", "127.0.0.1")
    really, given_up = dial.open_socket, asyncio.Event()

    async def open(family: int, address: Any) -> socket.socket:
        if address[0] == "127.0.0.2":
            try:
                await asyncio.Event().wait()
            finally:
                given_up.set()
        return await really(family, address)

    monkeypatch.setattr(dial, "open_socket", open)
    async with raw_server(saying(OK)) as server, asking() as pool:
        assert await fetched(pool, f"http://many.test:{server.port}/") == (200, b"ok")
        await asyncio.wait_for(given_up.wait(), WAIT_S)


async def test_a_name_without_anybody_at_its_addresses_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leads_to(monkeypatch, "127.0.0.2", "127.0.0.1")
    async with asking() as pool:
        with pytest.raises(ConnectError, match="cannot be reached: Connection refused"):
            await fetched(pool, "http://many.test:1/")


async def test_addresses_of_two_families_take_turns() -> None:
    loop = asyncio.get_running_loop()

    async def found(*_: object, **__: object) -> list[Any]:
        six = [(socket.AF_INET6, 0, 0, "", (f"::{n}", 1, 0, 0)) for n in (1, 2)]
        return [*six, (socket.AF_INET, 0, 0, "", ("127.0.0.1", 1))]

    if "uvloop" in type(loop).__module__:
        pytest.skip("its methods cannot be replaced")
    loop.getaddrinfo = found  # type: ignore[method-assign]
    addresses = await dial.addresses_of(Origin("http", "a.test", 1))
    assert [address[0] for _, address in addresses] == ["::1", "127.0.0.1", "::2"]


@asynccontextmanager
async def proxy(
    says: bytes = b"HTTP/1.1 200 Connected\r\n\r\n", tls: ssl.SSLContext | None = None
) -> AsyncGenerator[RawServer, None]:
    """A proxy that carries to wherever it is told, and passes plain requests on."""

    async def pump(reader: Reader, writer: Writer) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        head = await server.request(reader)
        verb, where, _ = head.split(b" ", 2)
        first = b""
        if verb != b"CONNECT":
            first = head.replace(where, b"/" + where.split(b"/", 3)[3], 1) + server.bodies[-1]
            where = where.split(b"/")[2]
        else:
            writer.write(says)
            if not says.startswith(b"HTTP/1.1 200"):
                return
        host, _, port = where.decode().rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        back.write(first)
        try:
            await asyncio.gather(pump(reader, back), pump(there, writer))
        finally:
            back.transport.abort()

    async with raw_server(converse, tls) as server:
        yield server


async def test_a_plain_request_goes_through_the_proxy_with_its_whole_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with raw_server(saying(OK)) as server, proxy() as between, asking() as pool:
        monkeypatch.setenv("HTTP_PROXY", f"http://me:pw@127.0.0.1:{between.port}")
        for _ in range(2):
            assert await fetched(pool, f"{server.url}?a=b") == (200, b"ok")
    line, *rest = between.heads[0].decode().split("\r\n")
    assert line == f"POST {server.url}?a=b HTTP/1.1"
    assert "proxy-authorization: Basic bWU6cHc=" in rest
    assert f"host: 127.0.0.1:{server.port}" in rest


@pytest.mark.parametrize("is_secured", [False, True])
async def test_a_secured_request_goes_through_the_proxy_unseen(
    tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch, is_secured: bool
) -> None:
    context = tls if is_secured else None
    scheme = "https" if is_secured else "http"
    async with raw_server(saying(OK), tls) as server, proxy(tls=context) as between:
        monkeypatch.setenv("https_proxy", f"{scheme}://me:pw@localhost:{between.port}")
        async with asking() as pool:
            for _ in range(3):
                url = f"https://localhost:{server.port}/mcp"
                assert await fetched(pool, url, b"secret") == (200, b"ok")
    (head,) = between.heads
    assert head.decode().split("\r\n") == [
        f"CONNECT localhost:{server.port} HTTP/1.1",
        f"Host: localhost:{server.port}",
        "Proxy-Authorization: Basic bWU6cHc=",
        "",
        "",
    ]
    assert b"Proxy-Authorization" not in server.heads[0]
    assert server.connections == 1


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (b"HTTP/1.1 407 Login Required\r\n\r\n", "its proxy returned HTTP 407 Login Required"),
        (b"HTTP/1.1 502\r\n\r\n", "its proxy returned HTTP 502"),
        (b"hello\r\n\r\n", "its proxy did not send an HTTP response"),
        (b"HTTP/1.1 20", "its proxy closed the connection"),
        (b"HTTP/1.1 200 OK\r\n\r\nmore", "its proxy sent unexpected data after its response"),
        (b"HTTP/1.1 500 " + b"x" * 100_000, "its proxy sent headers longer than"),
    ],
)
async def test_a_proxy_that_does_not_carry_is_told(
    monkeypatch: pytest.MonkeyPatch, tls: ssl.SSLContext, says: bytes, why: str
) -> None:
    async with raw_server(saying(OK), tls) as server, proxy(says) as between, asking() as pool:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:pw@127.0.0.1:{between.port}")
        with pytest.raises(ConnectError, match=f"cannot be reached: {why}"):
            await fetched(pool, f"https://localhost:{server.port}/")
        await asyncio.wait_for(between.left.get(), WAIT_S)
        assert server.heads == []


async def test_what_is_meant_for_this_machine_goes_through_no_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    async with raw_server(saying(OK)) as server:
        web = HttpClient(Site(server.url))
        async with web.send("GET", server.url, {}) as response:
            assert await web.body(response) == b"ok"
        await web.close()
