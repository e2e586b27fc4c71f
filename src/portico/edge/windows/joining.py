"""Connecting a window to an owner."""

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from portico.edge.windows.connected_windows import ATTACH
from portico.edge.windows.control_sockets import connect, socket_names
from portico.edge.windows.preferences import Preferences

_MAX_ANSWER = 64 * 1024
_ATTACH_S = 5.0
_JOIN_S = 5.0
_PAUSE_S = 0.01


class Attached(Struct, frozen=True):
    """A connection that the owner has accepted."""

    socket: socket.socket
    rest: bytes
    """Bytes received after the owner's reply."""
    preferences: Preferences
    """The preferences to send to the next owner, for the same endpoint."""


class Incompatible(Struct, frozen=True):
    """The reason why an owner cannot serve this window."""

    why: str
    is_other_account: bool = False
    """True if the owner has another account: a second owner may have this window's."""
    error: str = ""
    """The error in the owner's reply, if it sent one."""
    is_final: bool = False
    """True if this window must not be served elsewhere either."""


class _AttachReply(Struct):
    ok: bool
    error: str = ""
    version: str = ""
    final: bool = False
    other_account: bool = False
    resolved: dict[str, Any] = {}


async def attach(
    folder: str, name: str, version: str, within_s: float, **more: Any
) -> Attached | Incompatible | None:
    """Attach to an owner; return None if it ended or is not ready yet."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.setblocking(False)
        if not connect(sock, folder, name):
            sock.close()
            return None
    except OSError:  # its backlog is full
        sock.close()
        return None
    except BaseException:
        sock.close()
        raise
    return await negotiate(sock, version, within_s, {"do": ATTACH, **more})


async def attach_when_free(
    folder: str, name: str, version: str, **more: Any
) -> Attached | Incompatible | None:
    """Attach, retrying while the owner is busy; return None if it has ended."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _JOIN_S
    while True:
        found = await attach(folder, name, version, _ATTACH_S, **more)
        if found is not None or name not in socket_names(folder):
            return found
        if loop.time() > deadline:
            return Incompatible(f"no response within {_JOIN_S:g} s")
        await asyncio.sleep(_PAUSE_S)  # its backlog is full


async def negotiate(
    sock: socket.socket, version: str, within_s: float, request: Mapping[str, Any] | None = None
) -> Attached | Incompatible | None:
    """Send the request to attach, unless the owner has it already, and read the reply."""
    found: Attached | Incompatible | None = None
    try:
        async with asyncio.timeout(within_s):
            found = await _negotiate(sock, version, request)
    except TimeoutError:
        found = Incompatible(f"no response within {within_s:g} s")
    except OSError:
        found = None  # it ended just now
    finally:
        if not isinstance(found, Attached):
            sock.close()
    return found


async def _negotiate(
    sock: socket.socket, version: str, request: Mapping[str, Any] | None
) -> Attached | Incompatible | None:
    loop = asyncio.get_running_loop()
    if request is not None:
        await loop.sock_sendall(sock, msgspec.json.encode(request) + b"\n")
    received = b""
    while b"\n" not in received:
        data = await loop.sock_recv(sock, _MAX_ANSWER)
        received += data
        if not data or len(received) > _MAX_ANSWER:
            return None
    line, _, rest = received.partition(b"\n")
    try:
        reply = msgspec.json.decode(line, type=_AttachReply)
    except msgspec.DecodeError:
        return Incompatible("invalid reply")
    if not reply.ok:
        return Incompatible(reply.error, error=reply.error, is_final=reply.final)
    if reply.other_account:
        return Incompatible("it uses another account", is_other_account=True)
    if reply.version != version:
        return Incompatible(f"it runs Portico {reply.version}, this is {version}")
    return Attached(sock, rest, reply.resolved)
