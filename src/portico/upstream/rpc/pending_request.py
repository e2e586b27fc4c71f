"""A request that waits for its response, with its deadline."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

MAX_CALL_S = 3600.0
"""The longest duration of a request, however much progress it makes."""
MAX_TASK_S = 24 * 3600.0
"""The longest duration of a request whose call is a task, as for a task of the server's own."""
FOREVER = float("inf")
"""The timeout of a request that ends only when one side ends it."""

Progress = Callable[[bytes], None]
"""Takes the raw params of a progress notification."""
IsTask = Callable[[], bool]
"""Returns whether the call of a request is a task by now."""


class PendingRequest(ABC):
    """A request that waits for its response."""

    __slots__ = ("begun", "deadline", "is_done", "is_task", "method", "progress", "timeout")

    def __init__(
        self,
        method: str,
        timeout: float,
        progress: Progress | None = None,
        is_task: IsTask | None = None,
    ) -> None:
        self.method = method
        self.timeout = timeout
        self.progress = progress
        self.is_task = is_task
        self.is_done = False
        self.begun = self.deadline = 0.0

    @abstractmethod
    def finished(self, outcome: bytes | Exception) -> None:
        """Handle the raw result, or the ServerError or TargetError in its place."""

    def on_progress(self, params: bytes, now: float) -> None:
        """Extend the deadline, and forward the progress."""
        self.extend(now)
        if self.progress is not None:
            self.progress(params)

    def extend(self, now: float, suspended: bool = False) -> None:
        """Restart the timeout; while `suspended`, the deadline is the longest duration."""
        latest = self.begun + max(self.timeout, MAX_CALL_S)
        self.deadline = latest if suspended else min(now + self.timeout, latest)

    def is_expired(self, now: float) -> bool:
        """True once its time has passed. A call may have become a task meanwhile: then no client
        waits for it, and it has the time of a task."""
        if self.deadline > now:
            return False
        if self.is_task is None or self.timeout >= MAX_TASK_S or not self.is_task():
            return True
        self.timeout = MAX_TASK_S
        self.deadline = self.begun + MAX_TASK_S
        return self.deadline <= now


class AwaitedRequest(PendingRequest):
    """A request that a task waits for."""

    __slots__ = ("answer",)

    def __init__(
        self,
        method: str,
        timeout: float,
        progress: Progress | None,
        answer: "asyncio.Future[bytes]",
        is_task: IsTask | None = None,
    ) -> None:
        super().__init__(method, timeout, progress, is_task)
        self.answer = answer

    def finished(self, outcome: bytes | Exception) -> None:
        """Resume the task."""
        if self.answer.done():
            return
        if isinstance(outcome, bytes):
            self.answer.set_result(outcome)
        else:
            self.answer.set_exception(outcome)
            self.answer.exception()  # retrieved, since the waiter may have been cancelled
