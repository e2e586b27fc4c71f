"""Task stores for tests: in memory and in a folder, on clocks that a test sets."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

from portico.library.tasks.store.record import Clocks, Lease, TaskLimits, TaskRecord
from portico.library.tasks.store.store import TaskStore, tasks_in_folder, tasks_in_memory


class SetClocks:
    """Clocks that only a test moves."""

    def __init__(self) -> None:
        self.wall = 1_800_000_000.0
        self.steady = 5_000.0

    @property
    def clocks(self) -> Clocks:
        return Clocks(lambda: self.wall, lambda: self.steady)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.wall += seconds
        self.steady += seconds


class OpenStore(Protocol):
    def __call__(self, limits: TaskLimits = ...) -> AbstractAsyncContextManager[TaskStore]: ...


def opener(kind: str, folder: Path, now: SetClocks) -> OpenStore:
    """A function that opens a store of this kind."""
    make: dict[str, Callable[[TaskLimits], TaskStore]] = {
        "memory": lambda limits: tasks_in_memory(limits, now.clocks),
        "file": lambda limits: tasks_in_folder(str(folder), limits, now.clocks),
    }

    @asynccontextmanager
    async def opened(limits: TaskLimits = TaskLimits()) -> AsyncIterator[TaskStore]:  # noqa: B008
        store = make[kind](limits)
        try:
            yield store
        finally:
            await store.close()

    return opened


async def claimed(store: TaskStore, *kinds: str, owner: str = "worker") -> tuple[TaskRecord, Lease]:
    """The next task, with the lease of it."""
    task = await store.claim(owner, kinds or ("tool",), 15)
    assert task is not None
    assert task.lease is not None
    return task, task.lease


async def running(store: TaskStore, *kinds: str) -> tuple[TaskRecord, Lease]:
    """The next task, after its worker has begun."""
    _, lease = await claimed(store, *kinds)
    task = await store.begin(lease)
    assert task is not None
    return task, lease
