"""A real terminal: tmux on a server of its own, typed to and read as a person would."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.shared import unavailable
from tests.wrap.standing import until


class Tmux:
    """One window of a terminal."""

    def __init__(self, socket: Path, environ: Mapping[str, str]) -> None:
        self._socket = socket
        self._environ = environ

    def type(self, line: str) -> None:
        """Type a line and Enter."""
        self.run("send-keys", "-l", line)
        self.run("send-keys", "Enter")

    def until(self, shown: str) -> str:
        """Wait until a line begins with this; return the whole screen."""
        until(lambda: f"\n{shown}" in self._screen(), f"{shown!r} is not shown")
        return self._screen()

    def _screen(self) -> str:
        return f"\n{self.run('capture-pane', '-p', '-J')}"

    def run(self, *words: str) -> str:
        command = ["tmux", "-f", os.devnull, "-S", str(self._socket), *words]
        done = subprocess.run(
            command, env=self._environ, capture_output=True, text=True, check=True
        )
        return done.stdout


@contextmanager
def tmux(folder: Path, cwd: Path, environ: Mapping[str, str]) -> Iterator[Tmux]:
    """A terminal of 150 columns with a plain shell."""
    if shutil.which("tmux") is None:
        unavailable("tmux is not there")
    full = {**os.environ, **environ, "TERM": "xterm-256color", "ENV": "", "PS1": "$ "}
    # Not one name for all: a server that was told to end may still listen at its socket.
    socket = folder / f"tmux-{os.urandom(2).hex()}"
    terminal = Tmux(socket, {key: one for key, one in full.items() if key != "TMUX"})
    size = ("-x", "150", "-y", "60", "-c", str(cwd))
    terminal.run("new-session", "-d", *size, "/bin/sh")
    try:
        yield terminal
    finally:
        terminal.run("kill-server")
