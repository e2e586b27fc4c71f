"""Clients of other processes at our endpoint: each comes in through the control socket.

After the answer to `attach` a connection is MCP as on stdio, a message a line, and one line more:
the *parting word*, which the answer names and no message can be. From us it says that we leave and
new requests go elsewhere; from a bridge, that it has sent its last request.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from portico.model.errors import PorticoError
from portico.state.background import first_of
from portico.transport.connection import Endpoint
from portico.transport.control import Door, Order
from portico.transport.pipes import PipeReader, PipeWriter
from portico.transport.sockets import connected
from portico.transport.stdio import StdioServer

ATTACH = "attach"
MOST_GUESTS = 256
_MAX_ANSWER = 64 * 1024
_PARTING_S = 5.0
"""How long a bridge may take to say that it has sent its last request."""


Wants = Mapping[str, Any]
"""How a client would like to be served."""
Doorway = Callable[[Wants], tuple[Endpoint, Wants]]
"""Who answers such a client, and what it is to want from the next owner, to be served the same."""


class Guests:
    """All clients of other processes, from the first to the last."""

    def __init__(
        self, version: str, account: Callable[[], str], *, max_line: int, drain_s: float
    ) -> None:
        """`version` and `account` are ours; a bridge of others goes its own way."""
        self._version = version
        self._account = account
        self._doorway: Doorway | None = None
        self._max_line = max_line
        self._drain_s = drain_s
        self._here: set[_Guest] = set()
        self._leaving = False
        self.door = Door(self._open)

    def welcome(self, doorway: Doorway) -> None:
        """Serve those who wait, and whoever comes."""
        self._doorway = doorway
        for guest in tuple(self._here):
            guest.serve(doorway)

    async def leave(self) -> None:
        """Send all of them elsewhere, and wait until what runs for them is done."""
        self._leaving = True
        if self._here:
            await asyncio.wait([asyncio.ensure_future(guest.leave()) for guest in self._here])

    async def close(self) -> None:
        """Hang up on whoever is left."""
        self._leaving = True
        while self._here:
            await self._here.pop().end()

    def _open(self, order: Order) -> tuple[dict[str, Any], Any]:
        if len(self._here) >= MOST_GUESTS:
            raise PorticoError(f"it has {MOST_GUESTS} clients already")
        # Who does not say whose it is takes what is there: a command, never a window.
        if "account" in order and order["account"] != self._account():
            return {"other": True}, os.close
        parting = os.urandom(16).hex()
        wants = _wants(order)
        keeps = wants if self._doorway is None else self._doorway(wants)[1]

        def take(fd: int) -> None:
            if self._leaving:
                os.close(fd)
                return
            guest = _Guest(fd, parting.encode(), _turn(order), wants, self)
            self._here.add(guest)
            if self._doorway is not None:
                guest.serve(self._doorway)

        return {"version": self._version, "parting": parting, "keeps": keeps}, take

    def gone(self, guest: "_Guest") -> None:
        """This one is not here any more."""
        self._here.discard(guest)

    @property
    def limits(self) -> tuple[int, float]:
        """The longest line, and how long calls may run on."""
        return self._max_line, self._drain_s


class _Guest:
    """One client of another process."""

    _server: "_GuestServer"

    def __init__(self, fd: int, parting: bytes, turn: int, wants: Wants, guests: Guests) -> None:
        self._fd = fd
        self._parting = parting
        self._turn = turn
        self._wants = wants
        self._guests = guests
        self._parted = asyncio.Event()
        self._over = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    def serve(self, doorway: Doorway) -> None:
        """Answer what it asks from now on; until then, it waits in the socket."""
        endpoint, _ = doorway(self._wants)
        max_line, _ = self._guests.limits
        self._writer = PipeWriter(self._fd)
        self._server = server = _GuestServer(endpoint, self._writer.write, max_line=max_line)
        server.parting, server.parted = self._parting, self._parted
        if self._turn:
            server.connection.asker = f"portico.{self._turn}"
        self._reader = PipeReader(self._fd, server.received, self._over.set)
        self._writer.open(self, self._over.set)
        self._reader.open()
        self._work = asyncio.ensure_future(self._stay())

    def pause(self) -> None:
        """Its client reads slowly: nothing more is taken from it, and handlers wait."""
        self._server.pause()
        self._reader.pause()

    def resume(self) -> None:
        """It has caught up."""
        self._server.resume()
        self._reader.resume()

    async def leave(self) -> None:
        """Tell it to go elsewhere, and wait for its end."""
        if self._work is None:
            await self.end()
            return
        self._writer.write((self._parting, b"\n"))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(first_of(self._parted.wait(), self._over.wait()), _PARTING_S)
        self._parted.set()
        await asyncio.wait((self._work,))

    async def end(self) -> None:
        """Hang up."""
        if self._work is None:
            os.close(self._fd)
            self._guests.gone(self)
            return
        self._over.set()
        await asyncio.wait((self._work,))

    async def _stay(self) -> None:
        """Serve until it parts, and then drain; or until it is gone, and then cancel."""
        try:
            await first_of(self._parted.wait(), self._over.wait())
            if not self._over.is_set():
                drain_s = self._guests.limits[1]
                await first_of(self._server.drain(drain_s), self._over.wait())
        finally:
            self._reader.close()
            self._server.ended()
            if self._over.is_set():
                self._writer.drop()
            await self._writer.close()
            self._guests.gone(self)


class _GuestServer(StdioServer):
    """Serves a bridge's client, and hears the bridge's own one word."""

    parting: bytes
    parted: asyncio.Event
    """Set when it has sent its last request."""

    def take_line(self, line: bytes | None) -> None:
        """Take in one line."""
        if line == self.parting:
            self.parted.set()
        else:
            super().take_line(line)


class Attached(Struct, frozen=True):
    """A connection to an owner that has let us in."""

    socket: socket.socket
    parting: bytes
    rest: bytes
    """What it said after its answer."""
    keeps: Wants
    """What to want from the next one, to be served the same."""


class Unfit(Struct, frozen=True):
    """An owner that cannot serve us, and why."""

    why: str
    is_other: bool = False
    """True if it has another account: somebody else may have ours."""


class _Answer(Struct):
    ok: bool
    error: str = ""
    version: str = ""
    parting: str = ""
    other: bool = False
    keeps: dict[str, Any] = {}


async def attach(
    folder: str, name: str, version: str, within_s: float, **more: Any
) -> Attached | Unfit | None:
    """Be let in by an owner; None if that one is gone or cannot say yet."""
    door = socket.socket(socket.AF_UNIX)
    try:
        door.setblocking(False)
        if not connected(door, folder, name):
            door.close()
            return None
        async with asyncio.timeout(within_s):
            found = await _asked(door, version, more)
    except TimeoutError:
        found = Unfit(f"it did not answer within {within_s:g} s")
    except OSError:  # it ended just now, or too many others are at its door
        found = None
    except BaseException:
        door.close()
        raise
    if not isinstance(found, Attached):
        door.close()
    return found


async def _asked(
    door: socket.socket, version: str, more: Mapping[str, Any]
) -> Attached | Unfit | None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(door, msgspec.json.encode({"do": ATTACH, **more}) + b"\n")
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
        return Unfit("it answered with something else")
    if not answer.ok:
        return Unfit(f"it said: {answer.error}")
    if answer.other:
        return Unfit("it has another account", is_other=True)
    if answer.version != version:
        return Unfit(f"it is Portico {answer.version}, and this is {version}")
    return Attached(door, answer.parting.encode(), rest, answer.keeps)


def _wants(order: Order) -> Wants:
    wants = order.get("wants")
    return wants if isinstance(wants, dict) else {}


def _turn(order: Order) -> int:
    turn = order.get("turn")
    return turn if isinstance(turn, int) else 0
