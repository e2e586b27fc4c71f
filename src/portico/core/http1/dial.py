"""New connections to an origin: name resolution, all its addresses, TLS and proxies."""

import asyncio
import ipaddress
import itertools
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from portico.core.http1.certificates import tls_context
from portico.core.http1.errors import ConnectError, ForbiddenAddress, error_text
from portico.core.http1.proxies import Proxy
from portico.core.http1.url import Origin

_STAGGER_S = 0.25
"""How long to wait for an address before the next one is tried in parallel (RFC 8305)."""

_UNKNOWN_CA = (18, 19, 20, 21)
"""The codes of X509_verify_cert for a certificate whose issuer is not known."""

P = TypeVar("P", bound=asyncio.Protocol)
_Address = tuple[int, Any]
Permit = Callable[[str], bool]
"""True if an address may be contacted; called for each, before the connection is opened."""


MAX_HEAD = 64 * 1024
_END = b"\r\n\r\n"


class Tunnel(asyncio.Protocol):
    """The protocol of a connection to a proxy until the tunnel is open."""

    def __init__(self, opened: asyncio.Future[None]) -> None:
        """Complete `opened` once the tunnel is open or refused."""
        self.opened = opened
        self._head = b""

    def request(self, origin: Origin, login: str) -> bytes:
        """Return the bytes of the CONNECT request."""
        lines = [f"CONNECT {origin.authority} HTTP/1.1", f"Host: {origin.authority}"]
        lines += [f"Proxy-Authorization: {login}"] if login else []
        return "\r\n".join((*lines, "", "")).encode()

    def data_received(self, data: bytes) -> None:
        """Add data to the response."""
        self._head += data
        if self.opened.done():
            return
        head, end, rest = self._head.partition(_END)
        if end:
            self._check(head, rest)
        elif len(self._head) > MAX_HEAD:
            self._fail(f"its proxy sent headers longer than {MAX_HEAD} bytes")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the tunnel, unless it was open."""
        why = f": {error_text(exc)}" if exc is not None else ""
        self._fail(f"its proxy closed the connection{why}")

    def _check(self, head: bytes, rest: bytes) -> None:
        line = head.partition(b"\r\n")[0].decode("latin-1")
        version, _, outcome = line.partition(" ")
        status = outcome[:3]
        if not (version.startswith("HTTP/1.") and status.isdigit()):
            self._fail("its proxy did not send an HTTP response")
        elif not status.startswith("2"):
            self._fail(f"its proxy returned HTTP {outcome[:100].strip()}")
        elif rest:
            self._fail("its proxy sent unexpected data after its response")
        else:
            self.opened.set_result(None)

    def _fail(self, why: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(ConnectError.because(why))
            self.opened.exception()  # marked as retrieved: the waiting task may be cancelled


def permit_all(address: str) -> bool:
    """Permit every address."""
    return True


async def dial(
    origin: Origin,
    proxy: Proxy | None,
    make: Callable[[], P],
    timeout_s: float,
    permit: Permit = permit_all,
) -> P:
    """Connect to the origin or its proxy; raises Http1Error."""
    try:
        async with asyncio.timeout(timeout_s):
            if proxy is None:
                return (await _connect(origin, make, permit))[1]
            if permit is not permit_all:
                await _check_behind_proxy(origin, permit)
            if origin.scheme == "https":
                return await _connect_through(proxy, origin, make)
            return (await _connect(proxy.origin, make))[1]
    except TimeoutError:
        raise ConnectError.in_time(timeout_s) from None
    except ssl.SSLCertVerificationError as error:
        hint = (
            "; to trust its issuer, set SSL_CERT_FILE" if error.verify_code in _UNKNOWN_CA else ""
        )
        why = f"its TLS certificate is not trusted: {error.verify_message}{hint}"
        raise ConnectError.because(why) from None
    except ssl.SSLError as error:
        why = f"the TLS handshake failed: {error.reason or error}; check its URL and port"
        raise ConnectError.because(why) from None
    # UnicodeError: the name is too long to resolve. RuntimeError: no thread is available for it.
    except (OSError, UnicodeError, RuntimeError) as error:
        raise ConnectError.because(error_text(error) + _hint(error, proxy)) from None


async def _connect(
    origin: Origin, make: Callable[[], P], permit: Permit = permit_all
) -> tuple[asyncio.Transport, P]:
    loop = asyncio.get_running_loop()
    secured: dict[str, Any] = {}
    if origin.scheme == "https":
        context = await asyncio.to_thread(tls_context)
        secured = {"ssl": context, "server_hostname": origin.verified}
    if _is_address(origin.host):
        _check(origin, [origin.host], permit)
        made = await loop.create_connection(make, origin.host, origin.port, **secured)
    else:
        addresses = await addresses_of(origin)
        _check(origin, [str(address[0]) for _, address in addresses], permit)
        sock = await _first_accepted(addresses)
        try:
            made = await loop.create_connection(make, sock=sock, **secured)
        except BaseException:
            sock.close()
            raise
    return made


async def _connect_through(proxy: Proxy, origin: Origin, make: Callable[[], P]) -> P:
    """Connect to the origin through a tunnel of the proxy."""
    loop = asyncio.get_running_loop()
    context = await asyncio.to_thread(tls_context)
    transport, tunnel = await _connect(proxy.origin, lambda: Tunnel(loop.create_future()))
    try:
        transport.write(tunnel.request(origin, proxy.login))
        await tunnel.opened
        connection = make()
        secure = await loop.start_tls(
            transport, connection, context, server_hostname=origin.verified
        )
        if secure is None:
            raise ConnectionResetError("the connection was closed during the TLS handshake")
        connection.connection_made(secure)
    except BaseException:
        transport.abort()
        raise
    return connection


async def _check_behind_proxy(origin: Origin, permit: Permit) -> None:
    """Judge an address, or a name that resolves here; any other name is left to the proxy."""
    if _is_address(origin.host):
        _check(origin, [origin.host], permit)
        return
    try:
        addresses = await addresses_of(origin)
    except (OSError, UnicodeError):
        return
    _check(origin, [str(address[0]) for _, address in addresses], permit)


def _check(origin: Origin, addresses: list[str], permit: Permit) -> None:
    """Raise ForbiddenAddress if one of the addresses may not be contacted."""
    for address in addresses:
        if not permit(address):
            via = "" if address == origin.host else f" leads to {address}, which"
            raise ForbiddenAddress.because(f"{origin.host}{via} is not a public address")


def _hint(error: Exception, proxy: Proxy | None) -> str:
    if proxy is not None:
        return f"; check the proxy {proxy.origin.authority}"
    if isinstance(error, socket.gaierror):
        return "; check the host name in its URL"
    return "; check that it is running" if isinstance(error, ConnectionRefusedError) else ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def addresses_of(origin: Origin) -> list[_Address]:
    """Resolve a name: the best address first, then the two families in alternation."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    addresses = [(int(family), address) for family, _, _, _, address in found]
    best = addresses[0][0] if addresses else 0
    same = [one for one in addresses if one[0] == best]
    others = [one for one in addresses if one[0] != best]
    pairs = itertools.zip_longest(same, others)
    return [one for one in itertools.chain.from_iterable(pairs) if one is not None]


async def _first_accepted(addresses: list[_Address]) -> socket.socket:
    """Return the first connection that is accepted; addresses are tried in a staggered start."""
    waiting = deque(addresses)
    trying: set[asyncio.Task[socket.socket]] = set()
    failed: list[BaseException] = []
    try:
        while waiting or trying:
            if waiting:
                trying.add(asyncio.create_task(open_socket(*waiting.popleft())))
            limit = _STAGGER_S if waiting else None
            done, trying = await asyncio.wait(trying, timeout=limit, return_when="FIRST_COMPLETED")
            failed += [error for task in done if (error := task.exception()) is not None]
            accepted = [task for task in done if task.exception() is None]
            if accepted:
                trying.update(accepted[1:])
                return accepted[0].result()
    finally:
        for task in trying:
            task.cancel()
            task.add_done_callback(_close)
    raise failed[0] if failed else OSError("its host name has no address")


def _close(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def open_socket(family: int, address: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
