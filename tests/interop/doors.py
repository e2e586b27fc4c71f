"""Both ways in to a real server, watched."""

from pathlib import Path

from tests.support.proxy import RecordingProxy
from tests.support.running import held, portico_run, teed


class Doors:
    """Both ways in to one component; what comes out of either is checked when the test is over."""

    def __init__(self, component: Path, proxy: RecordingProxy, folder: Path) -> None:
        self._component = component
        self._proxy = proxy
        self._folder = folder
        self._recordings: list[Path] = []
        self._before = proxy.checked

    def command(self) -> list[str]:
        """The command that serves it over stdio, and writes the conversation down."""
        recording = self._folder / f"conversation-{len(self._recordings)}"
        self._recordings.append(recording)
        return teed(recording, portico_run(self._component))

    def url(self, path: str = "/mcp") -> str:
        """Where it is served over HTTP, through a proxy that listens."""
        return self._proxy.url(path)

    def verdict(self) -> tuple[int, list[str]]:
        """How many messages were checked, and what was wrong with them."""
        checked = self._proxy.checked - self._before
        problems = list(self._proxy.problems)
        for recording in self._recordings:
            oracle = held(recording)
            checked += oracle.checked
            problems += oracle.problems
        return checked, problems
