"""How a window gets a connection to an owner."""

import asyncio
import socket
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from portico.windows.connected_windows import ATTACH, Wants
from portico.windows.control_sockets import connected

_MAX_ANSWER = 64 * 1024


class Attached(Struct, frozen=True):
    """A connection to an owner that has let us in."""

    socket: socket.socket
    rest: bytes
    """What it said after its answer."""
    keeps: Wants
    """What to want from the next one, to be served the same."""


class Incompatible(Struct, frozen=True):
    """An owner that cannot serve us, and why."""

    why: str
    is_other: bool = False
    """True if it has another account: somebody else may have ours."""
    error: str = ""
    """What it said itself, if it did."""


class _Answer(Struct):
    ok: bool
    error: str = ""
    version: str = ""
    other: bool = False
    keeps: dict[str, Any] = {}


async def attach(
    folder: str, name: str, version: str, within_s: float, **more: Any
) -> Attached | Incompatible | None:
    """Be let in by an owner; None if that one is gone or cannot say yet."""
    door = socket.socket(socket.AF_UNIX)
    try:
        door.setblocking(False)
        if not connected(door, folder, name):
            door.close()
            return None
    except OSError:  # too many others are at its door
        door.close()
        return None
    except BaseException:
        door.close()
        raise
    return await greeted(door, version, within_s, {"do": ATTACH, **more})


async def greeted(
    door: socket.socket, version: str, within_s: float, order: Mapping[str, Any] | None = None
) -> Attached | Incompatible | None:
    """Ask an owner to let us in, unless it knows, and wait for its answer."""
    found: Attached | Incompatible | None = None
    try:
        async with asyncio.timeout(within_s):
            found = await _asked(door, version, order)
    except TimeoutError:
        found = Incompatible(f"no response within {within_s:g} s")
    except OSError:
        found = None  # it ended just now
    finally:
        if not isinstance(found, Attached):
            door.close()
    return found


async def _asked(
    door: socket.socket, version: str, order: Mapping[str, Any] | None
) -> Attached | Incompatible | None:
    loop = asyncio.get_running_loop()
    if order is not None:
        await loop.sock_sendall(door, msgspec.json.encode(order) + b"\n")
    said = b""
    while b"\n" not in said:
        more_said = await loop.sock_recv(door, _MAX_ANSWER)
        said += more_said
        if not more_said or len(said) > _MAX_ANSWER:
            return None
    line, _, rest = said.partition(b"\n")
    try:
        answer = msgspec.json.decode(line, type=_Answer)
    except msgspec.DecodeError:
        return Incompatible("it answered with something else")
    if not answer.ok:
        return Incompatible(f"it said: {answer.error}", error=answer.error)
    if answer.other:
        return Incompatible("it has another account", is_other=True)
    if answer.version != version:
        return Incompatible(f"it is Portico {answer.version}, and this is {version}")
    return Attached(door, rest, answer.keeps)
