"""The tasks of a session, as known from results and notifications."""

from collections.abc import Callable
from time import monotonic

from portico.core.protocol.tasks import Task

MAX_TASKS = 1000
"""The number of tasks that are tracked in one session; past that, the oldest is dropped."""
MAX_OPEN_S = 24 * 3600.0
"""How long a task counts as open if its server never reports its end."""
RESULT_S = 30.0
"""How long a task that has ended counts as open until its result is fetched."""


class OpenTasks:
    """Tracks until when each task counts as open, by id, and which ones the server has."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._known: dict[str, None] = {}

    def __bool__(self) -> bool:
        now = self._clock()
        for id, until in tuple(self._until.items()):
            if until <= now:
                del self._until[id]
        return bool(self._until)

    @property
    def has_any(self) -> bool:
        """True if the server has had tasks, which may have ended."""
        return bool(self._known)

    def __contains__(self, id: str) -> bool:
        """True if the server has the task, which may have ended."""
        return id in self._known

    def note(self, task: Task, *, is_fetched: bool = True) -> None:
        """Record a task's state; `is_fetched` unless a client still has to fetch its result."""
        now = self._clock()
        is_new = task.id not in self._known
        self._known[task.id] = None
        if task.is_over and is_fetched:
            self._until.pop(task.id, None)
        elif task.is_over:
            if is_new or task.id in self._until:
                until = self._until.get(task.id, now + RESULT_S)
                self._until[task.id] = min(until, now + RESULT_S)
        elif task.ttl_s is None:
            self._until[task.id] = now + MAX_OPEN_S
        else:
            # The time to live starts at the creation of a task, when it is first seen.
            self._until.setdefault(task.id, now + min(task.ttl_s, MAX_OPEN_S))
        if len(self._known) > MAX_TASKS:
            ended = (id for id in self._known if id not in self._until)
            self.forget(next(ended, next(iter(self._known))))

    def forget(self, id: str) -> None:
        """Remove a task that is unknown to the upstream."""
        self._until.pop(id, None)
        self._known.pop(id, None)
