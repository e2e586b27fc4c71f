"""All ways in to a real server, watched."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.proxy import RecordingProxy
from tests.support.running import held, portico_run, teed

if TYPE_CHECKING:
    from tests.support.websocket import SocketProxy


class Doors:
    """stdio, HTTP and WebSocket to one component; all output is checked after the test."""

    def __init__(
        self,
        component: Path,
        http: Callable[[], RecordingProxy],
        websocket: "Callable[[], SocketProxy]",
        folder: Path,
        more: Sequence[str] = (),
    ) -> None:
        """`http` and `websocket` give the proxy in front of the running server, which the first
        use starts; `more` are further arguments of `portico run`."""
        self._more = more
        self._component = component
        self._http = http
        self._websocket = websocket
        self._folder = folder
        self._recordings: list[Path] = []
        self._proxy: RecordingProxy | SocketProxy | None = None
        self._before = 0

    def command(self) -> list[str]:
        """The command that serves it over stdio, and writes the conversation down."""
        recording = self._folder / f"conversation-{len(self._recordings)}"
        self._recordings.append(recording)
        return teed(recording, portico_run(self._component, *self._more))

    def url(self, path: str = "/mcp") -> str:
        """Where it is served over HTTP, through a proxy that listens."""
        proxy = self._http()
        self._listen_to(proxy)
        return proxy.url(path)

    def socket_url(self) -> str:
        """Where it is served over WebSocket, through a proxy that listens."""
        proxy = self._websocket()
        self._listen_to(proxy)
        return proxy.url

    def _listen_to(self, proxy: "RecordingProxy | SocketProxy") -> None:
        if self._proxy is None:
            self._proxy = proxy
            self._before = proxy.checked

    def verdict(self) -> tuple[int, list[str]]:
        """How many messages were checked, and what was wrong with them."""
        checked, problems = 0, []
        if self._proxy is not None:
            checked = self._proxy.checked - self._before
            problems = list(self._proxy.problems)
        for recording in self._recordings:
            oracle = held(recording)
            checked += oracle.checked
            problems += oracle.problems
        return checked, problems
