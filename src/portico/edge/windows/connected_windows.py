"""The windows connected to an owner, over the control socket or since its start.

After the owner's reply a connection carries MCP as on stdio, one message per line, and some control
lines. A window sends `#end` after its last request, and `#refresh` to refresh all servers. The
owner sends `#report` with a report for the user, `#keep` with preferences for the next owner, and
`#drain` to request `#end`.
"""

import asyncio
import os
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from portico.core.model.errors import PorticoError
from portico.core.model.types import Endpoint, LimitedEndpoint
from portico.core.protocol.codec import encode
from portico.core.state.background import first_of
from portico.edge.fit.exposure_choice import ExposureChoice
from portico.edge.fit.fitted_endpoint import ChosenExposure
from portico.edge.transport.pipes import PipeReader, PipeWriter, StdioServer
from portico.edge.windows.control import ControlRequest, HandOver
from portico.edge.windows.control_sockets import pid_of
from portico.edge.windows.preferences import (
    CLIENT,
    SERVER,
    TASK_TOKEN,
    Preferences,
    folder_in,
    name_in,
    preferences_of,
)
from portico.edge.windows.window_fit import to_keep
from portico.upstream.process.family import Family

ATTACH = "attach"
SESSION = "session"
"""Names the session of a window's client, at every owner; only the window knows it."""
END, REFRESH, DRAIN, REPORT, KEEP = b"#end", b"#refresh", b"#drain", b"#report ", b"#keep "
MAX_WINDOWS, MAX_AGENT_WINDOWS = 256, 16
_LAST_S = 5.0
"""The timeout for `#end` after `#drain`."""
_MAX_REPORTS = 20
"""Earlier reports that a new window receives."""

FindEndpoint = Callable[[Preferences, Family | None], tuple[Endpoint, Preferences]]
"""Returns the endpoint for preferences, and those that lead to the same one at the next owner. The
window may run below an agent of the gateway, and then gets only what that agent gets."""


class ConnectedWindows:
    """All windows of one owner."""

    def __init__(
        self,
        version: str,
        account: Callable[[], str],
        *,
        config: str,
        max_line: int,
        drain_s: float,
    ) -> None:
        """`version`, `account` and `config` are the owner's; a window with others is turned
        away."""
        self.version = version
        self._config = config
        self._account = account
        self._find_endpoint: FindEndpoint | None = None
        self.max_line = max_line
        self.drain_s = drain_s
        self._connected: set[_ConnectedWindow] = set()
        self._reports: deque[str] = deque(maxlen=_MAX_REPORTS)
        self._is_draining = False
        self.is_shared = True
        """False if only agents may connect."""
        self.own_client: ChosenExposure | None = None
        """The endpoint of a client on the pipes of this process."""
        self._changed = asyncio.Event()
        self.start_refresh: Callable[[], None] = lambda: None
        """Refreshes the catalogs of all servers."""
        self.attach_command = HandOver(self._attach)

    def __len__(self) -> int:
        """The number of windows, without those of agents, which do not need the gateway."""
        return sum(window.family is None for window in self._connected)

    def folders(self) -> set[str]:
        """Return the folders of the windows."""
        return {window.folder for window in self._connected} - {""}

    def clients(self) -> dict[str, int]:
        """Return the number of windows of each client that has a name."""
        return dict(Counter(one.client_name for one in self._connected if one.client_name))

    def pids(self) -> list[int]:
        """Return the processes of the windows, without those of agents."""
        return sorted(one.pid for one in self._connected if one.pid and one.family is None)

    def exposures(self) -> list[ExposureChoice]:
        """Return the exposure of each window, without those of agents."""
        own = self.own_client
        found = [window.exposure for window in self._connected if window.family is None]
        return found if own is None or own.choice is None else [own.choice, *found]

    def add(self, fd: int, request: ControlRequest) -> None:
        """Add a window that is connected already and waits for the reply."""
        self._add(_ConnectedWindow(fd, request, self, sends_reply=True))

    def accept(self, find_endpoint: FindEndpoint) -> None:
        """Serve the waiting windows and all later ones."""
        self._find_endpoint = find_endpoint
        for window in tuple(self._connected):
            window.serve(find_endpoint)

    def report(self, text: str) -> None:
        """Send a report to all windows."""
        self._reports.append(text)
        for window in self._connected:
            window.report(text)

    async def wait_until_empty(self, for_s: float) -> None:
        """Wait until no window has been connected for this long."""
        while True:
            self._changed.clear()
            if len(self):
                await self._changed.wait()
                continue
            try:
                async with asyncio.timeout(for_s):
                    await self._changed.wait()
            except TimeoutError:
                return

    async def drain(self) -> None:
        """Accept no more windows, and wait until the running calls are done."""
        self._is_draining = True
        if self._connected:
            await asyncio.wait(
                [asyncio.ensure_future(window.drain()) for window in self._connected]
            )

    async def close(self) -> None:
        """Close the remaining connections."""
        self._is_draining = True
        while self._connected:
            await self._connected.pop().close()

    def _attach(self, request: ControlRequest, family: Family | None) -> tuple[dict[str, Any], Any]:
        is_of_agent = family is not None or TASK_TOKEN in preferences_of(request)
        if not self.is_shared and not is_of_agent:
            raise PorticoError("this gateway serves its own client only")
        alike = [one for one in self._connected if one.family is family]
        limit = MAX_WINDOWS if family is None else MAX_AGENT_WINDOWS
        if len(alike) >= limit:
            raise PorticoError(f"client limit reached ({limit})")
        if self._is_other(request, family):
            return {"other_account": True}, os.close

        def take(fd: int) -> None:
            if self._is_draining:
                os.close(fd)
            else:
                self._add(_ConnectedWindow(fd, request, self, family))

        return self.attach_reply(request, family, self._find_endpoint), take

    def _is_other(self, request: ControlRequest, family: Family | None) -> bool:
        """True if a window has another config or account."""
        # A request without one comes from a command, which accepts the owner's.
        if request.get("config", self._config) != self._config:
            return True
        account = self._account()
        # An agent may give its servers a few variables only: they are not another account's.
        return family is None and request.get("account", account) != account

    def attach_reply(
        self, request: ControlRequest, family: Family | None, find: FindEndpoint | None
    ) -> dict[str, Any]:
        """Return the reply to a window that is accepted."""
        preferences = preferences_of(request)
        resolved = preferences if find is None else find(preferences, family)[1]
        return {"version": self.version, "resolved": resolved}

    def _add(self, window: "_ConnectedWindow") -> None:
        self._connected.add(window)
        self._changed.set()
        if self._find_endpoint is not None:
            window.serve(self._find_endpoint)

    def remove(self, window: "_ConnectedWindow") -> None:
        """Forget a window that has disconnected."""
        self._connected.discard(window)
        self._changed.set()

    @property
    def reports(self) -> list[str]:
        """The last reports."""
        return list(self._reports)


class _ConnectedWindow:
    """One window."""

    _server: "_WindowServer"

    def __init__(
        self,
        fd: int,
        request: ControlRequest,
        windows: ConnectedWindows,
        family: Family | None = None,
        *,
        sends_reply: bool = False,
    ) -> None:
        self.family = family
        """The family of the agent below which the window runs."""
        self._fd = fd
        with socket.socket(fileno=os.dup(fd)) as peer:
            self.pid = pid_of(peer)
        self._request = request
        self.folder = folder_in(preferences_of(request))
        self.client_name = name_in(preferences_of(request), CLIENT)
        self._windows = windows
        self._sends_reply = sends_reply
        self._requests_ended = asyncio.Event()
        self._disconnected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._fitted: ChosenExposure | None = None

    @property
    def exposure(self) -> ExposureChoice:
        """The exposure of its client, and why it has it."""
        if self._fitted is not None and self._fitted.choice is not None:
            return self._fitted.choice
        name, server = self.client_name, name_in(preferences_of(self._request), SERVER)
        if server:
            return ExposureChoice("all", f"--server {server}: only that server", name)
        return ExposureChoice("", "its client has sent no message yet", name)

    def _keep(self, choice: ExposureChoice) -> None:
        """Let the window keep the choice for the next owner."""
        self._writer.write((KEEP, encode(to_keep(choice)), b"\n"))

    def serve(self, find_endpoint: FindEndpoint) -> None:
        """Start serving; until then, its requests wait in the socket."""
        preferences = preferences_of(self._request)
        try:
            endpoint, _ = find_endpoint(preferences, self.family)
        except PorticoError:  # its access ended just now
            self._abandon()
            return
        self._writer = PipeWriter(self._fd)
        max_line = self._windows.max_line
        self._server = server = _WindowServer(endpoint, self._writer.write, max_line=max_line)
        server.requests_ended = self._requests_ended
        if self.family is None:
            server.start_refresh = self._windows.start_refresh
        session = self._request.get(SESSION)
        server.session.id = session if isinstance(session, str) else ""
        server.session.folder = self.folder
        server.session.client_name = self.client_name
        if isinstance(endpoint, ChosenExposure):
            endpoint.on_choice = self._keep
            self._fitted = endpoint
        if isinstance(endpoint, LimitedEndpoint):
            endpoint.on_end(self._disconnected.set)
        if generation := _generation(self._request):
            server.calls.question_prefix = f"portico.{generation}"
        self._reader = PipeReader(self._fd, server.received, self._disconnected.set)
        self._writer.open(self, self._disconnected.set)
        if self._sends_reply:
            reply = self._windows.attach_reply(self._request, self.family, find_endpoint)
            answer = {"ok": True, **reply}
            self._writer.write((encode(answer), b"\n"))
        self._task = asyncio.ensure_future(self._run())
        for text in self._windows.reports:
            self.report(text)
        self._reader.open()

    def report(self, text: str) -> None:
        """Send a report for the user."""
        if self._task is not None:
            self._writer.write((REPORT, encode(text), b"\n"))

    def pause(self) -> None:
        """The client reads slowly: stop reading from it, and make handlers wait."""
        self._server.pause()
        self._reader.pause()

    def resume(self) -> None:
        """The client has caught up."""
        self._server.resume()
        self._reader.resume()

    async def drain(self) -> None:
        """Finish the pending requests and disconnect; the next owner gets those after `#end`."""
        if self._task is None:
            await self.close()
            return
        self._writer.write((DRAIN, b"\n"))
        await asyncio.wait(
            (asyncio.ensure_future(self._requests_ended.wait()), self._task),
            timeout=_LAST_S,
            return_when=asyncio.FIRST_COMPLETED,
        )
        self._requests_ended.set()
        await asyncio.wait((self._task,))

    async def close(self) -> None:
        """Disconnect."""
        if self._task is None:
            self._abandon()
            return
        self._disconnected.set()
        await asyncio.wait((self._task,))

    def _abandon(self) -> None:
        """Close the connection of a window that is not served."""
        os.close(self._fd)
        self._windows.remove(self)

    async def _run(self) -> None:
        """Serve until `#end`, then drain; or until the window disconnects, then cancel."""
        try:
            await first_of(self._requests_ended.wait(), self._disconnected.wait())
            if not self._disconnected.is_set():
                await first_of(self._server.drain(self._windows.drain_s), self._disconnected.wait())
        finally:
            self._reader.close()
            self._server.disconnected()
            if self._disconnected.is_set():
                self._writer.drop()
            await self._writer.close()
            self._windows.remove(self)


class _WindowServer(StdioServer):
    """Serves a window's client, and handles the window's control lines."""

    requests_ended: asyncio.Event
    start_refresh: Callable[[], None] | None = None

    def receive(self, message: bytes | str) -> None:
        """Handle one line."""
        if message == END:
            self.requests_ended.set()
        elif message == REFRESH:
            if self.start_refresh is not None:
                self.start_refresh()
        else:
            super().receive(message)


def _generation(request: ControlRequest) -> int:
    generation = request.get("generation")
    return generation if isinstance(generation, int) else 0
