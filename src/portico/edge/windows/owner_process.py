"""The process of an owner: it runs the gateway until no window and no work needs it."""

import asyncio
import contextlib
import os
import socket
import sys
import traceback
from importlib import import_module
from typing import Any, NoReturn

import msgspec

from portico.core.config.paths import state_folder
from portico.core.model.errors import PorticoError
from portico.core.protocol.codec import encode
from portico.core.state.background import first_of
from portico.core.state.client_sessions import SESSIONS
from portico.edge.transport.pipe_loop import PipeLoop
from portico.edge.transport.stop_signals import stop_on_signals
from portico.edge.windows.connected_windows import ConnectedWindows
from portico.edge.windows.control import ControlRequest
from portico.edge.windows.owner import OwnedGateway, SharedGateway, no_windows, run_gateway
from portico.edge.windows.owner_lock import OwnerLock
from portico.upstream.process.guardian import GUARDIAN

LINGER_S = 0.5
"""How long an owner stays after its last window, in case the client reconnects."""
_REQUEST_S = 60.0
_MAX_REQUEST = 64 * 1024


def run_owner(argv: list[str]) -> NoReturn:
    """Run the owner, then exit; the arguments are those of `start_owner`."""
    lock_fd, first_fd, lock_path, version, target, *words = argv
    code = 1
    try:
        first = socket.socket(fileno=int(first_fd))
        lock = OwnerLock(lock_path, int(lock_fd))
        own_version = import_module("portico").__version__
        if version == own_version:
            _run(lock, first, target, words)
        else:  # Portico was upgraded since the window started
            lock.release()
            _reply(first, {"ok": True, "version": own_version})
        code = 0
    except BaseException:  # noqa: BLE001  (no caller is left to report it)
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            GUARDIAN.at_exit()
        sys.stderr.flush()
        os._exit(code)  # without the threads that are still busy


def _run(lock: OwnerLock, first: socket.socket, target: str, words: list[str]) -> None:
    module, _, name = target.partition(":")
    SESSIONS.keep_in(state_folder)
    try:
        shared: SharedGateway[Any] = getattr(import_module(module), name)(words)
        with asyncio.Runner(loop_factory=PipeLoop) as runner:
            runner.run(_serve_windows(shared, lock, first))
    except PorticoError as error:
        lock.release()
        _reply(first, {"ok": False, "error": str(error)})


def _reply(first: socket.socket, reply: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the window has ended
        first.send(encode(reply) + b"\n")


async def _serve_windows(
    shared: SharedGateway[OwnedGateway], lock: OwnerLock, first: socket.socket
) -> None:
    """Serve until no window has been connected for a while, or a stop is requested."""
    stop = asyncio.Event()
    stop_on_signals(stop)
    windows = no_windows(shared)
    request = await _request(first)
    if request is not None:
        windows.add(os.dup(first.fileno()), request)
    async with run_gateway(shared, lock, stop, windows) as gateway:
        first.close()
        await first_of(stop.wait(), _wait_until_unused(gateway, windows))


async def _request(first: socket.socket) -> ControlRequest | None:
    """Return the request of the window that started us; None if it has ended."""
    first.setblocking(False)
    received = b""
    with contextlib.suppress(OSError, TimeoutError, msgspec.DecodeError):
        async with asyncio.timeout(_REQUEST_S):
            while not received.endswith(b"\n") and len(received) < _MAX_REQUEST:
                data = await asyncio.get_running_loop().sock_recv(first, _MAX_REQUEST)
                if not data:
                    return None
                received += data
        return msgspec.json.decode(received, type=dict[str, Any])
    return None


async def _wait_until_unused(gateway: OwnedGateway, windows: ConnectedWindows) -> None:
    """Wait until no window is connected and no task is running: a task outlives its window."""
    while True:
        await windows.wait_until_empty(LINGER_S)
        if not gateway.is_busy:
            return
        await gateway.wait_until_idle()
