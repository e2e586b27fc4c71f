"""Real `portico serve` processes before a small server, to be looked at from outside."""

import json
import os
import re
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

from portico.edge.windows.control import send_command
from tests.support.running import WAIT_S, Child, Piped
from tests.wrap.standing import children, until

_MATHS = '''
import asyncio
import sys

from portico import Server, ToolError

server = Server("maths", version="1.0")


@server.tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    print(f"adding {a}", file=sys.stderr, flush=True)
    return a + b


@server.tool
async def wait() -> str:
    """Never end."""
    print("waiting", file=sys.stderr, flush=True)
    await asyncio.Event().wait()
    return ""


@server.tool
def fail() -> str:
    """Always fail."""
    raise ToolError("no \\x1b[31mway")
'''


def prepared(folder: Path, more: str = "") -> Path:
    """A config with one small server, and whatever else its text says."""
    folder.mkdir(exist_ok=True)
    (folder / "maths.py").write_text(_MATHS)
    config = folder / "portico.toml"
    argv = json.dumps(["-m", "portico", "run", str(folder / "maths.py")])
    config.write_text(f"[servers.maths]\ncommand = {json.dumps(sys.executable)}\nargs = {argv}\n")
    with config.open("a") as file:
        file.write(more)
    return config


def portico(home: Path, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """A command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "portico", *words],
        env={**os.environ, "PORTICO_HOME": str(home / "home")},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        check=False,
    )


def _serving(folder: Path, *options: str) -> list[str]:
    config = folder / "portico.toml"
    if not config.exists():
        prepared(folder)
    home = f"PORTICO_HOME={folder / 'home'}"
    argv = ["-m", "portico", "serve", "--config", str(config), *options]
    return ["env", home, sys.executable, *argv]


class Gateway(Child):
    """One over HTTP, with its token."""

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(_serving(folder, *options))
        self._folder = folder
        self.port = 0

    def __enter__(self) -> Self:
        def bound() -> bool:
            found = re.search(r"serving http://127\.0\.0\.1:(\d+)/mcp", self.stderr())
            self.port = int(found[1]) if found else 0
            assert self.process.poll() is None, self.stderr()
            return found is not None

        until(bound, "it does not serve")
        return self

    def __exit__(self, *_: object) -> None:
        kin = children(self.process.pid)
        assert self.stop() == 0, self.stderr()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in kin), "it left a process")

    @property
    def token(self) -> str:
        """What it wants to see."""
        (file,) = (self._folder / "home" / "state").glob("*token*")
        return file.read_text().strip()

    def call(
        self, tool: str, *, path: str = "/mcp", **arguments: Any
    ) -> "subprocess.CompletedProcess[str]":
        """Call one of its tools, over HTTP."""
        url = f"http://127.0.0.1:{self.port}{path}"
        return portico(self._folder, "call", url, tool, json.dumps(arguments))

    def get(
        self, path: str, *, token: str | None = None, method: str = "GET"
    ) -> tuple[int, str, bytes]:
        """Status, content type and body of a page."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
        connection.request(
            method,
            path,
            headers={"Authorization": f"Bearer {self.token if token is None else token}"},
        )
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, answer.headers.get("content-type", ""), body


class Window(Piped):
    """One over stdio, as a client starts it."""

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(_serving(folder, *options), watched=False)
        self._folder = folder
        self.owner = 0
        """The process that has the gateway, once it is ready."""

    def _is_alone(self) -> bool:
        told = send_command(str(self._control), f"{self.owner}.sock", "status", WAIT_S)
        return told is not None and told["windows"] == 1

    @property
    def _control(self) -> Path:
        return self._folder / "home" / "state" / "control"

    def __exit__(self, *about: object) -> None:
        kin = [self.owner, *children(self.owner)] if self.owner and self._is_alone() else []
        super().__exit__(*about)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in kin), "it left a process")

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The result of one of its tools."""
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments})
        result: dict[str, Any] = answer["result"]
        return result

    def ready(self) -> Self:
        """Shake hands, and wait until the server has said what it offers and we can be asked."""
        self.initialize()
        self.call("refresh_tools")
        until(lambda: list(self._control.glob("*.sock")), "it has no control socket")
        (lock,) = self._control.glob("serve-*.lock")
        self.owner = int(lock.read_text().partition(".")[0])
        return self
