"""A gateway that windows share, and how its owner runs it."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from portico.core.model.defaults import DRAIN_S
from portico.core.model.types import Endpoint
from portico.core.state.report import report as to_operator
from portico.edge.transport.pipes import MAX_LINE
from portico.edge.windows.connected_windows import ATTACH, ConnectedWindows
from portico.edge.windows.control import Command, Control, ControlRequest
from portico.edge.windows.owner_lock import OwnerLock
from portico.edge.windows.owner_start import lock_keys
from portico.edge.windows.preferences import Preferences
from portico.upstream.process.family import Family

STOP, STATUS = "stop", "status"
SILENCE_S = 15.0


class OwnedGateway(Protocol):
    """The gateway, as an owner runs it and windows use it."""

    control_socket: str
    """The path over which its own clients reach it; empty if there is none."""
    window_folders: Callable[[], Collection[str]]
    """Returns the folders of the windows."""
    window_clients: Callable[[], Mapping[str, int]]
    """Returns the number of windows of each client that has a name."""

    @property
    def is_busy(self) -> bool:
        """True while work runs or waits that may outlive the windows."""
        ...

    async def wait_until_idle(self) -> None:
        """Wait until no such work runs or waits."""
        ...

    def client_endpoint(
        self, preferences: Preferences, family: Family | None = None
    ) -> tuple[Endpoint, Preferences]:
        """Return the endpoint for these preferences, and the preferences for the next owner; for a
        window below an agent, that agent's own."""
        ...

    @property
    def commands(self) -> Mapping[str, Command]:
        """The commands of the control socket, by name."""
        ...

    def on_report(self, report: Callable[[str], None]) -> None:
        """Also pass every report for the operator to this function."""
        ...

    def start_refresh(self) -> None:
        """Refresh the catalogs of all servers, in the background."""
        ...


def _no_account() -> str:
    return ""


def _no_log() -> str:
    return os.devnull


G_co = TypeVar("G_co", bound=OwnedGateway, covariant=True)


class SharedGateway(Struct, Generic[G_co], frozen=True):
    """A gateway that windows share, and how to run it."""

    folder: str
    """The folder of the control sockets."""
    key: str
    """The gateway's name among others: short, and safe in a file name."""
    own: Callable[[], AbstractAsyncContextManager[G_co]]
    """Entered only by the owner, and left after its last client."""
    version: str
    """The version of this Portico; windows of other versions do not share the gateway."""
    config: str = ""
    """The name of its config, which other gateways may have too, such as those of its groups."""
    account: Callable[[], str] = _no_account
    """The account that servers are called with; windows of other accounts do not share it."""
    preferences: Preferences = {}
    """The preferences of this window's client."""
    max_line: int = MAX_LINE
    drain_s: float = DRAIN_S
    silence_s: float = SILENCE_S
    """How long a request may be pending before the owner gets a ping, and the ping's timeout."""
    detaches: bool = True
    """True to run the owner as a separate process; else each window serves by itself."""
    owner: tuple[str, ...] = ()
    """The version of the code to run, the import path of a function that returns this gateway, and
    its arguments: how the owner makes it."""
    log: Callable[[], str] = _no_log
    """The file for the owner's stderr."""
    report: Callable[[str], None] = to_operator


def keys_of(shared: SharedGateway[OwnedGateway]) -> tuple[str, ...]:
    """Return the lock keys to try, in order."""
    return lock_keys(shared.folder, shared.key, shared.version, shared.account())


@contextlib.asynccontextmanager
async def run_gateway(
    shared: SharedGateway[G_co],
    lock: OwnerLock | None,
    stop: asyncio.Event,
    windows: ConnectedWindows,
    *,
    forwards_reports: bool = True,
) -> AsyncGenerator[G_co, None]:
    """Run the gateway, and accept windows if we hold its lock.

    When `stop` is set, no more windows are accepted and running calls finish. `forwards_reports`
    sends the operator's reports to the windows too.
    """

    async def end(request: ControlRequest) -> dict[str, Any]:
        stop.set()
        return {}

    async def status(request: ControlRequest) -> dict[str, Any]:
        read_status = gateway.commands[STATUS]
        assert callable(read_status)
        read = await read_status(request)
        about = {
            "windows": len(windows),
            "window_pids": windows.pids(),
            "clients": windows.clients(),
            "exposures": [*windows.exposures(), *read.get("exposures", ())],
            "alone": not shared.detaches,
        }
        return {**read, **about}

    commands: dict[str, Command] = {ATTACH: windows.attach_command}
    if lock is not None:
        commands[STOP] = end
    windows.is_shared = lock is not None
    control = Control(shared.folder, commands)

    async def drain() -> None:
        await stop.wait()
        await stop_listening()
        await windows.drain()

    async def stop_listening() -> None:
        if lock is not None:
            lock.release()
        await control.close()

    try:
        is_reachable = await _listen(shared, control, lock)
        async with shared.own() as gateway:
            if is_reachable:
                gateway.control_socket = os.path.join(shared.folder, control.name)
            commands.update(gateway.commands)
            if STATUS in gateway.commands:
                commands[STATUS] = status
            if forwards_reports:
                gateway.on_report(windows.report)
            windows.start_refresh = gateway.start_refresh
            gateway.window_folders, gateway.window_clients = windows.folders, windows.clients
            windows.accept(gateway.client_endpoint)
            draining = asyncio.ensure_future(drain())
            try:
                yield gateway
                stop.set()
                await draining
            finally:
                draining.cancel()
                await windows.close()
    finally:
        await stop_listening()
        await windows.close()


async def _listen(
    shared: SharedGateway[OwnedGateway], control: Control, lock: OwnerLock | None
) -> bool:
    """Open the control socket and, if we hold the lock, announce it to windows; return False if
    that fails."""
    try:
        await control.open()
        if lock is not None:
            lock.announce(control.name)
        return True
    except OSError as error:
        why = error.strerror or error
        shared.report(f"other windows and commands cannot reach this gateway: {why}")
        if lock is not None:
            lock.release()
        return False


def no_windows(shared: SharedGateway[OwnedGateway]) -> ConnectedWindows:
    """Return an empty set of windows for this gateway."""
    return ConnectedWindows(
        shared.version,
        shared.account,
        config=shared.config,
        max_line=shared.max_line,
        drain_s=shared.drain_s,
    )


async def own_in_process(
    shared: SharedGateway[OwnedGateway], fd: int, request: ControlRequest, stop: asyncio.Event
) -> None:
    """Run a gateway for one window, in the window's process, until `stop` is set."""
    windows = no_windows(shared)
    windows.add(fd, request)
    async with run_gateway(shared, None, stop, windows, forwards_reports=False):
        await stop.wait()
