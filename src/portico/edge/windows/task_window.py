"""The window of a delegated task's agent: a bridge to the running gateway, with the task's token.

It connects to the one process that runs the task. It never starts a gateway and never becomes an
owner: without that process the task has ended, and so has its access.
"""

import asyncio
import os

from portico.core.model.defaults import DRAIN_S
from portico.core.model.errors import PorticoError
from portico.core.state.background import first_of
from portico.core.state.stdout import take_stdout
from portico.edge.transport.pipes import MAX_LINE, writer_to
from portico.edge.transport.stop_signals import stop_on_signals
from portico.edge.windows.bridge import Bridge
from portico.edge.windows.joining import Attached, attach_when_free
from portico.edge.windows.owner_connection import OwnerConnection
from portico.edge.windows.preferences import TASK_TOKEN

TOKEN_VARIABLE = "PORTICO_TASK_TOKEN"  # noqa: S105  (its name, not its value)
SOCKET_VARIABLE = "PORTICO_TASK_SOCKET"
"""The path of the control socket of the process that runs the task."""
_ENDED = "cannot connect to the gateway of this task: {why}; the access ends with its task"


async def serve_task(
    control_socket: str, token: str, version: str, *, out: int | None = None
) -> bool:
    """Serve the agent on stdin and stdout until it disconnects, or its access ends; return False
    if the access ended first. Raises PorticoError if there is no access."""
    stop = asyncio.Event()
    attached = await _attached(control_socket, token, version)
    bridge = Bridge(writer_to(take_stdout() if out is None else out), stop, max_line=MAX_LINE)
    unhook_signals = stop_on_signals(stop)
    bridge.open()
    try:
        await bridge.switch_to(OwnerConnection(attached, bridge, 0))
        await first_of(bridge.disconnected.wait(), stop.wait())
        unhook_signals()
        has_access = not bridge.disconnected.is_set()
        if has_access:
            await bridge.finish(DRAIN_S)
    finally:
        await bridge.close()
    return has_access


async def _attached(control_socket: str, token: str, version: str) -> Attached:
    folder, name = os.path.split(control_socket)
    try:
        found = await attach_when_free(folder, name, version, preferences={TASK_TOKEN: token})
    except OSError as error:
        raise PorticoError(_ENDED.format(why=error.strerror or error)) from None
    if found is None:
        raise PorticoError(_ENDED.format(why="it is not running"))
    if not isinstance(found, Attached):
        raise PorticoError(_ENDED.format(why=found.why))
    return found
