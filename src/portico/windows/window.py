"""A window: one client on stdin and stdout, at the gateway that all windows share.

The first window starts the gateway's owner; each window is a bridge to it. When the owner ends, the
windows start another; their clients notice nothing but the calls that were under way. Where there
can be no owner, a window has the gateway in its own process.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncGenerator

from portico.model.errors import PorticoError
from portico.state.background import first_of
from portico.transport.pipes import serve_stdio, stop_on_signals, take_stdout, writer_to
from portico.windows.bridge import Bridge
from portico.windows.connected_windows import Wants
from portico.windows.joining import Attached, Incompatible, attach, greeted
from portico.windows.owner import (
    SILENCE_S,
    H_co,
    OwnedGateway,
    SharedGateway,
    hosting,
    keys,
    launch,
    own_here,
    windows_of,
)
from portico.windows.owner_connection import OwnerConnection
from portico.windows.owner_lock import OwnerLock, owner_of
from portico.windows.session_state import PING

__all__ = ["SILENCE_S", "SharedGateway", "hosted", "serve_shared"]

_ATTACH_S = 5.0
_SEEK_S = 10.0
_START_S = 60.0
"""How long an owner may take to be there; it loads the gateway, perhaps on a busy machine."""
_SETTLE_S = 30.0
_PAUSE_S = 0.01
_MARGIN_S = 2.0
_HASTE_S = 0.5
_MAX_HASTY = 5

Place = Attached | Incompatible


async def serve_shared(
    shared: SharedGateway[OwnedGateway],
    *,
    out: int | None = None,
    stop: asyncio.Event | None = None,
) -> bool:
    """Serve one client on stdin and stdout until it leaves or SIGTERM comes; False if requests
    could not be read, or answers not written.

    `out` is what `take_stdout` gave, if it was called already; `stop` ends it as SIGTERM does.
    """
    stop = stop or asyncio.Event()
    if not shared.detaches:
        return await _serve_alone(shared, out, stop)
    window = _Window(shared, stop)
    place = await window.place()
    writer = writer_to(take_stdout() if out is None else out)
    bridge = Bridge(writer, stop, max_line=shared.max_line)
    let_go = stop_on_signals(stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, bridge.ask_again)
    bridge.open()
    try:
        await window.carry(bridge, place)
        let_go()
        await bridge.part(shared.drain_s + _MARGIN_S)
    finally:
        await bridge.close()
        await window.close()
    return not (bridge.is_deaf or writer.failed)


async def _serve_alone(
    shared: SharedGateway[OwnedGateway], out: int | None, stop: asyncio.Event
) -> bool:
    """Have the gateway here, and nobody between it and the client."""
    async with hosting(shared, None, stop, windows_of(shared), speaks=False) as gateway:
        endpoint, _ = gateway.client_endpoint(shared.wants)
        return await serve_stdio(
            endpoint, out=out, max_line=shared.max_line, drain_s=shared.drain_s, stop=stop
        )


@contextlib.asynccontextmanager
async def hosted(shared: SharedGateway[H_co], stop: asyncio.Event) -> AsyncGenerator[H_co, None]:
    """Have a gateway whose own clients come otherwise; windows are let in as well, unless another
    process has it already. When `stop` is set, they are sent away."""
    lock = None
    try:
        for key in keys(shared):
            lock = lock or OwnerLock.taken(shared.folder, key)
    except OSError as error:
        shared.report(f"{shared.folder} cannot be used: {error.strerror or error}")
    async with hosting(shared, lock, stop, windows_of(shared)) as gateway:
        yield gateway


class _Window:
    """Where a window finds the gateway, from one owner to the next."""

    def __init__(self, shared: SharedGateway[OwnedGateway], stop: asyncio.Event) -> None:
        self._shared = shared
        self._stop = stop
        self._turn = 0
        self._wants: Wants = shared.wants
        self._here: asyncio.Task[None] | None = None
        """The gateway in our own process."""
        self._end_here = asyncio.Event()

    async def place(self) -> Attached:
        """A connection to the owner, which is started if there is none, or to ourselves."""
        found: Place = Incompatible("")
        if self._here is None:
            found = await self._shared_place()
        if isinstance(found, Incompatible):
            if found.why:
                self._shared.report(
                    f"cannot join the running gateway: {found.why}; "
                    "starting separate servers for this client"
                )
            found = await self._own_place()
        self._wants = found.keeps
        return found

    async def carry(self, bridge: Bridge, place: Attached) -> None:
        """Go from owner to owner until the client leaves."""
        loop = asyncio.get_running_loop()
        hasty = 0
        while True:
            begun = loop.time()
            connection = OwnerConnection(place, bridge, self._turn)
            if await _settled(bridge, connection):
                silent = falls_silent(bridge, connection, self._shared.silence_s)
                await first_of(bridge.adrift.wait(), self._stop.wait(), silent)
            if self._stop.is_set() and not bridge.is_idle:  # something waits for the next owner
                await bridge.part(self._shared.drain_s + _MARGIN_S)
            if self._stop.is_set() and (bridge.is_idle or not bridge.adrift.is_set()):
                return
            self._turn += 1
            # An owner may be so ill that it lets us in and no further.
            is_hasty = loop.time() - begun < _HASTE_S and not connection.has_answered
            hasty = hasty + 1 if is_hasty else 0
            await asyncio.sleep(_HASTE_S * hasty / _MAX_HASTY)
            if hasty > _MAX_HASTY and self._here is None:
                self._shared.report(
                    "the running gateway hangs up again and again; "
                    "starting separate servers for this client"
                )
                place = await self._own_place()
            else:
                place = await self.place()

    async def close(self) -> None:
        """End the gateway in our own process, if there is one."""
        self._end_here.set()
        if self._here is not None:
            await self._here

    @property
    def _order(self) -> dict[str, object]:
        return {"turn": self._turn, "account": self._shared.account(), "wants": self._wants}

    async def _own_place(self) -> Attached:
        """Have the gateway here; PorticoError if there can be none."""
        if self._here is not None:
            self._end_here.set()
            await self._here
        self._end_here = asyncio.Event()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        work = own_here(self._shared, theirs.detach(), self._order, self._end_here)
        self._here = asyncio.ensure_future(work)
        greeting = asyncio.ensure_future(greeted(ours, self._shared.version, _START_S))
        await asyncio.wait({self._here, greeting}, return_when=asyncio.FIRST_COMPLETED)
        if self._here.done():
            greeting.cancel()
            self._here.result()  # raises what it failed with
        found = await greeting
        if not isinstance(found, Attached):
            raise PorticoError("the gateway does not start")
        return found

    async def _shared_place(self) -> Place:
        """A connection to whoever owns the gateway, or why we are on our own."""
        found: Place = Incompatible("")
        for key in keys(self._shared):
            found = await self._place_by(key)
            if not (isinstance(found, Incompatible) and found.is_other):
                break
        return found

    async def _place_by(self, key: str) -> Place:
        shared = self._shared
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _SEEK_S
        while True:
            try:
                lock = OwnerLock.taken(shared.folder, key)
            except OSError as error:
                return Incompatible(f"{shared.folder} cannot be used: {error.strerror or error}")
            if lock is not None:
                found = await self._launched(lock)
            else:
                found = await self._joined(key)
            if found is not None:
                return found
            if loop.time() > deadline:
                return Incompatible(f"no response within {_SEEK_S:g} s")
            await asyncio.sleep(_PAUSE_S)

    async def _launched(self, lock: OwnerLock) -> Place | None:
        """Start the owner; None if it ended before it could answer."""
        try:
            door = launch(self._shared, lock, self._order)
        except OSError as error:
            lock.release()
            return Incompatible(f"no process can be started: {error.strerror or error}")
        found = await greeted(door, self._shared.version, _START_S)
        if isinstance(found, Incompatible) and found.error:
            raise PorticoError(found.error)
        return found

    async def _joined(self, key: str) -> Place | None:
        """Go to the owner that there is; None if it is gone or cannot say yet."""
        shared = self._shared
        name = owner_of(shared.folder, key)
        if not name:
            return None
        found = await attach(shared.folder, name, shared.version, _ATTACH_S, **self._order)
        if isinstance(found, Incompatible):
            why = f"process {name.partition('.')[0]} has it, and {found.why}"
            return Incompatible(why, is_other=found.is_other)
        return found


async def falls_silent(bridge: Bridge, connection: OwnerConnection, after_s: float) -> None:
    """Hang up on an owner that lives and answers nothing, as one that somebody has stopped."""
    while not connection.is_over:
        await asyncio.sleep(after_s)
        if not bridge.awaits(connection):
            continue
        pong = connection.tell(PING, b"")
        await asyncio.wait((pong,), timeout=after_s)
        if not pong.done() and bridge.awaits(connection):
            bridge.ended()


async def _settled(bridge: Bridge, connection: OwnerConnection) -> bool:
    """Go to this owner; False if it does not get so far."""
    try:
        async with asyncio.timeout(_SETTLE_S):
            await bridge.settle(connection)
    except TimeoutError:
        bridge.ended()
        return False
    return True
