"""The owner of a gateway: a process of its own, for as long as a window or work needs it.

The first window starts it by forking twice, so that it is nobody's descendant and outlives the
window: clients end the whole process tree of a server that they stop.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from msgspec import Struct

from portico.model.errors import PorticoError
from portico.protocol.codec import encode
from portico.state.background import first_of
from portico.state.report import report as to_operator
from portico.transport.client_connection import Endpoint
from portico.transport.pipe_loop import PipeLoop
from portico.transport.pipes import DRAIN_S, stop_on_signals
from portico.transport.stdio import MAX_LINE
from portico.windows.connected_windows import ATTACH, ConnectedWindows, Wants
from portico.windows.control import Command, Control, Order
from portico.windows.owner_lock import OwnerLock, is_known

STOP, STATUS = "stop", "status"
LINGER_S = 0.5
"""How long an owner stays after its last window, in case that comes back."""
SILENCE_S = 15.0
_MAX_LOG = 1_000_000


class OwnedGateway(Protocol):
    """What an owner has and windows use: the gateway itself."""

    def client_endpoint(self, wants: Wants) -> tuple[Endpoint, Wants]:
        """Who answers a client that wants this, and what it is to want from the next owner."""
        ...

    @property
    def commands(self) -> Mapping[str, Command]:
        """What an operator may ask of it."""
        ...

    def on_report(self, say: Callable[[str], None]) -> None:
        """Have everything that the operator is told passed to this, too."""
        ...

    def ask_again(self) -> None:
        """Ask all servers again for what they offer, behind."""
        ...


def _anybody() -> str:
    return ""


def _nowhere() -> str:
    return os.devnull


H_co = TypeVar("H_co", bound=OwnedGateway, covariant=True)


class SharedGateway(Struct, Generic[H_co], frozen=True):
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
    detaches: bool = True
    """Whether the owner is a process of its own; else each window serves by itself."""
    log: Callable[[], str] = _nowhere
    """The file for what such a process writes to stderr."""
    report: Callable[[str], None] = to_operator


def keys(shared: SharedGateway[OwnedGateway]) -> tuple[str, ...]:
    """By which names to look for the gateway: the first is for whoever comes first, and those
    whose account is another have one of their own."""
    key = f"{shared.key}-{shared.version}"
    account = shared.account()
    if not account:
        return (key,)
    own = f"{key}-{account}"
    return (own, key) if is_known(shared.folder, own) else (key, own)


@contextlib.asynccontextmanager
async def hosting(
    shared: SharedGateway[H_co],
    lock: OwnerLock | None,
    stop: asyncio.Event,
    windows: ConnectedWindows,
    *,
    speaks: bool = True,
) -> AsyncGenerator[H_co, None]:
    """Have the gateway, and let windows in if we own it. When `stop` is set nobody is let in any
    more, and calls are finished. `speaks` passes on to them what the operator is told."""

    async def end(order: Order) -> dict[str, Any]:
        stop.set()
        return {}

    async def status(order: Order) -> dict[str, Any]:
        tell = gateway.commands[STATUS]
        assert callable(tell)
        return {**await tell(order), "windows": len(windows)}

    commands: dict[str, Command] = {} if lock is None else {ATTACH: windows.door, STOP: end}
    control = Control(shared.folder, commands)

    async def leave() -> None:
        await stop.wait()
        await let_go()
        await windows.leave()

    async def let_go() -> None:
        if lock is not None:
            lock.release()
        await control.close()

    try:
        await _listen(shared, control, lock)
        async with shared.own() as gateway:
            commands.update(gateway.commands)
            if STATUS in gateway.commands:
                commands[STATUS] = status
            if speaks:
                gateway.on_report(windows.say)
            windows.ask_again = gateway.ask_again
            windows.accept(gateway.client_endpoint)
            leaving = asyncio.ensure_future(leave())
            try:
                yield gateway
                stop.set()
                await leaving
            finally:
                leaving.cancel()
                await windows.close()
    finally:
        await let_go()
        await windows.close()


async def _listen(
    shared: SharedGateway[OwnedGateway], control: Control, lock: OwnerLock | None
) -> None:
    """Be there for operators and, if we own it, for windows."""
    try:
        await control.open()
        if lock is not None:
            lock.announce(control.name)
    except OSError as error:
        shared.report(f"nobody can reach this gateway: {error.strerror or error}")
        if lock is not None:
            lock.release()


def windows_of(shared: SharedGateway[OwnedGateway]) -> ConnectedWindows:
    """The windows of a gateway, of which there is none yet."""
    return ConnectedWindows(
        shared.version, shared.account, max_line=shared.max_line, drain_s=shared.drain_s
    )


async def own_here(
    shared: SharedGateway[OwnedGateway], fd: int, order: Order, stop: asyncio.Event
) -> None:
    """Have a gateway for one window, in its own process, until `stop` is set."""
    windows = windows_of(shared)
    windows.add(fd, order)
    async with hosting(shared, None, stop, windows, speaks=False):
        await stop.wait()


def launch(shared: SharedGateway[OwnedGateway], lock: OwnerLock, order: Order) -> socket.socket:
    """Start the owner, which has the lock from now on; our connection to it. OSError if no process
    can be started."""
    ours, theirs = socket.socketpair()
    try:
        child = os.fork()
    except BaseException:
        ours.close()
        theirs.close()
        raise
    if child == 0:
        _become(shared, lock, theirs, order)
    theirs.close()
    failed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if failed > 0:
        ours.close()
        raise OSError(failed, os.strerror(failed))
    lock.hand_over()
    ours.setblocking(False)
    return ours


def _become(
    shared: SharedGateway[OwnedGateway], lock: OwnerLock, first: socket.socket, order: Order
) -> NoReturn:
    """Be the owner, in a session of its own, and then nothing more."""
    code = 1
    try:
        _disown()
        _detach(shared.log(), {lock.fd, first.fileno()})
        asyncio._set_running_loop(None)  # that of the window, which goes on there
        with asyncio.Runner(loop_factory=PipeLoop) as runner:
            runner.run(_own(shared, lock, first, order))
        code = 0
    except BaseException:  # noqa: BLE001  (nobody else can tell)
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _disown() -> None:
    """Go on as nobody's child; the child exits with the error's number if that cannot be."""
    os.setsid()
    try:
        grandchild = os.fork()
    except OSError as error:
        os._exit(error.errno or 1)
    if grandchild:
        os._exit(0)


async def _own(
    shared: SharedGateway[OwnedGateway], lock: OwnerLock, first: socket.socket, order: Order
) -> None:
    """Serve until there has been no window for a while, or somebody wants us to end."""
    stop = asyncio.Event()
    stop_on_signals(stop)
    windows = windows_of(shared)
    windows.add(os.dup(first.fileno()), order)
    try:
        async with hosting(shared, lock, stop, windows):
            first.close()
            await first_of(stop.wait(), windows.alone(LINGER_S))
    except PorticoError as error:
        with contextlib.suppress(OSError):
            first.send(encode({"ok": False, "error": str(error)}) + b"\n")


def _detach(log: str, keep: set[int]) -> None:
    """Hold on to nothing of the window's: its client waits for the end of its streams."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    null = os.open(os.devnull, os.O_RDWR)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    try:
        errors = os.open(log, flags, 0o600)
        if os.fstat(errors).st_size > _MAX_LOG:
            os.ftruncate(errors, 0)
    except OSError:
        errors = null
    for fd, to in ((null, 0), (null, 1), (errors, 2)):
        os.dup2(fd, to)
    for fd in map(
        int, os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd")
    ):
        if fd > 2 and fd not in keep:
            with contextlib.suppress(OSError):
                os.close(fd)
