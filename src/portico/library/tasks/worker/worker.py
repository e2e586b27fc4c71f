"""Runs the tasks of a store in this process: claims them, renews their leases, finishes them."""

import asyncio
import contextlib
import os
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from portico.core.model.defaults import LEASE_S
from portico.core.state.background import Background
from portico.core.state.store_error import StoreError
from portico.library.tasks.store.record import (
    CANCELLED,
    INTERRUPTED,
    QUEUED,
    Lease,
    NotAccepted,
    TaskRecord,
)
from portico.library.tasks.worker.run_limits import RunLimits
from portico.library.tasks.worker.work import LeaseLost, Runner, RunOutcome, Work, failed_outcome

if TYPE_CHECKING:
    from portico.library.tasks.store.store import TaskStore

_LOOK_S = 0.5
"""How often the requests of other processes are looked for, while tasks run."""
_RETRY_S = 1.0
_PRUNE_S = 600.0
_STOP_S = 5.0
"""The time that work has to end once it is stopped."""
_STOPPED = "interrupted: the process that ran the task was stopped before the task ended"
_MAX_ROOMS = 1000
"""The principals and places whose room is kept in memory; others are looked up."""
_ENDED = "interrupted: the call of the task was cancelled before it ended"
Run = Callable[[Work], Awaitable[RunOutcome]]
Report = Callable[[str], None]
Observe = Callable[[TaskRecord], None]


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one process's work."""

    lease_s: float = LEASE_S
    running: int = 16
    """Tasks of one place that run at the same time; the others wait in the store."""


_DEFAULTS = WorkerSettings()


class TaskWorker:
    """The tasks that this process runs, and the store that they are kept in.

    The store is opened when it is first needed. `created` and `finished` observe tasks.
    """

    def __init__(
        self,
        open_store: Callable[[], "TaskStore"],
        settings: WorkerSettings = _DEFAULTS,
        *,
        report: Report = lambda _: None,
        created: Observe = lambda _: None,
        finished: Observe = lambda _: None,
    ) -> None:
        self.owner = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._open_store = open_store
        self._settings = settings
        self._report = report
        self._created = created
        self._finished = finished
        self._runners: dict[str, Runner] = {}
        self._works: dict[str, Work] = {}
        """By the token of its lease: a task that was lost may be claimed again meanwhile."""
        self._limits = RunLimits(
            settings.running, lambda: [work.task for work in self._works.values()]
        )
        self._background = Background()
        self._loop: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._is_due = False
        """True if the store is to be read at once."""
        self._has_looked = False
        """True once the waiting tasks are known."""
        self._has_queued = False
        self._has_more = False
        """True if a task was stored while others were claimed."""
        self._is_closing = False
        self.damaged: list[str] = []
        """The ids of the tasks whose records are damaged."""
        self._trouble = ""
        """The last failure that was reported."""
        self._idle: list[asyncio.Future[None]] = []
        self._room: Counter[tuple[str, str]] = Counter()
        """By principal and place, how many more tasks there may be, as far as is known here."""

    @cached_property
    def store(self) -> "TaskStore":
        """The store of the tasks."""
        store = self._open_store()
        store.report_to(self._report)
        return store

    @property
    def is_busy(self) -> bool:
        """True while tasks run here, or wait to."""
        return bool(self._works) or self._has_queued

    @property
    def running(self) -> int:
        """The number of tasks that run here."""
        return len(self._works)

    def register(self, kind: str, runner: Runner, limit: Callable[[], int] | None = None) -> None:
        """Run tasks of this kind here, up to this many at once."""
        self._runners[kind] = runner
        if limit is not None:
            self._limits.limit(kind, limit)

    def start(self) -> None:
        """Look for waiting tasks, and for tasks of ended processes, from now on."""
        if self._loop is None and not self._is_closing:
            self._loop = asyncio.create_task(self._run_loop())

    def wake(self) -> None:
        """Look for tasks now."""
        self.start()
        self._is_due = True
        self._woken.set()

    async def check_room(self, principal: str, place: str = "") -> None:
        """Raise NotAccepted if a principal has as many unfinished tasks at a place as it may have:
        work that cannot become a task is better not begun."""
        if self._room[principal, place] > 0:
            return
        with contextlib.suppress(StoreError):  # a task is refused when it cannot be stored
            self._room[principal, place] = await self.store.room(principal, place)

    def _add(self, task: TaskRecord) -> None:
        """Count a task that was stored."""
        if len(self._room) > _MAX_ROOMS:
            self._room.clear()  # each agent with access to tools is a principal
        self._room[task.principal, task.place] -= 1
        self._created(task)

    async def submit(
        self,
        principal: str,
        kind: str,
        input: bytes,
        ttl_s: float | None = None,
        *,
        place: str = "",
        follows: str = "",
    ) -> TaskRecord:
        """Store a task that this process, or another one, runs; raises NotAccepted, StoreError."""
        # If it may run now, and nothing waits before it, it does not wait in the queue.
        is_ours = self._has_looked and not self._has_queued and self._limits.has_room(kind, place)
        with self._limits.reserved(kind, place) if is_ours else contextlib.nullcontext():
            task = await self.store.submit(
                principal,
                kind,
                input,
                ttl_s,
                place=place,
                is_repeatable=self._runners[kind].is_repeatable,
                follows=follows,
                owner=self.owner if is_ours else "",
                lease_s=self._settings.lease_s,
            )
        self._add(task)
        if is_ours:
            self._take(task, input)
        else:
            self._has_queued = self._has_more = True
            self.wake()
        return task

    async def adopt(
        self,
        principal: str,
        kind: str,
        input: bytes,
        run: Run,
        ttl_s: float | None = None,
        *,
        place: str = "",
        key: str = "",
        is_repeatable: bool | None = None,
    ) -> TaskRecord:
        """Store work that has begun here, and finish it with the outcome of `run`; without
        `is_repeatable`, it is as repeatable as its kind."""
        repeats = self._runners[kind].is_repeatable if is_repeatable is None else is_repeatable
        if self._is_closing and not repeats:
            raise NotAccepted("the work cannot become a task: its process is stopping")
        task = await self.store.adopt(
            principal,
            kind,
            input,
            self.owner,
            self._settings.lease_s,
            ttl_s,
            place=place,
            is_repeatable=repeats,
            key=key,
        )
        self._add(task)
        self._start(Work(self.store, task, input), run)
        self.start()
        return task

    async def wait_until_idle(self) -> None:
        """Wait until no task runs or waits here."""
        while self.is_busy:
            idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle

    async def close(self, within_s: float = 0.0) -> None:
        """Wait for running tasks, up to a time, then interrupt them; others wait in the store."""
        self._is_closing = True
        self._woken.set()
        if self._loop is not None:  # it ends by itself, unless the store is stuck
            await asyncio.wait({self._loop}, timeout=_STOP_S)
            self._loop.cancel()
            await asyncio.wait({self._loop})
        await self._finish_running(within_s)
        await self._stop_running()
        if "store" in self.__dict__:
            await self.store.close()

    async def _finish_running(self, within_s: float) -> None:
        """Wait for the tasks that cannot be continued elsewhere; renew their leases meanwhile."""
        clock = asyncio.get_running_loop().time
        until = clock() + within_s
        while clock() < until:
            for work in tuple(self._works.values()):
                if work.is_movable:
                    work.stop()
            if all(work.is_movable for work in self._works.values()):
                return
            await self._attempt(self._renew)
            await self._attempt(self._look)
            pause = min(_LOOK_S, self._settings.lease_s / 4, max(0.0, until - clock()))
            await self._background.wait(pause)

    async def _stop_running(self) -> None:
        """Interrupt all tasks, and wait for their ends to be stored."""
        clock = asyncio.get_running_loop().time
        until = clock() + _STOP_S
        while self._background and clock() < until:
            for work in tuple(self._works.values()):
                work.stop()
            await self._background.wait(_LOOK_S)
        for work in tuple(self._works.values()):
            if work.running is not None:  # it has ignored the first time
                work.running.cancel()
        self._background.cancel()
        await self._background.wait(_STOP_S)

    async def _run_loop(self) -> None:
        """Claim, renew and recover tasks until this process ends."""
        clock = asyncio.get_running_loop().time
        pause_s = self._settings.lease_s / 4
        look_s = min(_LOOK_S, pause_s)
        renewed = recovered = looked = clock() - pause_s
        pruned = clock() - _PRUNE_S
        while not self._is_closing:
            if clock() - renewed >= pause_s:
                renewed = clock()
                await self._attempt(self._renew)
            is_due, self._is_due = self._is_due or clock() - recovered >= pause_s, False
            if is_due or clock() - looked >= look_s:
                looked = clock()
                await self._attempt(self._look)
            if is_due:
                recovered = clock()
                await self._attempt(self._recover)
            if is_due or self._has_queued:
                await self._attempt(self._claim)
            if clock() - pruned >= _PRUNE_S:
                pruned = clock()
                await self._attempt(self._prune)
            self._tell_idle()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(look_s if self._works else pause_s):
                    await self._woken.wait()
            self._woken.clear()

    async def _attempt(self, operation: Callable[[], Awaitable[None]]) -> None:
        """Do one thing to the store; its failure does not prevent the others."""
        try:
            await operation()
        except Exception as error:  # noqa: BLE001  (without this loop no task would end)
            words = str(error) if isinstance(error, StoreError) else repr(error)
            if words != self._trouble:
                self._trouble = words
                self._report(f"the task store is not available: {words}; retrying")

    async def _recover(self) -> None:
        for task in await self.store.recover({*self._works}):
            if task.is_finished:
                self._finished(task)
        self.damaged = await self.store.damaged()

    async def _prune(self) -> None:
        await self.store.prune()

    async def _claim(self) -> None:
        """Begin tasks that wait, up to the limit; if the store fails, they wait in it."""
        self._has_more = is_waiting = False
        try:
            while not self._is_closing:
                kinds, full = self._limits.claimable(self._runners)
                task = await self.store.claim(self.owner, kinds, self._settings.lease_s, full)
                if task is None:
                    break
                if task.resumes and task.starts == 1:  # a command has stored it
                    self._add(task)
                self._take(task)
            is_waiting = await self.store.has_queued([*self._runners])
            self._has_looked = True
        finally:
            # A task may have been submitted since the store was read.
            self._has_queued = is_waiting or self._has_more

    def _take(self, task: TaskRecord, input: bytes | None = None) -> None:
        """Begin a task that is leased to this worker."""
        # Counted from now on: `_begin` waits for the disk.
        work = Work(self.store, task, b"")
        self._works[work.lease.token] = work
        self._woken.set()  # from now on the requests of other processes are looked for
        self._background.start(self._begin(task, input))

    async def _begin(self, task: TaskRecord, input: bytes | None) -> None:
        """Record the beginning of a leased task, then run it."""
        assert task.lease is not None
        try:
            if input is None:
                input = await self.store.input(task)
            begun: TaskRecord | None = task
            if not self._runners[task.kind].begins_itself:
                begun = await self.store.begin(task.lease)
            if begun is None or input is None:
                return
            work = Work(self.store, begun, input)
            if begun.is_cancel_requested:
                await self._store_outcome(work, RunOutcome(CANCELLED, message="cancelled"))
            elif self._is_closing:  # nothing has happened yet
                await self.store.release(task.lease)
            else:
                self._start(work, self._runners[task.kind].run)
        except (StoreError, NotAccepted) as error:
            # Its lease expires, and another attempt follows.
            self._report(f"task {task.id} was not started: {error}")
        finally:
            if self._works[task.lease.token].running is None:
                self._forget(task.lease)

    def _start(self, work: Work, run: Run) -> None:
        self._works[work.lease.token] = work
        work.running = asyncio.ensure_future(run(work))
        self._background.start(self._run(work, work.running))

    async def _run(self, work: Work, running: "asyncio.Future[RunOutcome]") -> None:
        """Wait for the end of a task, and store its outcome."""
        watching = asyncio.ensure_future(self._watch(work))
        try:
            await asyncio.wait({running})
            work.is_over = True
            outcome = self._outcome(work, running)
            if outcome is not None:
                await self._store_outcome(work, outcome)
            elif not work.is_lost:
                with contextlib.suppress(StoreError):
                    await self.store.release(work.lease)
        finally:
            watching.cancel()
            work.close()
            self._forget(work.lease)

    def _forget(self, lease: Lease) -> None:
        del self._works[lease.token]
        if self._has_queued:
            self._woken.set()
        self._tell_idle()

    def _outcome(self, work: Work, running: "asyncio.Future[RunOutcome]") -> RunOutcome | None:
        """Return how a task ended; None if it is not ours to finish."""
        if running.cancelled():
            if work.is_lost:
                return None
            if work.is_cancelled:
                return RunOutcome(CANCELLED, message="cancelled")
            if self._is_closing and work.is_movable:
                return None
            return RunOutcome(INTERRUPTED, message=_STOPPED if self._is_closing else _ENDED)
        error = running.exception()
        if error is None:
            return running.result()
        if isinstance(error, LeaseLost):
            work.is_lost = True
            return None
        if isinstance(error, NotAccepted | StoreError):  # such as a question that is too large
            return failed_outcome(str(error))
        self._report(f"task {work.id} failed: {type(error).__name__}: {error}")
        return failed_outcome(f"internal error: {type(error).__name__}")

    async def _store_outcome(self, work: Work, outcome: RunOutcome) -> None:
        """Store an outcome, however long the disk is full."""
        is_reported = False
        while True:
            try:
                done = await self.store.finish(
                    work.lease,
                    outcome.state,
                    outcome.payload,
                    outcome.message,
                    outcome.usage,
                    is_error=outcome.is_error,
                )
            except NotAccepted as error:
                outcome = failed_outcome(str(error))
            except StoreError as error:
                if not is_reported:
                    self._report(f"the result of task {work.id} is not stored yet: {error}")
                    is_reported = True
                await asyncio.sleep(_RETRY_S)
            else:
                if done is not None:
                    self._finished(done)
                return

    async def _watch(self, work: Work) -> None:
        """Follow the changes that this process makes to a task: answers, and its end."""
        with self.store.watch(work.id) as changes:
            while True:
                task = await changes.next()
                with contextlib.suppress(StoreError):  # `_look` tries again
                    await self._apply(work, task)

    async def _look(self) -> None:
        """Find the changes that other processes made to our tasks."""
        if not self._works:
            return
        known = {task.id: task for task in await self.store.leased_to(self.owner)}
        for work in tuple(self._works.values()):
            task = known.get(work.id)
            if task is None and work.running is not None:
                task = await self.store.get(work.task.principal, work.id)
            if work.running is not None:
                await self._apply(work, task)

    async def _apply(self, work: Work, task: TaskRecord | None) -> None:
        """Act on a task as it is stored now."""
        if work.is_over:
            return
        is_ours = (
            task is not None and task.lease is not None and task.lease.token == work.lease.token
        )
        if task is not None:
            work.see(task)
        if not is_ours:
            work.is_lost = True
            work.stop()
            return
        assert task is not None
        if any(question.answer is not None for question in task.questions):
            work.deliver(await self.store.take_answers(work.lease) or {})
        if work.is_cancelled:
            work.stop()

    async def _renew(self) -> None:
        works = [work for work in self._works.values() if work.task.state is not QUEUED]
        renewed = await asyncio.gather(*(self.store.renew(work.lease) for work in works))
        for work, task in zip(works, renewed, strict=True):
            if task is None and work.running is not None:
                await self._apply(work, await self.store.get(work.task.principal, work.id))

    def _tell_idle(self) -> None:
        if not self.is_busy:
            waiting, self._idle = self._idle, []
            for idle in waiting:
                if not idle.done():
                    idle.set_result(None)
