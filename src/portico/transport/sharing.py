"""One gateway for all windows: the first process to start has it, the others are bridges to it.

When the owner ends, one of the bridges becomes the owner and the others go to that one; their
clients notice nothing but the calls that were under way.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from portico.state.background import first_of
from portico.state.report import report as to_operator
from portico.transport.attach import ATTACH, Attached, Guests, Unfit, Wants, attach
from portico.transport.bridge import Bridge
from portico.transport.connection import Endpoint
from portico.transport.control import Control, Deed
from portico.transport.crossing import Crossing, HouseCrossing, SocketCrossing
from portico.transport.noted import PING
from portico.transport.ownership import Ownership, is_known, owner_of
from portico.transport.pipes import DRAIN_S, serve_stdio, stop_on_signals, take_stdout, writer_to
from portico.transport.stdio import MAX_LINE

_ATTACH_S = 5.0
_SEEK_S = 10.0
_SETTLE_S = 30.0
SILENCE_S = 15.0
_PAUSE_S = 0.01
_MARGIN_S = 2.0
_HASTE_S = 0.5
_MOST_HASTY = 5


class House(Protocol):
    """What an owner has and the others use: the gateway itself."""

    def doorway(self, wants: Wants) -> tuple[Endpoint, Wants]:
        """Who answers a client that wants this, and what it is to want from the next owner."""
        ...

    @property
    def deeds(self) -> Mapping[str, Deed]:
        """What an operator may ask of it."""
        ...


def _anybody() -> str:
    return ""


H_co = TypeVar("H_co", bound=House, covariant=True)


class Shared(Struct, Generic[H_co], frozen=True):
    """Which gateway, and how to be its owner."""

    folder: str
    """Where the control sockets are."""
    key: str
    """The name of the gateway among others: short, and safe in a file's name."""
    own: Callable[[], AbstractAsyncContextManager[H_co]]
    """Entered only by the owner, and left when it has served its last client."""
    version: str
    """Of this Portico: only the same ones share a gateway."""
    account: Callable[[], str] = _anybody
    """In whose name servers are called, as far as that is not in the key: only the same share."""
    wants: Wants = {}
    """How our own client would like to be served."""
    max_line: int = MAX_LINE
    drain_s: float = DRAIN_S
    silence_s: float = SILENCE_S
    """How long an owner may leave a client without an answer before it is asked whether it is still
    there, and how long it may take to say so."""
    report: Callable[[str], None] = to_operator


async def serve_shared(
    shared: Shared[House], *, out: int | None = None, stop: asyncio.Event | None = None
) -> bool:
    """Serve one client on stdin and stdout, as owner or bridge, until it leaves or SIGTERM comes;
    False if requests could not be read, or answers not written.

    `out` is what `take_stdout` gave, if it was called already; `stop` ends it as SIGTERM does.
    """
    out = take_stdout() if out is None else out
    stop = stop or asyncio.Event()
    place = await _place(shared, 0, shared.wants)
    if isinstance(place, Attached):
        return await _bridged(shared, place, out, stop)
    async with _hosting(shared, place, stop) as house:
        endpoint, _ = house.doorway(shared.wants)
        return await serve_stdio(
            endpoint, out=out, max_line=shared.max_line, drain_s=shared.drain_s, stop=stop
        )


@contextlib.asynccontextmanager
async def hosted(shared: Shared[H_co], stop: asyncio.Event) -> AsyncGenerator[H_co, None]:
    """Have a gateway whose own clients come otherwise; those on stdin are let in as well, unless
    another process has it already. When `stop` is set, they are sent to the next owner."""
    place = None
    try:
        for key in _keys(shared):
            place = place or Ownership.taken(shared.folder, key)
    except OSError as error:
        shared.report(f"{shared.folder} cannot be used: {error.strerror or error}")
    async with _hosting(shared, place, stop) as house:
        yield house


async def _place(shared: Shared[House], turn: int, wants: Wants) -> Ownership | Attached | Unfit:
    """The lock, or a connection to whoever holds it, or why we are on our own."""
    for key in _keys(shared):
        found = await _place_by(shared, key, turn, wants)
        if not (isinstance(found, Unfit) and found.is_other):
            break
    return found


def _keys(shared: Shared[House]) -> tuple[str, ...]:
    """By which names to look for the gateway: the first is for whoever comes first, and those
    whose account is another have one of their own."""
    account = shared.account()
    if not account:
        return (shared.key,)
    own = f"{shared.key}-{account}"
    return (own, shared.key) if is_known(shared.folder, own) else (shared.key, own)


async def _place_by(
    shared: Shared[House], key: str, turn: int, wants: Wants
) -> Ownership | Attached | Unfit:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _SEEK_S
    more = {"turn": turn, "account": shared.account(), "wants": wants}
    while True:
        try:
            ownership = Ownership.taken(shared.folder, key)
        except OSError as error:
            return Unfit(f"{shared.folder} cannot be used: {error.strerror or error}")
        if ownership is not None:
            return ownership
        name = owner_of(shared.folder, key)
        found = None
        if name:
            found = await attach(shared.folder, name, shared.version, _ATTACH_S, **more)
        if isinstance(found, Attached):
            return found
        if isinstance(found, Unfit):
            why = f"process {name.partition('.')[0]} has it, and {found.why}"
            return Unfit(why, is_other=found.is_other)
        if loop.time() > deadline:
            return Unfit(f"who has it lets nobody in within {_SEEK_S:g} s")
        await asyncio.sleep(_PAUSE_S)


@contextlib.asynccontextmanager
async def _hosting(
    shared: Shared[H_co], place: Ownership | Unfit | None, stop: asyncio.Event
) -> AsyncGenerator[H_co, None]:
    """Have the gateway and let others in; when `stop` is set, send them to the next owner."""
    ownership = place if isinstance(place, Ownership) else None
    if isinstance(place, Unfit):
        shared.report(
            f"the gateway is not shared: {place.why}; servers are started for this client alone"
        )
    guests = Guests(
        shared.version, shared.account, max_line=shared.max_line, drain_s=shared.drain_s
    )
    deeds: dict[str, Deed] = {} if ownership is None else {ATTACH: guests.door}
    control = Control(shared.folder, deeds)

    async def leave() -> None:
        await stop.wait()
        await let_go()
        await guests.leave()

    async def let_go() -> None:
        if ownership is not None:
            ownership.release()
        await control.close()

    try:
        await _listen(shared, control, ownership)
        async with shared.own() as house:
            deeds.update(house.deeds)
            guests.welcome(house.doorway)
            leaving = asyncio.ensure_future(leave())
            try:
                yield house
                stop.set()
                await leaving
            finally:
                leaving.cancel()
                await guests.close()
    finally:
        await let_go()
        await guests.close()


async def _listen(shared: Shared[House], control: Control, ownership: Ownership | None) -> None:
    """Be there for operators and, if we own it, for other clients."""
    try:
        await control.open()
        if ownership is not None:
            ownership.announce(control.name)
    except OSError as error:
        shared.report(f"nobody can reach this gateway: {error.strerror or error}")
        if ownership is not None:
            ownership.release()


async def _bridged(shared: Shared[House], place: Attached, out: int, stop: asyncio.Event) -> bool:
    """Serve the client from wherever the gateway is, and at last perhaps from here; False if
    requests could not be read, or answers not written."""
    writer = writer_to(out)
    bridge = Bridge(writer, stop, max_line=shared.max_line)
    let_go = stop_on_signals(stop)
    bridge.open()
    try:
        last = await _carried(shared, bridge, place, stop)
        if last is None:
            let_go()
            await bridge.part(shared.drain_s + _MARGIN_S)
        else:
            async with _hosting(shared, last.place, stop) as house:
                endpoint, _ = house.doorway(last.wants)
                crossing = HouseCrossing(
                    endpoint, bridge, writer, last.turn, max_line=shared.max_line
                )
                await bridge.settle(crossing)
                await stop.wait()
                let_go()
                if not bridge.is_lost:
                    await crossing.server.drain(shared.drain_s)
                crossing.server.ended()
    finally:
        await bridge.close()
    return not (bridge.is_deaf or writer.failed)


class _Last(Struct, frozen=True):
    """Where a bridge ends: in a gateway of our own, after so many of others."""

    place: Ownership | Unfit
    turn: int
    wants: Wants


async def _carried(
    shared: Shared[House], bridge: Bridge, place: Attached, stop: asyncio.Event
) -> _Last | None:
    """Go from owner to owner until we are one; None if the client leaves before."""
    loop = asyncio.get_running_loop()
    found: Ownership | Attached | Unfit = place
    turn = hasty = 0
    wants = shared.wants
    while isinstance(found, Attached):
        begun = loop.time()
        wants = found.keeps
        crossing = SocketCrossing(found, bridge, turn)
        if not await _settled(bridge, crossing):
            why = f"who has it did not greet us within {_SETTLE_S:g} s"
            return _Last(Unfit(why), turn + 1, wants)
        silent = _silent(bridge, crossing, shared.silence_s)
        await first_of(bridge.adrift.wait(), stop.wait(), silent)
        if stop.is_set() and (bridge.is_idle or not bridge.adrift.is_set()):
            return None
        turn += 1
        # An owner may be so ill that it lets us in and no further.
        hasty = hasty + 1 if loop.time() - begun < _HASTE_S else 0
        if hasty > _MOST_HASTY:
            return _Last(Unfit("whoever has it hangs up again and again"), turn, wants)
        await asyncio.sleep(_HASTE_S * hasty / _MOST_HASTY)
        found = await _place(shared, turn, wants)
    return _Last(found, turn, wants)


async def _silent(bridge: Bridge, crossing: Crossing, after_s: float) -> None:
    """Hang up on an owner that lives and answers nothing, as one that somebody has stopped."""
    while not crossing.is_over:
        await asyncio.sleep(after_s)
        if not bridge.awaits(crossing):
            continue
        pong = crossing.tell(PING, b"")
        await asyncio.wait((pong,), timeout=after_s)
        if not pong.done() and bridge.awaits(crossing):
            bridge.ended(crossing)


async def _settled(bridge: Bridge, crossing: SocketCrossing) -> bool:
    """Go to this owner; False if it does not get so far."""
    try:
        async with asyncio.timeout(_SETTLE_S):
            await bridge.settle(crossing)
    except TimeoutError:
        bridge.ended(crossing)
        return False
    return True
