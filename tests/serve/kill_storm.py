"""Clients that submit tasks while their windows and the owner of their gateway are killed."""

from collections.abc import Callable
from random import Random
from typing import Generic, TypeVar

from tests.serve.task_windows import TaskWindow
from tests.support.running import WAIT_S

W = TypeVar("W", bound=TaskWindow)
T = TypeVar("T")


class KillStorm(Generic[W, T]):
    """Windows, the requests that were sent through them, and the tasks that were accepted."""

    def __init__(self, opened: Callable[[bool], W], seed: int) -> None:
        """`opened` returns a new window, of a modern client or of a legacy one."""
        self.random = Random(seed)
        self.open = [opened(bool(number % 2)) for number in range(4)]
        self.accepted: dict[str, T] = {}
        """By task, what was submitted."""
        self.sent: list[tuple[W, int, T]] = []
        self.count = 0
        """The number of tasks that were submitted."""
        self._opened = opened

    def kill_window(self) -> None:
        """Kill a window, and open another in its place."""
        place = self.random.randrange(len(self.open))
        window = self.open[place]
        window.process.kill()
        window.process.wait(WAIT_S)
        self.open[place] = self._opened(window.modern)

    def collect(self) -> None:
        """Read the answers; those that a killed window did not pass on never come."""
        gone: set[W] = set()
        for window, request, given in self.sent:
            if window in gone:
                continue
            try:
                task = window.task_in(request)
            except EOFError:
                gone.add(window)
                continue
            if task:
                assert task not in self.accepted
                self.accepted[task] = given
        self.sent.clear()
