"""Real windows of one client, each with a process of its own at the same gateway."""

import contextlib
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from portico.windows.control import send_command
from tests.support.messages import modern_meta
from tests.support.running import WAIT_S, Piped, initialize_params
from tests.support.shared import ROOT
from tests.wrap.faults import alive
from tests.wrap.faults import until as comes
from tests.wrap.standing import until

SCRIPT = ROOT / "tests" / "windows" / "servers" / "window.py"
NOTE = "note://one"
GONE_S = 8.0
"""How long an owner may stay after its last window: the promise is 2 s."""


class Street:
    """Where the windows of one gateway are: its folder, and the book of what its house did."""

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
            window.heard_out()
        assert not left_over, f"owners outlived their windows: {left_over}"
        assert [name for name in self.left() if name.endswith(".new")] == []

    def _left_over(self) -> set[int]:
        """The owners that are still there when they should not be; they are ended."""
        comes(lambda: not alive(self.owners()), GONE_S)
        left = alive(self.owners())
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left

    def window(
        self, era: str = "2025-11-25", *, by: list[str] | None = None, **env: str
    ) -> "Window":
        """One more window, its client introduced and served."""
        window = self.opening(era, by=by, **env)
        window.greet()
        return window

    def opening(
        self, era: str = "2025-11-25", *, by: list[str] | None = None, **env: str
    ) -> "Window":
        """One more window, which is being started; `by` is a command that runs it."""
        window = self._stack.enter_context(Window(self, era, by=by, **env))
        self._windows.append(window)
        return window

    def opened(self, many: int) -> "list[Window]":
        """Several windows, one after another: the first starts the owner."""
        return [self.window() for _ in range(many)]

    def stop(self) -> int:
        """Have the owner end in order; which it was."""
        owner = self.owner()
        assert send_command(str(self.folder), f"{owner}.sock", "stop", WAIT_S) == {"ok": True}
        return owner

    def owners(self) -> set[int]:
        """All that ever had the gateway."""
        return set(self.said("owns"))

    def owner(self) -> int:
        """The last that had the gateway."""
        return self.said("owns")[-1]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the owner."""
        os.kill(self.owner(), number)

    def kill(self) -> int:
        """End the owner as nothing can prepare for; which it was."""
        owner = self.owner()
        ended(owner)
        return owner

    def release(self) -> None:
        """Let all calls go that the owner holds, without a call."""
        self.signal(signal.SIGUSR1)

    def said(self, words: str) -> list[int]:
        """The processes in whose name the book has this, in its order."""
        if not self.book.exists():
            return []
        lines = [line.partition(" ") for line in self.book.read_text().splitlines()]
        return [int(pid) for pid, _, rest in lines if rest == words]

    def told(self, words: str) -> None:
        """Wait until the book has this."""
        until(lambda: self.said(words), f"nobody {words}")

    def log(self) -> str:
        """What owners have written to their stderr."""
        log = Path(f"{self.book}.log")
        return log.read_text() if log.exists() else ""

    def left(self) -> list[str]:
        """The files that are still there."""
        return sorted(path.name for path in self.folder.iterdir()) if self.folder.exists() else []


class Window(Piped):
    """One client, at whatever serves it now."""

    def __init__(
        self, street: Street, era: str = "2025-11-25", *, by: list[str] | None = None, **env: str
    ) -> None:
        settings = [f"{name}={value}" for name, value in env.items()]
        home = f"PORTICO_HOME={street.folder.parent / 'home'}"
        script = [sys.executable, str(SCRIPT), str(street.folder), str(street.book)]
        self.command = [*(by or ()), "env", home, *settings, *script]
        self._answered: list[Any] = []
        super().__init__(self.command)
        self.street = street
        self.era = era

    @property
    def pid(self) -> int:
        """The process's number; `env` becomes what it starts."""
        return self.process.pid

    @property
    def is_modern(self) -> bool:
        return self.era.startswith("2026")

    def greet(self) -> None:
        """Introduce the client, or see that it is served."""
        if self.is_modern:
            assert "result" in self.answer_to(self.begin("server/discover"))
            return
        params = initialize_params(self.era)
        params["capabilities"] = {"elicitation": {}}
        answer = self.ask("initialize", params)
        assert "result" in answer, answer
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def begin(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request as this client's era has it; its id."""
        if self.is_modern:
            return self.start(method, {**(params or {}), "_meta": modern_meta()})
        return self.start(method, params)

    def call(self, tool: str, **arguments: Any) -> int:
        """Begin a call; its id."""
        return self.begin("tools/call", {"name": tool, "arguments": arguments})

    def says(self, tool: str, **arguments: Any) -> str:
        """The text that a tool answers."""
        return text_of(self.answer_to(self.call(tool, **arguments)))

    def owner(self) -> int:
        """The process that serves it now."""
        return int(self.says("who"))

    def words(self, which: str) -> None:
        """Wait until the person at it has been told this."""
        until(lambda: which in self.stderr(), f"{which!r} is not in {self.stderr()!r}")

    def hold(self, name: str) -> int:
        """Begin a call that runs until it is released; its id."""
        id = self.call("hold", name=name)
        self.street.told(f"holds {name}")
        return id

    def next(self, method: str) -> dict[str, Any]:
        """Wait for this notification or question; what comes before it is kept."""
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
        """Close its input, as a client does that ends; its exit code."""
        self._in.close()
        return self.ended()

    def receive(self) -> dict[str, Any]:
        """The next message it wrote; no request is answered twice."""
        message = super().receive()
        if self.watched and "method" not in message:
            assert message["id"] not in self._answered, message
            self._answered.append(message["id"])
        return message

    def heard_out(self) -> None:
        """See that all it said to its end is as it should be."""
        if self.watched:
            with contextlib.suppress(EOFError):
                while True:
                    self.receive()
            assert self.oracle.problems == []

    def kill(self) -> None:
        """End it as nothing can prepare for."""
        self.process.kill()
        self.process.wait()


def ended(pid: int) -> None:
    """Kill a process that is not our child, and wait for its end."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive({pid}), "it lives on")


def text_of(answer: dict[str, Any]) -> str:
    """The text of a call's answer."""
    assert "result" in answer, answer
    text: str = answer["result"]["content"][0]["text"]
    return text
