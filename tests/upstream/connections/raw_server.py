"""Servers that send exactly the given bytes, a client for them, and TLS."""

import asyncio
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from portico.core.http1.pool import Pool
from tests.upstream.connections.fakes import WAIT_S

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


class RawServer:
    """A listener; each connection is a conversation of the test's own."""

    def __init__(self) -> None:
        self.port = 0
        self.heads: list[bytes] = []
        """The heads of the requests."""
        self.bodies: list[bytes] = []
        self.connections = 0
        self.asked = asyncio.Event()
        """Set once there was a request."""
        self.left: asyncio.Queue[None] = asyncio.Queue()
        """One entry for each connection that is over."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    async def request(self, reader: Reader) -> bytes:
        """The head of the next request; its body is kept."""
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        _, found, rest = head.lower().partition(b"content-length:")
        length = int(rest.partition(b"\r\n")[0]) if found else 0
        self.bodies.append(await reader.readexactly(length))
        self.asked.set()
        return head


@asynccontextmanager
async def raw_server(
    converse: Callable[[RawServer, Reader, Writer], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[RawServer, None]:
    """A server on a free port of this machine."""
    server = RawServer()
    tasks: set[asyncio.Task[None]] = set()
    writers: list[Writer] = []

    async def connected(reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        writers.append(writer)
        server.connections += 1
        try:
            await converse(server, reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            tasks.discard(task)
            writer.close()
            server.left.put_nowait(None)

    listener = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tuple(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.gather(*(_abort(writer) for writer in writers), return_exceptions=True)


async def _abort(writer: Writer) -> None:
    """Drop a connection that is not closed yet: over TLS, `close` waits for the other side.

    Aborting a transport that closed when its buffer was empty raises in Python 3.11.
    """
    closed = asyncio.ensure_future(writer.wait_closed())
    await asyncio.sleep(0)
    if not closed.done():
        writer.transport.abort()
    await closed


def saying(*answers: bytes, closes: bool = False) -> Callable[..., Awaitable[None]]:
    """Answers each request of a connection with the next of these, and the last for ever."""

    async def converse(server: RawServer, reader: Reader, writer: Writer) -> None:
        for turn in range(1_000_000):
            await server.request(reader)
            writer.write(answers[min(turn, len(answers) - 1)])
            await writer.drain()
            if closes:
                return

    return converse


@asynccontextmanager
async def asking(connect_s: float = WAIT_S, limit: int = 128) -> AsyncGenerator[Pool, None]:
    """A pool that is closed in the end; it looks for proxies."""
    pool = Pool({}, connect_s, max_connections=limit)
    try:
        yield pool
    finally:
        await pool.close()


async def fetched(pool: Pool, url: str, body: bytes = b"{}") -> tuple[int, bytes]:
    """Status and body of what a POST is answered."""
    async with asyncio.timeout(WAIT_S):
        response = await pool.send("POST", url, {}, body)
        try:
            await response.head()
            return response.status, b"".join([chunk async for chunk in response])
        finally:
            response.close()


def certified(folder: Path, *names: str) -> tuple[ssl.SSLContext, Path]:
    """Return the TLS context of a server with these names, and the file of its root certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _unsigned("made for a test", "made for a test", key)
    certificate = (
        builder.add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .sign(key, hashes.SHA256())
    )
    return _kept(folder, key, certificate, certificate)


def loosely_certified(folder: Path, name: str) -> tuple[ssl.SSLContext, Path]:
    """The same, issued by a certificate that lacks extensions required by RFC 5280."""
    key, issuer_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = (
        _unsigned("issuer", "issuer", issuer_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), False)  # not critical
        .sign(issuer_key, hashes.SHA256())
    )
    certificate = (
        _unsigned(name, "issuer", key)
        .add_extension(x509.SubjectAlternativeName([_name(name)]), False)
        .sign(issuer_key, hashes.SHA256())
    )
    return _kept(folder, key, certificate, issuer)


def _unsigned(
    subject: str, issuer: str, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    issued, called = (
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])
        for text in (issuer, subject)
    )
    return (
        x509.CertificateBuilder(issued, called, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
    )


def _kept(
    folder: Path,
    key: ec.EllipticCurvePrivateKey,
    shown: x509.Certificate,
    trusted: x509.Certificate,
) -> tuple[ssl.SSLContext, Path]:
    pem = serialization.Encoding.PEM
    certificate, private, trust = (
        folder / name for name in ("shown.pem", "private.pem", "trusted.pem")
    )
    certificate.write_bytes(shown.public_bytes(pem))
    trust.write_bytes(trusted.public_bytes(pem))
    plain = serialization.NoEncryption()
    private.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, private)
    return context, trust


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
