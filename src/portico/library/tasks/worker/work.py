"""A task in progress, as its runner sees it."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from portico.core.model.errors import INTERNAL_ERROR, PorticoError
from portico.core.state.store_error import StoreError
from portico.library.tasks.store.record import (
    CANCELLED,
    COMPLETED,
    FAILED,
    STARTING,
    Lease,
    TaskRecord,
    TaskState,
)

if TYPE_CHECKING:
    from portico.library.tasks.store.store import TaskStore

_PROGRESS_S = 1.0
"""The shortest time between two stored status messages of one task."""


class RunOutcome(Struct, frozen=True):
    """The end of a task: its state, and its result or error."""

    state: TaskState = COMPLETED
    payload: bytes | None = None
    message: str = ""
    usage: Mapping[str, float] = {}
    is_error: bool = False
    """True if the result is that of a tool that failed."""


ORPHANED = RunOutcome(CANCELLED, message="cancelled: the task whose agent started it has ended")
"""The outcome of work that only an agent needed, which has ended."""


def failed_outcome(message: str, data: Mapping[str, Any] | None = None) -> RunOutcome:
    """Return the outcome of a task that failed with an error of ours."""
    error: dict[str, Any] = {"code": INTERNAL_ERROR, "message": message}
    if data is not None:
        error["data"] = data
    return RunOutcome(FAILED, msgspec.json.encode({"error": error}), message)


class LeaseLost(PorticoError):
    """Another worker has the task, or it is finished: this one must stop."""


class Work:
    """One task that this process runs: its lease, its input, and the way to its client."""

    def __init__(self, store: "TaskStore", task: TaskRecord, input: bytes) -> None:
        assert task.lease is not None
        self.task = task
        """The task as it was last seen."""
        self.input = input
        self.lease: Lease = task.lease
        self.running: asyncio.Future[RunOutcome] | None = None
        """The runner; None until the beginning is recorded."""
        self.has_begun = task.state is not STARTING
        """True once the beginning is recorded: from then on only repeatable work may move."""
        self.is_cancelled = False
        """True once the task's client or an operator has requested its end."""
        self.is_lost = False
        """True once the task is not ours any more."""
        self.is_over = False
        """True once its outcome is known."""
        self.is_pinned = False
        """True while only this process can continue, also if the task is repeatable."""
        self._is_stopping = False
        self._store = store
        self._answers: dict[str, asyncio.Future[bytes]] = {}
        self._last_progress = float("-inf")
        self._next_message: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._parked = 0
        """Questions that are stored, or about to be."""
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    @property
    def id(self) -> str:
        """The id of the task."""
        return self.task.id

    @property
    def is_movable(self) -> bool:
        """True if another process may do the work."""
        return not self.is_pinned and (self.task.is_repeatable or not self.has_begun)

    async def is_orphan(self) -> bool:
        """True if an agent started the task, and its own task has ended, in whichever process."""
        return bool(self.task.parent) and await self._store.has_ended(self.task.parent)

    def see(self, task: TaskRecord) -> None:
        """Note the task as it is stored."""
        self.task = task
        if task.is_cancel_requested or task.state is CANCELLED:
            self.is_cancelled = True

    def stop(self) -> None:
        """Cancel the runner, once: a second time would cancel what it does at its end."""
        if self.running is not None and not self._is_stopping:
            self._is_stopping = True
            self.running.cancel()

    async def progress(self, text: str, after_s: float = 0.0) -> None:
        """Set the status message; of several within a second, the last is stored. With `after_s`,
        it is stored so much later, unless the task has ended by then."""
        loop = asyncio.get_running_loop()
        left = max(self._last_progress + _PROGRESS_S - loop.time(), after_s)
        if left <= 0:
            self._last_progress = loop.time()
            with suppress(StoreError):  # the work is worth more than its status
                await self._store.progress(self.lease, text)
            return
        self._next_message = text
        if self._timer is None:
            self._timer = loop.call_later(left, self._send_later)

    def _send_later(self) -> None:
        text, self._next_message, self._timer = self._next_message, None, None
        if text is not None and not self.is_lost and not self.is_over:
            self._last_progress = asyncio.get_running_loop().time()
            sending = asyncio.ensure_future(self._store.progress(self.lease, text))
            sending.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def ask(self, questions: Sequence[bytes]) -> list[bytes]:
        """Park questions, and wait for all answers, in order; raises LeaseLost, and NotAccepted for
        one that is too large. Those beyond the limit wait until others are answered."""
        most = self._store.limits.questions
        answers: list[bytes] = []
        for start in range(0, len(questions), most):
            some = questions[start : start + most]
            async with self._turn:  # in their order
                while self._parked + len(some) > most:
                    self._freed.clear()
                    await self._freed.wait()
                self._parked += len(some)
            try:
                answers += await self._ask(some)
            finally:
                self._parked -= len(some)
                self._freed.set()
        return answers

    async def _ask(self, questions: Sequence[bytes]) -> list[bytes]:
        """Park as many questions as the task may have at once, and wait for their answers."""
        task = await self._store.ask(self.lease, questions)
        if task is None:
            raise LeaseLost("the task ended before its question was stored")
        self.task = task
        added = [one.key for one in task.questions[len(task.questions) - len(questions) :]]
        try:
            return list(await asyncio.gather(*map(self._future, added)))
        except asyncio.CancelledError:
            if not self.is_over and not self.is_lost:
                with suppress(StoreError):
                    await self._store.withdraw(self.lease, added)
            raise

    async def begin(self, event: str = "", note: str | None = None) -> None:
        """Record that the work begins, for a runner that `begins_itself`, with an event and a note;
        raises LeaseLost."""
        task = await self._store.begin(self.lease, event, note)
        if task is None:
            raise LeaseLost("the task ended before it began")
        self.task = task
        self.has_begun = True

    async def record(self, text: str) -> None:
        """Add an event that the status message does not show."""
        await self._store.add_event(self.lease, text)

    async def annotate(self, note: str) -> None:
        """Keep a note, which a task that resumes this one finds."""
        await self._store.annotate(self.lease, note)

    async def hold(self, *, is_held: bool = True) -> None:
        """Keep the task until the user has collected its work, or end that."""
        await self._store.hold(self.lease, is_held=is_held)

    def _future(self, key: str) -> "asyncio.Future[bytes]":
        future = self._answers.get(key)
        if future is None:
            future = self._answers[key] = asyncio.get_running_loop().create_future()
        return future

    def deliver(self, answers: Mapping[str, bytes]) -> None:
        """Pass answers to the questions that wait for them."""
        for key, answer in answers.items():
            future = self._future(key)
            if not future.done():
                future.set_result(answer)

    def close(self) -> None:
        """Forget everything that waits."""
        self.is_lost = True
        if self._timer is not None:
            self._timer.cancel()
        for future in self._answers.values():
            future.cancel()


class Runner(Protocol):
    """Does the work of one kind of task."""

    is_repeatable: bool
    """True if another worker may repeat the work after a crash."""
    begins_itself: bool
    """True if it calls `work.begin` when it begins: until then another worker may take over."""

    async def run(self, work: Work) -> RunOutcome:
        """Do the work, and return its outcome. It is cancelled if the task is, or if this process
        must end; then it stops its work and lets the cancellation pass."""
        ...
