"""New connections to an origin: names looked up, all its addresses tried, TLS, and a proxy."""

import asyncio
import ipaddress
import itertools
import socket
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from portico.http1.certificates import tls_context
from portico.http1.errors import ConnectError, words
from portico.http1.proxies import Proxy
from portico.http1.tunnel import Tunnel
from portico.http1.url import Origin

_STAGGER_S = 0.25
"""How long an address may keep silent before the next one is tried beside it (RFC 8305)."""

P = TypeVar("P", bound=asyncio.Protocol)
_Address = tuple[int, Any]


async def dial(origin: Origin, proxy: Proxy | None, make: Callable[[], P], timeout_s: float) -> P:
    """A connection on which the origin, or its proxy, can be asked; raises Trouble."""
    try:
        async with asyncio.timeout(timeout_s):
            if proxy is not None and origin.scheme == "https":
                return await _through(proxy, origin, make)
            return (await _connect(origin if proxy is None else proxy.origin, make))[1]
    except TimeoutError:
        raise ConnectError.in_time(timeout_s) from None
    except ssl.SSLCertVerificationError as error:
        why = f"its certificate is not to be trusted: {error.verify_message}"
        raise ConnectError.because(why) from None
    except ssl.SSLError as error:
        raise ConnectError.because(f"no TLS came about: {error.reason or error}") from None
    # UnicodeError: a name that is too long to look up. RuntimeError: no thread can be had for it.
    except (OSError, UnicodeError, RuntimeError) as error:
        raise ConnectError.because(words(error)) from None


async def _connect(origin: Origin, make: Callable[[], P]) -> tuple[asyncio.Transport, P]:
    loop = asyncio.get_running_loop()
    secured: dict[str, Any] = {}
    if origin.scheme == "https":
        context = await asyncio.to_thread(tls_context)
        secured = {"ssl": context, "server_hostname": origin.verified}
    if _is_address(origin.host):
        made = await loop.create_connection(make, origin.host, origin.port, **secured)
    else:
        line = await _first(await addresses_of(origin))
        try:
            made = await loop.create_connection(make, sock=line, **secured)
        except BaseException:
            line.close()
            raise
    return made


async def _through(proxy: Proxy, origin: Origin, make: Callable[[], P]) -> P:
    """A connection to the origin itself that the proxy only carries."""
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
            raise ConnectionResetError("it ended while it shook hands")
        connection.connection_made(secure)
    except BaseException:
        transport.abort()
        raise
    return connection


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def addresses_of(origin: Origin) -> list[_Address]:
    """Those of a name, best first, but no two of a family in a row if there are two families."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(origin.host, origin.port, type=socket.SOCK_STREAM)
    addresses = [(int(family), address) for family, _, _, _, address in found]
    best = addresses[0][0] if addresses else 0
    ours = [one for one in addresses if one[0] == best]
    others = [one for one in addresses if one[0] != best]
    pairs = itertools.zip_longest(ours, others)
    return [one for one in itertools.chain.from_iterable(pairs) if one is not None]


async def _first(addresses: list[_Address]) -> socket.socket:
    """The first to accept; each is given a moment before the next is tried beside it."""
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
    raise failed[0] if failed else OSError("its name leads nowhere")


def _close(task: asyncio.Task[socket.socket]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().close()


async def open_socket(family: int, address: Any) -> socket.socket:
    line = socket.socket(family, socket.SOCK_STREAM)
    try:
        line.setblocking(False)
        await asyncio.get_running_loop().sock_connect(line, address)
    except BaseException:
        line.close()
        raise
    return line
