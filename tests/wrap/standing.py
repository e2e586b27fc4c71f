"""A real `portico wrap` on pipes before a rig, and `portico servers`, which queries it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.running import WAIT_S, Piped


def wrap_command(home: Path, *words: str) -> list[str]:
    """The command line of `portico wrap`, with all that it keeps in a folder of the test's."""
    return ["env", f"PORTICO_HOME={home}", sys.executable, "-m", "portico", "wrap", *words]


class Standing(Piped):
    """A running `portico wrap` on pipes; gone, with all it started, when the block is left."""

    def __init__(self, home: Path, *words: str, watched: bool = True) -> None:
        super().__init__(wrap_command(home, *words), watched=watched)
        self.home = home

    def __exit__(self, *about: object) -> None:
        kin = children(self.process.pid)
        super().__exit__(*about)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in kin), "it left a process")

    def said(self, tool: str, **arguments: Any) -> str:
        """The text that a tool answers."""
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments})
        assert "result" in answer, answer
        text: str = answer["result"]["content"][0]["text"]
        return text

    def tools(self) -> list[str]:
        """The names of the tools it lists."""
        answer = self.ask("tools/list")
        return [tool["name"] for tool in answer["result"]["tools"]]

    @property
    def socket(self) -> Path:
        """Its control socket, once it exists."""
        return self.home / "state" / "control" / f"{self.process.pid}.sock"

    def reachable(self) -> None:
        """Wait for its control socket."""
        until(self.socket.exists, "it has no control socket")


def servers(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """The output of `portico servers`."""
    return subprocess.run(
        [sys.executable, "-m", "portico", "servers", *words],
        env={**os.environ, "PORTICO_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        check=False,
    )


def until(true: Callable[[], object], what: str) -> None:
    """Wait for something that must come."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    """The processes it has started that still run, and theirs."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *children(child)]
    return found
