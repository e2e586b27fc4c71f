"""The open tasks of a session, as known from results and notifications."""

from collections.abc import Callable
from time import monotonic

from portico.protocol.tasks import Task

MAX_TASKS = 1000
"""The number of tasks that are tracked in one session; past that, the oldest is dropped."""
MAX_OPEN_S = 24 * 3600.0
"""How long a task counts as open if its server never reports its end."""


class OpenTasks:
    """Tracks until when each task counts as open, by id."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def __bool__(self) -> bool:
        now = self._clock()
        for id, until in tuple(self._until.items()):
            if until <= now:
                del self._until[id]
        return bool(self._until)

    def __contains__(self, id: str) -> bool:
        return id in self._until

    def note(self, task: Task) -> None:
        """Record a task's state."""
        if task.is_over:
            self.forget(task.id)
        elif task.ttl_s is None:
            self._until[task.id] = self._clock() + MAX_OPEN_S
        else:
            # The time to live starts at the creation of a task, when it is first seen.
            self._until.setdefault(task.id, self._clock() + min(task.ttl_s, MAX_OPEN_S))
        if len(self._until) > MAX_TASKS:
            del self._until[next(iter(self._until))]

    def forget(self, id: str) -> None:
        """Remove a task that has ended or is unknown to the upstream."""
        self._until.pop(id, None)
