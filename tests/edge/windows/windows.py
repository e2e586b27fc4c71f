"""Real windows, each in its own process, connected to the same gateway."""

import contextlib
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from portico.edge.windows.control import send_command
from tests.support.messages import modern_meta
from tests.support.running import WAIT_S, Piped, initialize_params
from tests.support.shared import ROOT
from tests.wrap.faults import alive
from tests.wrap.faults import until as comes
from tests.wrap.standing import until

SCRIPT = ROOT / "tests" / "edge" / "windows" / "servers" / "window.py"
STARTS = ROOT / "tests" / "edge" / "windows" / "starts"
NOTE = "note://one"
GONE_S = 8.0
"""The timeout for an owner's exit after its last window: the documented limit is 2 s."""


class Street:
    """The windows of one gateway, its control folder, and its log of events."""

    def __init__(self, path: Path) -> None:
        self.folder = path / "control"
        self.book = path / "book"
        self._stack = ExitStack()
        self._windows: list[Window] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: Any) -> None:
        self._stack.__exit__(*about)
        left_over = self._left_over()
        for window in self._windows:
            window.check_remaining()
        assert not left_over, f"owners outlived their windows: {left_over}"
        assert [name for name in self.left() if name.endswith(".new")] == []

    def _left_over(self) -> set[int]:
        """Kill and return the owners that still run when they should have ended."""
        comes(lambda: not alive(self.owners()), GONE_S)
        left = alive(self.owners())
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    def window(
        self, era: str = "2025-11-25", *, by: list[str] | None = None, **env: str
    ) -> "Window":
        """Start a window, and complete its client's handshake."""
        window = self.opening(era, by=by, **env)
        window.handshake()
        return window

    def opening(
        self, era: str = "2025-11-25", *, by: list[str] | None = None, **env: str
    ) -> "Window":
        """Start a window without waiting; `by` is a command that runs it."""
        window = self._stack.enter_context(Window(self, era, by=by, **env))
        self._windows.append(window)
        return window

    def opened(self, many: int) -> "list[Window]":
        """Start several windows, one after another: the first starts the owner."""
        return [self.window() for _ in range(many)]

    def stop(self) -> int:
        """Stop the owner in order; return its pid."""
        owner = self.owner()
        assert send_command(str(self.folder), f"{owner}.sock", "stop", WAIT_S) == {"ok": True}
        return owner

    def owners(self) -> set[int]:
        """Return the pids of all owners so far."""
        return set(self.pids_of("owns"))

    def owner(self) -> int:
        """Return the pid of the latest owner."""
        return self.pids_of("owns")[-1]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the owner."""
        os.kill(self.owner(), number)

    def kill(self) -> int:
        """Kill the owner; return its pid."""
        owner = self.owner()
        ended(owner)
        return owner

    def release(self) -> None:
        """Release all calls that the owner holds, without a call."""
        self.signal(signal.SIGUSR1)

    def pids_of(self, words: str) -> list[int]:
        """Return the processes that logged this event, in order."""
        if not self.book.exists():
            return []
        lines = [line.partition(" ") for line in self.book.read_text().splitlines()]
        return [int(pid) for pid, _, rest in lines if rest == words]

    def wait_for(self, words: str) -> None:
        """Wait until a process has logged this event."""
        until(lambda: self.pids_of(words), f"nobody {words}")

    def log(self) -> str:
        """Return the owners' stderr."""
        log = Path(f"{self.book}.log")
        return log.read_text() if log.exists() else ""

    def left(self) -> list[str]:
        """Return the names of the remaining files."""
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []


class Window(Piped):
    """One window with its client."""

    def __init__(
        self, street: Street, era: str = "2025-11-25", *, by: list[str] | None = None, **env: str
    ) -> None:
        settings = [f"{name}={value}" for name, value in env.items()]
        home = f"PORTICO_HOME={street.folder.parent / 'home'}"
        script = [sys.executable, str(SCRIPT), str(street.folder), str(street.book)]
        path = f"PYTHONPATH={STARTS}{os.pathsep}{ROOT}"  # its owner imports it by name
        self.command = [*(by or ()), "env", home, path, *settings, *script]
        self._answered: list[Any] = []
        super().__init__(self.command)
        self.street = street
        self.era = era

    @property
    def pid(self) -> int:
        """The pid of the window: `env` replaces itself by the command."""
        return self.process.pid

    @property
    def is_modern(self) -> bool:
        return self.era.startswith("2026")

    def handshake(self) -> None:
        """Complete the client's handshake, or check that it is served."""
        if self.is_modern:
            assert "result" in self.answer_to(self.begin("server/discover"))
            return
        params = initialize_params(self.era)
        params["capabilities"] = {"elicitation": {}}
        answer = self.ask("initialize", params)
        assert "result" in answer, answer
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def begin(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request in the client's era; return its id."""
        if self.is_modern:
            return self.start(method, {**(params or {}), "_meta": modern_meta()})
        return self.start(method, params)

    def call(self, tool: str, **arguments: Any) -> int:
        """Start a call; return its id."""
        return self.begin("tools/call", {"name": tool, "arguments": arguments})

    def result_text(self, tool: str, **arguments: Any) -> str:
        """Call a tool and return the text of its result."""
        return text_of(self.answer_to(self.call(tool, **arguments)))

    def owner(self) -> int:
        """Return the pid of the process that serves it now."""
        return int(self.result_text("who"))

    def wait_for_stderr(self, which: str) -> None:
        """Wait until its stderr contains this."""
        until(lambda: which in self.stderr(), f"{which!r} is not in {self.stderr()!r}")

    def hold(self, name: str) -> int:
        """Start a call that runs until it is released; return its id."""
        id = self.call("hold", name=name)
        self.street.wait_for(f"holds {name}")
        return id

    def next(self, method: str) -> dict[str, Any]:
        """Wait for this notification or question; keep earlier messages."""
        for message in self._aside:
            if message.get("method") == method:
                self._aside.remove(message)
                return message
        while True:
            message = self.receive()
            if message.get("method") == method:
                return message
            self._aside.append(message)

    def leave(self) -> int:
        """Close its stdin, as a client does at its end; return the exit code."""
        self._in.close()
        return self.ended()

    def receive(self) -> dict[str, Any]:
        """Return its next message; check that no request gets two responses."""
        message = super().receive()
        if self.watched and "method" not in message:
            assert message["id"] not in self._answered, message
            self._answered.append(message["id"])
        return message

    def check_remaining(self) -> None:
        """Check the rest of its output."""
        if self.watched:
            with contextlib.suppress(EOFError):
                while True:
                    self.receive()
            assert self.oracle.problems == []

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()


def ended(pid: int) -> None:
    """Kill a process that is not our child, and wait for its exit."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive({pid}), "it lives on")


def text_of(answer: dict[str, Any]) -> str:
    """The text of a call's answer."""
    assert "result" in answer, answer
    text: str = answer["result"]["content"][0]["text"]
    return text
