"""The record of a task, and the table of its states.

    queued          stored, and waiting for a worker
    starting        leased to a worker that has not begun: it can be queued again
    running         the worker has begun
    input_required  running, with questions that have no answer yet
    completed, failed, cancelled, interrupted
                    finished: the record never changes again, but for the end of a hold

Only the holder of the lease moves a task from `starting` on, or recovery, once the lease has
expired. A finished task is resumed by a new one that links to it.
"""

import math
import os
import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from portico.core.model.defaults import KEPT_DAYS, KEPT_TASKS, TASKS_IN_PROGRESS
from portico.core.model.errors import PorticoError


class TaskState(StrEnum):
    """The state of a task."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


QUEUED, STARTING, RUNNING, INPUT_REQUIRED, COMPLETED, FAILED, CANCELLED, INTERRUPTED = TaskState
STORE_FILE = "tasks.db"
ID_PREFIX = "ptk_"
"""Every id begins with it, so that others need not be looked up."""
AGENT_PREFIX = "task:"
"""The principal of an agent begins with it; the id of its task follows."""
FINISHED = frozenset({COMPLETED, FAILED, CANCELLED, INTERRUPTED})
TRANSITIONS: Mapping[TaskState, frozenset[TaskState]] = {
    QUEUED: frozenset({STARTING, CANCELLED}),
    STARTING: frozenset({QUEUED, RUNNING}) | FINISHED,
    RUNNING: frozenset({QUEUED, INPUT_REQUIRED}) | FINISHED,
    INPUT_REQUIRED: frozenset({QUEUED, RUNNING}) | FINISHED,
    **dict.fromkeys(FINISHED, frozenset[TaskState]()),
}


def new_key() -> str:
    """Return a new idempotency key."""
    try:
        return _spare_keys.pop()
    except IndexError:  # one request to the system's generator for many keys
        drawn = os.urandom(16 * _KEYS_AT_ONCE).hex()
        _spare_keys.extend(drawn[at : at + 32] for at in range(32, len(drawn), 32))
        return drawn[:32]


_KEYS_AT_ONCE = 64
_spare_keys: list[str] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_spare_keys.clear)


def agent_principal(id: str) -> str:
    """Return the principal of the agent that works on a task."""
    return f"{AGENT_PREFIX}{id}"


class NotAccepted(PorticoError):
    """The store does not accept an operation: a limit is reached, or the state forbids it."""


def _uptime() -> float:
    """The time since the system started, with the time in which it was suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Clocks(NamedTuple):
    """The wall clock, for ages; and a steady one, for leases, that all processes share."""

    wall: Callable[[], float] = time.time
    # Time since the system started, on Linux and macOS: the same in every process.
    steady: Callable[[], float] = time.monotonic
    uptime: Callable[[], float] | None = None
    """The steady clock, if that also counts the time in which the system was suspended."""

    def offset(self) -> float:
        """The wall clock compared with the time that has passed: it changes if the clock is set."""
        return self.wall() - (self.uptime or self.steady)()


SYSTEM_CLOCKS = Clocks(uptime=_uptime)


class TaskLimits(Struct, frozen=True, kw_only=True):
    """The bounds of a task store."""

    in_progress: int = TASKS_IN_PROGRESS
    """Unfinished tasks of one principal at one place; more are refused."""
    kept: int = KEPT_TASKS
    """Finished tasks of one principal; older ones are removed."""
    max_ttl_s: float = KEPT_DAYS * 86400
    grace_s: float = 300.0
    """A finished task is kept for at least this time, however short its `ttl`."""
    inline: int = 64 * 1024
    """A larger input or result is kept in a file."""
    max_input: int = 16 << 20
    max_result: int = 256 << 20
    events: int = 100
    """Events of one task; older ones are removed."""
    text: int = 4096
    """Characters of a status message or an event; the rest is cut off."""
    questions: int = 16
    """Questions of one task whose answers its worker has not taken."""
    max_question: int = 64 * 1024
    """Bytes of a question, and of an answer."""
    starts: int = 10
    """A task that was started as often, and never finished, is not started again."""


class Lease(Struct, frozen=True):
    """The right of one worker to change a task, until another worker takes it."""

    task_id: str
    owner: str
    token: str
    seconds: float
    until: float
    """By the steady clock."""

    def is_valid(self, now: float) -> bool:
        """False once it has expired, or if it is from before a restart of the system."""
        return now < self.until <= now + self.seconds


class OpenQuestion(Struct, frozen=True):
    """A question of a task to its principal."""

    key: str
    body: bytes
    answer: bytes | None = None


class RunEvent(Struct, frozen=True):
    """Something that happened while a task ran."""

    number: int
    at: float
    text: str


class TaskRecord(Struct, frozen=True, kw_only=True):
    """A task, without its input, result and events."""

    id: str
    principal: str
    kind: str
    idempotency_key: str
    created_at: float
    updated_at: float
    ttl_s: float
    place: str = ""
    """The server or agent that does the work, with the scope after an `@`: limits hold for
    each, so that the tasks of one do not keep out those of others."""
    state: TaskState = QUEUED
    message: str = ""
    resumes: str = ""
    """The id of the task that this one resumes."""
    follows: str = ""
    """The id of the finished task whose work this one continues."""
    note: str = ""
    """Data with which its runner continues after a crash, such as the id of a session."""
    starts: int = 0
    is_repeatable: bool = False
    """True if another worker may take it over after it has begun."""
    is_cancel_requested: bool = False
    questions: tuple[OpenQuestion, ...] = ()
    """Those whose answers the worker has not taken yet."""
    usage: dict[str, float] = {}
    is_error: bool = False
    """True if it completed with the result of a tool that failed."""
    is_held: bool = False
    """True while the user has not collected more than its result, such as changed files: it does
    not expire."""
    finished_at: float | None = None
    lease: Lease | None = None

    @property
    def is_finished(self) -> bool:
        """True if it never changes again."""
        return self.state in FINISHED

    @property
    def parent(self) -> str:
        """The id of the task whose agent started this one; empty if no agent did."""
        is_nested = self.principal.startswith(AGENT_PREFIX)
        return self.principal.removeprefix(AGENT_PREFIX) if is_nested else ""

    @property
    def word(self) -> str:
        """Its state in the one word that people and models read: a tool that failed is a failure,
        too."""
        return str(FAILED if self.is_error else self.state)

    @property
    def is_resumable(self) -> bool:
        """True if it has ended without success."""
        return self.is_finished and self.word != COMPLETED

    @property
    def pending(self) -> tuple[OpenQuestion, ...]:
        """The questions without an answer."""
        return tuple(question for question in self.questions if question.answer is None)

    def expires_at(self, limits: TaskLimits) -> float:
        """The wall-clock time from which it does not exist any more; never while unfinished or
        held."""
        if self.finished_at is None or self.is_held:
            return math.inf
        return max(self.created_at + self.ttl_s, self.finished_at + limits.grace_s)

    def moved(self, state: TaskState, now: float) -> "TaskRecord":
        """Return the task in another state; the table must allow it."""
        if state not in TRANSITIONS[self.state]:
            raise NotAccepted(f"the task is {self.state}: it cannot become {state}")
        return replace(self, state=state, updated_at=max(self.updated_at, now))

    def queued(self, now: float) -> "TaskRecord":
        """Return the task as it waits for its next worker."""
        return replace(self.moved(QUEUED, now), lease=None, questions=())

    def finished(
        self,
        state: TaskState,
        now: float,
        message: str,
        usage: Mapping[str, float],
        is_error: bool = False,
    ) -> "TaskRecord":
        """Return the task in its last state."""
        moved = self.moved(state, now)
        return replace(
            moved,
            message=message,
            usage=dict(usage),
            is_error=is_error,
            finished_at=moved.updated_at,
            lease=None,
            questions=(),
        )

    def leased(self, owner: str, token: str, seconds: float, steady: float) -> "TaskRecord":
        """Return the task with a new lease."""
        return replace(
            self,
            lease=Lease(self.id, owner, token, seconds, steady + seconds),
            starts=self.starts + 1,
        )

    def recovered(self, now: float, limits: TaskLimits) -> "TaskRecord":
        """Return the task after the loss of its worker."""
        if self.is_cancel_requested:
            return self.finished(CANCELLED, now, "cancelled", self.usage)
        if (self.state is STARTING or self.is_repeatable) and self.starts < limits.starts:
            return self.queued(now)
        reason = "interrupted: the process that ran the task ended before the task did"
        return self.finished(INTERRUPTED, now, reason, self.usage)
