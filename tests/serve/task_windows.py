"""Real windows of a gateway whose tasks have effects, and the ledger of these."""

import contextlib
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from portico.core.model.context import LOCAL
from portico.library.tasks.store.record import TaskLimits, TaskRecord
from portico.library.tasks.store.store import TaskStore, tasks_in_folder
from tests.serve.gateway import written
from tests.serve.owners import owner_in, owners_in
from tests.support.messages import modern_meta
from tests.support.running import Piped, initialize_params
from tests.support.shared import ROOT
from tests.wrap.faults import alive, until

EFFECTS = ROOT / "tests" / "serve" / "servers" / "effects.py"
EXTENSION = "io.modelcontextprotocol/tasks"
DECLARED: dict[str, Any] = {"extensions": {EXTENSION: {}}}
GONE_S = 8.0
"""How long anything may stay after the last window: the promise is 2 s."""
ENDED = ("completed", "failed", "cancelled")


class Entry(NamedTuple):
    """A line of the ledger."""

    event: str
    task: str
    at: float
    process: int


class TaskWindow(Piped):
    """A window with a client that declares tasks."""

    def __init__(self, command: list[str], *, modern: bool) -> None:
        super().__init__(command, watched=False)
        self.modern = modern

    def greet(self) -> None:
        """Introduce the client."""
        if not self.modern:
            self.ask("initialize", initialize_params("2025-11-25"))
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def begin(self, method: str, **params: Any) -> int:
        """Send a request in the client's era; its id."""
        more = {"_meta": modern_meta(DECLARED)} if self.modern else {}
        return self.start(method, {**params, **more})

    def submit(self, tool: str, **arguments: Any) -> int:
        """Send a call that becomes a task; the id of the request."""
        more: dict[str, Any] = {} if self.modern else {"task": {}}
        return self.begin("tools/call", name=f"effects__{tool}", arguments=arguments, **more)

    def task_in(self, id: int) -> str:
        """The id of the task in the answer to a call; empty if the gateway ended before."""
        answer = self.answer_to(id)
        if "error" in answer:
            assert answer["error"].get("data", {}).get("kind") == "closed", answer
            return ""
        result = answer["result"]
        task: str = result["taskId"] if self.modern else result["task"]["taskId"]
        return task

    def submitted(self, tool: str, **arguments: Any) -> str:
        """Call a tool; the id of its task."""
        task = self.task_in(self.submit(tool, **arguments))
        assert task
        return task

    def about(self, task: str) -> dict[str, Any]:
        """A task as the client sees it."""
        answer = self.answer_to(self.begin("tasks/get", taskId=task))
        assert "result" in answer, answer
        found: dict[str, Any] = answer["result"]
        return found

    def outcome(self, task: str) -> dict[str, Any]:
        """Wait for the end of a task; all that the client gets to know of it."""
        assert until(lambda: self.about(task)["status"] in ENDED, 60), self.about(task)
        found = self.about(task)
        if not self.modern:
            found = {**found, "ended": self.answer_to(self.begin("tasks/result", taskId=task))}
            found["ended"].pop("id")
        return {key: value for key, value in found.items() if key != "_meta"}


class TaskWindows:
    """A config, its windows, the store of their tasks, and the ledger."""

    kind: type[TaskWindow] = TaskWindow

    def __init__(self, folder: Path, name: str = "portico", **tables: dict[str, Any]) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.ledger = folder / "ledger"
        self.state = self.home / "state"
        many = {"in_progress": 100_000, "keep_count": 100_000}
        self.config = written(
            folder / f"{name}.toml",
            tables.pop("servers", {}),
            **{
                "gateway": {"expose": "all", **tables.pop("gateway", {})},
                "tasks": {"lease_s": 1, "running": 8, **many, **tables.pop("tasks", {})},
                "components.effects": {"path": str(EFFECTS), "in_process": True},
                **tables,
            },
        )
        self.stack = ExitStack()

    def open(self, *options: str, modern: bool = True) -> TaskWindow:
        """One more window, in a process group of its own as clients start it."""
        return self.stack.enter_context(self.begun(*options, modern=modern))

    def begun(self, *options: str, modern: bool = True) -> TaskWindow:
        """The same, for the caller to close."""
        variables = [f"PORTICO_HOME={self.home}", f"LEDGER={self.ledger}"]
        portico = [sys.executable, "-m", "portico", "serve", "--config", str(self.config)]
        command = ["setsid", "--wait", "env", *variables, *portico, *options]
        window = self.kind(command, modern=modern)
        window.greet()
        return window

    def entries(self, event: str) -> list[Entry]:
        """The lines of the ledger with an event."""
        text = self.ledger.read_text() if self.ledger.exists() else ""
        lines = [line.split() for line in text.splitlines()]
        return [
            Entry(kind, id, float(at), int(pid)) for kind, id, at, pid in lines if kind == event
        ]

    def count(self, event: str) -> Counter[str]:
        """How often each task had an event."""
        return Counter(entry.task for entry in self.entries(event))

    def most_at_once(self) -> int:
        """The most effects that one process had under way."""
        under_way: Counter[int] = Counter()
        most = 0
        every = sorted(self.entries("start") + self.entries("end"), key=lambda entry: entry.at)
        for entry in every:
            under_way[entry.process] += 1 if entry.event == "start" else -1
            most = max(most, under_way[entry.process])
        return most

    def processes(self) -> set[int]:
        """All processes of this gateway that live."""
        found = set()
        for folder in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if folder.name.isdigit():
                    words = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
                    if str(self.folder).encode() in words:
                        found.add(int(folder.name))
        return alive(found - {os.getpid()})

    def owners(self) -> set[int]:
        """The processes that have a gateway: theirs is the word in a lock."""
        return owners_in(self.state)

    def owner(self) -> int:
        """The only one of them; waits for one that is being started."""
        return owner_in(self.state)

    def store(self) -> TaskStore:
        """The store of the tasks, as another process opens it."""
        return tasks_in_folder(str(self.state), TaskLimits(in_progress=100_000, kept=100_000))


async def every(store: TaskStore) -> dict[str, TaskRecord]:
    """All tasks that the local clients have."""
    found: list[TaskRecord] = []
    page = await store.page(LOCAL)
    while page is not None:
        found += page.tasks
        page = None if page.cursor is None else await store.page(LOCAL, cursor=page.cursor)
    return {task.id: task for task in found}


@contextmanager
def all_gone(windows: TaskWindows) -> Iterator[TaskWindows]:
    """Windows that have ended when the block is left, and with them all that they started."""
    with windows.stack:
        yield windows
    until(lambda: not windows.processes(), GONE_S)
    left = windows.processes()
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left, "a process outlived the last window"
