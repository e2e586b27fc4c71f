"""A window: one client on stdin and stdout, connected to the gateway that all windows share.

The first window starts the gateway's owner; each window is a bridge to it. When the owner ends, the
windows start another, and only the running calls fail. Where no owner can run, a window runs the
gateway in its own process.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncGenerator

import msgspec

from portico.core.model.errors import PorticoError
from portico.core.state.background import first_of
from portico.core.state.stdout import take_stdout
from portico.edge.fit.fitted_endpoint import ChosenExposure
from portico.edge.transport.pipes import writer_to
from portico.edge.transport.stdio import serve_stdio
from portico.edge.transport.stop_signals import stop_on_signals
from portico.edge.windows.bridge import Bridge
from portico.edge.windows.connected_windows import ATTACH, SESSION
from portico.edge.windows.control_sockets import SUFFIX, socket_names
from portico.edge.windows.joining import (
    Attached,
    Incompatible,
    attach,
    attach_when_free,
    negotiate,
)
from portico.edge.windows.owner import (
    SILENCE_S,
    G_co,
    OwnedGateway,
    SharedGateway,
    keys_of,
    no_windows,
    own_in_process,
    run_gateway,
)
from portico.edge.windows.owner_connection import OwnerConnection
from portico.edge.windows.owner_lock import OwnerLock, owner_of
from portico.edge.windows.owner_start import StartedOwner, start_owner
from portico.edge.windows.preferences import CLIENT, Preferences, folder_in, name_in
from portico.edge.windows.session_state import PING
from portico.upstream.process.family import gateways_above

__all__ = ["SILENCE_S", "SharedGateway", "host_gateway", "serve_shared"]

_ATTACH_S = 5.0
_JOIN_S = 10.0
_START_S = 60.0
"""The time an owner has to start: it loads the gateway, perhaps on a busy machine."""
_SWITCH_S = 30.0
_PAUSE_S = 0.01
_MARGIN_S = 2.0
_NO_PROCESS = "cannot start a process: {why}"
_SHORT_LIVED_S = 0.5
_MAX_SHORT_LIVED = 5

ConnectResult = Attached | Incompatible


async def serve_shared(
    shared: SharedGateway[OwnedGateway],
    *,
    out: int | None = None,
    stop: asyncio.Event | None = None,
    started: StartedOwner | None = None,
) -> bool:
    """Serve one client on stdin and stdout until it disconnects or SIGTERM arrives.

    Return False if reading requests or writing responses failed. `out` is the result of
    `take_stdout`, if it was called before; `stop` has the effect of SIGTERM; `started` is an owner
    that waits for this window.
    """
    stop = stop or asyncio.Event()
    window = _Window(shared, stop, started)
    attached = None if shared.detaches else await window.join_above()
    if attached is None and not shared.detaches:
        return await _serve_in_process(shared, out, stop)
    attached = attached or await window.connect()
    writer = writer_to(take_stdout() if out is None else out)
    bridge = Bridge(writer, stop, max_line=shared.max_line)
    unhook_signals = stop_on_signals(stop)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, bridge.start_refresh)
    bridge.open()
    try:
        await window.serve(bridge, attached)
        unhook_signals()
        await bridge.finish(shared.drain_s + _MARGIN_S)
    finally:
        await bridge.close()
        await window.close()
    return not (bridge.input_failed or writer.failed)


async def _serve_in_process(
    shared: SharedGateway[OwnedGateway], out: int | None, stop: asyncio.Event
) -> bool:
    """Serve the client from a gateway in this process, without a bridge."""
    windows = no_windows(shared)
    async with run_gateway(shared, None, stop, windows, forwards_reports=False) as gateway:
        endpoint, _ = gateway.client_endpoint(shared.preferences)
        if isinstance(endpoint, ChosenExposure):
            windows.own_client = endpoint
        return await serve_stdio(
            endpoint,
            out=out,
            max_line=shared.max_line,
            drain_s=shared.drain_s,
            stop=stop,
            folder=folder_in(shared.preferences),
            client_name=name_in(shared.preferences, CLIENT),
        )


@contextlib.asynccontextmanager
async def host_gateway(
    shared: SharedGateway[G_co], stop: asyncio.Event
) -> AsyncGenerator[G_co, None]:
    """Run a gateway for HTTP clients; also accept windows, unless another process owns the gateway.

    When `stop` is set, the windows are drained.
    """
    lock = None
    try:
        for key in keys_of(shared):
            lock = lock or OwnerLock.acquire(shared.folder, key)
    except OSError as error:
        shared.report(f"{shared.folder} cannot be used: {error.strerror or error}")
    async with run_gateway(shared, lock, stop, no_windows(shared)) as gateway:
        yield gateway


class _Window:
    """The connections of one window, from one owner to the next."""

    def __init__(
        self,
        shared: SharedGateway[OwnedGateway],
        stop: asyncio.Event,
        started: StartedOwner | None,
    ) -> None:
        self._shared = shared
        self._started = started
        self._stop = stop
        self._generation = 0
        self._preferences: Preferences = shared.preferences
        self._session = os.urandom(16).hex()
        """Names the client's session, which outlasts its owners."""
        self._in_process: asyncio.Task[None] | None = None
        """The gateway in this process."""
        self._stop_in_process = asyncio.Event()

    async def connect(self) -> Attached:
        """Connect to the owner, started if necessary, or to a gateway in this process."""
        found: ConnectResult = Incompatible("")
        if self._in_process is None:
            found = await self._connect_to_owner()
        if isinstance(found, Incompatible):
            if found.why:
                self._shared.report(
                    f"cannot join the running gateway: {found.why}; "
                    "starting separate servers for this client"
                )
            found = await self._connect_in_process()
        # Preferences that an owner does not resolve stay, such as the window's folder.
        self._preferences = {**self._shared.preferences, **found.preferences}
        return found

    async def join_above(self) -> Attached | None:
        """Connect to the gateway below whose agent this window runs; return None if there is none
        with this config. Raises PorticoError: a window must not get around it."""
        shared = self._shared
        for pid in gateways_above():
            name = f"{pid}{SUFFIX}"
            if name not in socket_names(shared.folder):
                continue
            more = {**self._attach_request, "config": shared.config}
            found = await attach_when_free(shared.folder, name, shared.version, **more)
            if isinstance(found, Attached):
                return found
            if found is not None and not found.is_other_account:
                raise PorticoError(f"cannot join the gateway of this agent: {found.why}")
        return None

    async def serve(self, bridge: Bridge, attached: Attached) -> None:
        """Move the bridge from owner to owner until the client disconnects."""
        loop = asyncio.get_running_loop()
        short_lived = 0
        while True:
            started = loop.time()
            connection = OwnerConnection(attached, bridge, self._generation)
            if await _switched(bridge, connection):
                silent = watch_for_silence(bridge, connection, self._shared.silence_s)
                await first_of(bridge.disconnected.wait(), self._stop.wait(), silent)
            if self._stop.is_set() and not bridge.is_idle:  # requests are queued for the next owner
                await bridge.finish(self._shared.drain_s + _MARGIN_S)
            if self._stop.is_set() and (bridge.is_idle or not bridge.disconnected.is_set()):
                return
            self._generation += 1
            self._preferences = {**self._preferences, **bridge.kept}
            # A broken owner may accept connections and fail right after.
            is_short_lived = loop.time() - started < _SHORT_LIVED_S and not connection.has_answered
            short_lived = short_lived + 1 if is_short_lived else 0
            await asyncio.sleep(_SHORT_LIVED_S * short_lived / _MAX_SHORT_LIVED)
            if short_lived > _MAX_SHORT_LIVED and self._in_process is None:
                self._shared.report(
                    "the running gateway closes every connection; "
                    "starting separate servers for this client"
                )
                attached = await self._connect_in_process()
            else:
                attached = await self.connect()

    async def close(self) -> None:
        """End the gateway in this process, if one runs."""
        self._stop_in_process.set()
        if self._in_process is not None:
            await self._in_process

    @property
    def _attach_request(self) -> dict[str, object]:
        return {
            "generation": self._generation,
            "account": self._shared.account(),
            "preferences": self._preferences,
            SESSION: self._session,
        }

    async def _connect_in_process(self) -> Attached:
        """Run the gateway in this process; raise PorticoError if it cannot start."""
        if self._in_process is not None:
            self._stop_in_process.set()
            await self._in_process
        self._stop_in_process = asyncio.Event()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        work = own_in_process(
            self._shared, theirs.detach(), self._attach_request, self._stop_in_process
        )
        self._in_process = asyncio.ensure_future(work)
        greeting = asyncio.ensure_future(negotiate(ours, self._shared.version, _START_S))
        await asyncio.wait({self._in_process, greeting}, return_when=asyncio.FIRST_COMPLETED)
        if self._in_process.done():
            greeting.cancel()
            self._in_process.result()  # raises its error
        found = await greeting
        if not isinstance(found, Attached):
            why = "it ended" if found is None else found.why
            raise PorticoError(f"the gateway did not start: {why}")
        return found

    async def _connect_to_owner(self) -> ConnectResult:
        """Connect to the gateway's owner, or return the reason why that failed."""
        found: ConnectResult = Incompatible("")
        started, self._started = self._started, None
        if started is not None:
            found = await self._join_started(started) or found
            if isinstance(found, Attached) or found.why:
                return found
        joined = await self.join_above()
        if joined is not None:
            return joined
        for key in keys_of(self._shared):
            found = await self._connect_by_key(key, may_launch=not gateways_above())
            if isinstance(found, Incompatible) and found.is_final:
                raise PorticoError(found.why)
            if not (isinstance(found, Incompatible) and found.is_other_account):
                break
        return found

    async def _connect_by_key(self, key: str, *, may_launch: bool) -> ConnectResult:
        shared = self._shared
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _JOIN_S
        while True:
            try:
                lock = OwnerLock.acquire(shared.folder, key)
            except OSError as error:
                return Incompatible(f"{shared.folder} cannot be used: {error.strerror or error}")
            if lock is not None and not may_launch:
                lock.release()  # an owner below an agent would end with that
                return Incompatible("")
            if lock is not None:
                found = await self._launch_owner(lock)
            else:
                found = await self._join_owner(key)
            if found is not None:
                return found
            if loop.time() > deadline:
                return Incompatible(f"no response within {_JOIN_S:g} s")
            await asyncio.sleep(_PAUSE_S)

    async def _launch_owner(self, lock: OwnerLock) -> ConnectResult | None:
        """Start the owner; return None if it ended before it replied."""
        shared = self._shared
        try:
            started = start_owner(lock, shared.owner, shared.log)
        except OSError as error:
            return Incompatible(_NO_PROCESS.format(why=error.strerror or error))
        return await self._join_started(started)

    async def _join_started(self, started: StartedOwner) -> ConnectResult | None:
        """Connect to the owner that this window has started; return None if it has ended."""
        request = {"do": ATTACH, **self._attach_request}
        found = await negotiate(started.socket, self._shared.version, _START_S, request)
        failed = started.failed()
        if isinstance(found, Attached):
            started.lock.hand_over()
            return found
        started.lock.release()
        if failed:
            is_errno = failed > 1  # else Python has failed, and its log has the reason
            why = os.strerror(failed) if is_errno else f"see {self._shared.log()}"
            return Incompatible(_NO_PROCESS.format(why=why))
        if found is not None and found.error:
            raise PorticoError(found.error)
        return found

    async def _join_owner(self, key: str) -> ConnectResult | None:
        """Connect to the running owner; return None if it ended or has not started yet."""
        shared = self._shared
        name = owner_of(shared.folder, key)
        if not name:
            return None
        found = await attach(shared.folder, name, shared.version, _ATTACH_S, **self._attach_request)
        if isinstance(found, Incompatible):
            why = f"process {name.partition('.')[0]}: {found.why}"
            return msgspec.structs.replace(found, why=why)
        return found


async def watch_for_silence(bridge: Bridge, connection: OwnerConnection, after_s: float) -> None:
    """Disconnect from an owner that runs and does not respond, such as a stopped process."""
    while not connection.is_closed:
        await asyncio.sleep(after_s)
        if not bridge.is_waiting_on(connection):
            continue
        pong = connection.call(PING, b"")
        await asyncio.wait((pong,), timeout=after_s)
        if not pong.done() and bridge.is_waiting_on(connection):
            bridge.disconnect()


async def _switched(bridge: Bridge, connection: OwnerConnection) -> bool:
    """Switch the bridge to this owner; return False on a timeout."""
    try:
        async with asyncio.timeout(_SWITCH_S):
            await bridge.switch_to(connection)
    except TimeoutError:
        bridge.disconnect()
        return False
    return True
