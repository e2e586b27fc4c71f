"""Workers for tests: their runners do what a test says, and their observers remember."""

import asyncio
from collections.abc import Awaitable, Callable

from portico.library.tasks.store.record import TaskRecord
from portico.library.tasks.store.store import TaskStore
from portico.library.tasks.worker.work import RunOutcome, Work
from portico.library.tasks.worker.worker import TaskWorker, WorkerSettings

ME = "local"
PLAIN, REPEATABLE = "plain", "repeatable"
WAIT_S = 60.0


class HeldRunner:
    """A runner whose tasks end when a test ends them, by their input."""

    def __init__(self, *, is_repeatable: bool = False) -> None:
        self.is_repeatable = is_repeatable
        self.begins_itself = False
        self.may_begin = asyncio.Event()
        """For a runner that begins its tasks itself."""
        self.begun: list[bytes] = []
        self.cancelled: list[bytes] = []
        self.works: dict[bytes, Work] = {}
        self.at_end: Callable[[], Awaitable[None]] | None = None
        """What a cancelled task does before it ends."""
        self._ends: dict[bytes, asyncio.Future[RunOutcome]] = {}

    async def run(self, work: Work) -> RunOutcome:
        """Wait for the outcome."""
        self.begun.append(work.input)
        self.works[work.input] = work
        if self.begins_itself:
            await self.may_begin.wait()
            await work.begin()
        try:
            return await asyncio.shield(self._end(work.input))
        except asyncio.CancelledError:
            self.cancelled.append(work.input)
            if self.at_end is not None:
                await self.at_end()
            raise

    def end(self, input: bytes, outcome: RunOutcome | Exception | None = None) -> None:
        """End a task; without an outcome, with its input as the result."""
        if isinstance(outcome, Exception):
            self._end(input).set_exception(outcome)
        else:
            self._end(input).set_result(outcome or RunOutcome(payload=input))

    def _end(self, input: bytes) -> "asyncio.Future[RunOutcome]":
        return self._ends.setdefault(input, asyncio.get_running_loop().create_future())


class WatchedWorker(TaskWorker):
    """A worker with a runner of each sort, that remembers what it said."""

    def __init__(self, open_store: Callable[[], TaskStore], **settings: float) -> None:
        self.reports: list[str] = []
        self.created: list[TaskRecord] = []
        self.finished: list[TaskRecord] = []
        super().__init__(
            open_store,
            WorkerSettings(**settings),  # type: ignore[arg-type]
            report=self.reports.append,
            created=self.created.append,
            finished=self.finished.append,
        )
        self.plain, self.repeatable = HeldRunner(), HeldRunner(is_repeatable=True)
        self.register(PLAIN, self.plain)
        self.register(REPEATABLE, self.repeatable)

    async def begun(self, input: bytes, kind: str = PLAIN) -> TaskRecord:
        """Submit a task, and wait until it runs."""
        task = await self.submit(ME, kind, input)
        runner = self.plain if kind == PLAIN else self.repeatable
        await comes(lambda: input in runner.begun)
        return task

    async def state(self, task: TaskRecord) -> str:
        """The state of a task, as it is stored."""
        found = await self.store.get(ME, task.id)
        return "lost" if found is None else str(found.state)

    async def result(self, task: TaskRecord) -> bytes | None:
        """The result of a task."""
        found = await self.store.get(ME, task.id)
        return None if found is None else await self.store.result(found)


async def comes(condition: Callable[[], object]) -> None:
    """Wait until something is true; what it depends on may be done by a thread or a process."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110  (there is no event)
            await asyncio.sleep(0.001)


async def seen(
    store: TaskStore,
    id: str,
    condition: Callable[[TaskRecord], object],
    principal: str = ME,
) -> TaskRecord:
    """Wait until a task is as expected, whichever process changes it; return it."""
    async with asyncio.timeout(WAIT_S):
        while True:
            task = await store.get(principal, id)
            if task is not None and condition(task):
                return task
            await asyncio.sleep(0.001)
