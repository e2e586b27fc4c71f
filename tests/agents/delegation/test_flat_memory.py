"""A gateway stays as large as it is, whoever comes and goes."""

import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pytest

from tests.agents.delegation.delegations import acp, wrote
from tests.agents.turns.rig import permission
from tests.serve.task_windows import DECLARED, ENDED, TaskWindow, TaskWindows, all_gone
from tests.support.messages import modern_meta
from tests.support.running import WAIT_S, initialize_params
from tests.support.soak import times

pytestmark = [pytest.mark.slow, pytest.mark.soak, pytest.mark.xdist_group("flat-memory")]

SECONDS, CLIENTS = times(20, 20 * 60), 3
TASKS = 10
MOST_MB = times(8, 2)
"""The short form sees caches fill; the long one is about what never ends."""
CAPABLE: dict[str, Any] = {**DECLARED, "elicitation": {"form": {}}}
YES: dict[str, Any] = {"action": "accept", "content": {"option": "yes"}}


class AskedWindow(TaskWindow):
    """A window whose client has a person, who allows everything."""

    def greet(self) -> None:
        """Introduce the client."""
        if not self.modern:
            able: dict[str, Any] = {"elicitation": {"form": {}}}
            self.ask("initialize", {**initialize_params("2025-11-25"), "capabilities": able})
            self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def begin(self, method: str, **params: Any) -> int:
        """Send a request in the client's era; its id."""
        more = {"_meta": modern_meta(CAPABLE)} if self.modern else {}
        return self.start(method, {**params, **more})

    def listen(self) -> None:
        """Be told of changed tools, where that takes a request."""
        if self.modern:
            self.begin("subscriptions/listen", notifications={"toolsListChanged": True})
        self.answer_to(self.begin("tools/list"))

    def run_tasks(self, number: int) -> None:
        """Run some tasks, and read their results."""
        some = [self.submit("effect", number=number, ms=5) for _ in range(TASKS)]
        for task in [self.task_in(id) for id in some]:
            self.outcome(task)

    def delegate(self) -> int:
        """Delegate to an agent that asks; the id of the request."""
        given = {"task_type": "code", "prompt": "p" * 500}
        return self.begin("tools/call", name="delegate_task", arguments=given)

    def allow(self, id: int) -> None:
        """Answer the questions of a delegation until it ends."""
        if self.modern:
            self._allow_task(self.task_in(id))
            return
        while True:
            message = self.receive()
            if message.get("method") == "elicitation/create":
                self.send({"jsonrpc": "2.0", "id": message["id"], "result": YES})
            elif message.get("id") == id and "method" not in message:
                assert "result" in message, message
                return

    def cancel(self, task: str) -> None:
        """Cancel a task, and wait for its end."""
        assert "result" in self.answer_to(self.begin("tasks/cancel", taskId=task))
        self.outcome(task)

    def _allow_task(self, task: str) -> None:
        while (found := self.about(task))["status"] not in ENDED:
            if found["status"] == "input_required":
                answers = dict.fromkeys(found["inputRequests"], YES)
                self.answer_to(self.begin("tasks/update", taskId=task, inputResponses=answers))
            else:
                time.sleep(0.02)
        assert found["status"] == "completed", found


class AskedWindows(TaskWindows):
    """Such windows, of a gateway with an agent that asks."""

    kind = AskedWindow

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, tasks={"keep_count": 1000})
        (folder / "work").mkdir()
        agents = {"asking": acp(permission(), {"say": "ok"})}
        defaults = {"roots": [str(folder / "work")], "max_concurrent": 8}
        more = wrote(folder / "agents.toml", agents, agents_defaults=defaults)
        self.config.write_text(self.config.read_text() + more.read_text())

    def anonymous_mb(self) -> float:
        """The gateway's own memory, without the files that it shares with others."""
        status = Path(f"/proc/{self.owner()}/status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0]) / 1024


class Visitors:
    """Clients that open a window, use it, and leave it in one way or another, until the end."""

    def __init__(self, windows: AskedWindows) -> None:
        self.visits = 0
        self.problems: list[BaseException] = []
        self._windows = windows
        self._left: list[str] = []
        """Tasks that wait for an answer, whose windows are gone."""
        self._numbers = count()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    def leave(self, last: AskedWindow) -> None:
        """Wait until the others have left; the last window cancels what they have not."""
        self._over.set()
        for thread in self._threads:
            thread.join(2 * WAIT_S)
        for task in self._left:
            last.cancel(task)

    def _run(self, seed: int) -> None:
        random = Random(seed)
        try:
            while not self._over.is_set():
                self._visit(random)
                self.visits += 1
        except BaseException as problem:  # noqa: BLE001  (the test raises it)
            self.problems.append(problem)

    def _visit(self, random: Random) -> None:
        window = self._windows.begun(modern=random.random() < 0.5)
        assert isinstance(window, AskedWindow)
        with window:
            window.listen()
            while self._left and window.modern:  # what an earlier window has left
                window.cancel(self._left.pop())
            window.run_tasks(next(self._numbers))
            window.allow(window.delegate())
            if window.modern and random.random() < 0.5:
                self._left.append(window.task_in(window.delegate()))
                window.process.kill()


@pytest.mark.timeout(times(300, 3600))
def test_a_gateway_grows_no_further_while_clients_come_and_go(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    windows = AskedWindows(tmp_path)
    with all_gone(windows):
        first = windows.open()  # the gateway stays while it is open
        assert isinstance(first, AskedWindow)
        visitors, until = Visitors(windows), time.monotonic() + SECONDS
        seen: list[float] = []
        try:
            while time.monotonic() < until and not visitors.problems:
                seen.append(windows.anonymous_mb())
                time.sleep(times(1, 10))
        finally:
            visitors.leave(first)
    for problem in visitors.problems:
        raise problem
    part = len(seen) // 4
    before, after = median(seen[part : 2 * part]), median(seen[-part:])
    assert after - before < MOST_MB, seen
    visits = f"{visitors.visits} windows, each with {TASKS} tasks and a delegation that asks"
    record_property(
        "soak",
        f"{visits}: {before:.1f} MB in the second quarter of {SECONDS / 60:.0f} minutes, "
        f"{after:.1f} in the last",
    )
