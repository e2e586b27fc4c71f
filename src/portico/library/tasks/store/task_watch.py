"""Listeners of single tasks, in this process."""

import asyncio
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager

from portico.library.tasks.store.record import TaskRecord

_WAITING = 100
"""Changes that wait for one listener; older ones are dropped, the newest never."""
_RESULTS, _RESULT_SIZE = 16, 1 << 16
"""Results that are kept for their listeners, and the size of the largest."""


class ChangeWatch:
    """The changes of one task, for one listener."""

    def __init__(self) -> None:
        self._changes: deque[TaskRecord] = deque(maxlen=_WAITING)
        self._woken = asyncio.Event()

    def add(self, task: TaskRecord) -> None:
        """Add a change."""
        self._changes.append(task)
        self._woken.set()

    async def next(self) -> TaskRecord:
        """Wait for the next change, and return the task as it was then."""
        while not self._changes:
            self._woken.clear()
            await self._woken.wait()
        return self._changes.popleft()


class ChangeWatches:
    """All listeners of this process, by the id of their task."""

    def __init__(self) -> None:
        self._watches: defaultdict[str, set[ChangeWatch]] = defaultdict(set)
        self._results: OrderedDict[str, bytes] = OrderedDict()

    @contextmanager
    def watch(self, id: str) -> Iterator[ChangeWatch]:
        """Listen to a task; the caller checks that the task is its own."""
        watch = ChangeWatch()
        self._watches[id].add(watch)
        try:
            yield watch
        finally:
            self._watches[id].discard(watch)
            if not self._watches[id]:
                del self._watches[id]

    def publish(self, task: TaskRecord, result: bytes | None = None) -> None:
        """Pass a changed task to its listeners; the first that reads its result gets this one."""
        watches = tuple(self._watches.get(task.id, ()))
        if watches and result is not None and len(result) <= _RESULT_SIZE:
            self._results[task.id] = result
            if len(self._results) > _RESULTS:
                self._results.popitem(last=False)
        for watch in watches:
            watch.add(task)

    def take_result(self, id: str) -> bytes | None:
        """Return the result that was published with a task, once."""
        return self._results.pop(id, None)
