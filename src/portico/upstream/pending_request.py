"""A request that waits for its answer, and for how long."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

MAX_CALL_S = 3600.0
"""However much progress it makes, a request takes no longer."""
FOREVER = float("inf")
"""For a request that ends when either side has had enough of it."""

Progress = Callable[[bytes], None]
"""Takes the raw params of a progress notification."""


class PendingRequest(ABC):
    """A request that waits for its answer."""

    __slots__ = ("begun", "deadline", "is_done", "method", "progress", "timeout")

    def __init__(self, method: str, timeout: float, progress: Progress | None = None) -> None:
        self.method = method
        self.timeout = timeout
        self.progress = progress
        self.is_done = False
        self.begun = self.deadline = 0.0

    @abstractmethod
    def finished(self, outcome: bytes | Exception) -> None:
        """Take the raw result, or why there is none: ServerError or TargetError."""

    def on_progress(self, params: bytes, now: float) -> None:
        """It makes progress: give it more time, and say so."""
        self.extend(now)
        if self.progress is not None:
            self.progress(params)

    def extend(self, now: float, suspended: bool = False) -> None:
        """Count its time anew; while it is our turn to answer, it has all there is."""
        latest = self.begun + max(self.timeout, MAX_CALL_S)
        self.deadline = latest if suspended else min(now + self.timeout, latest)


class AwaitedRequest(PendingRequest):
    """A request that a task waits for."""

    __slots__ = ("answer",)

    def __init__(
        self,
        method: str,
        timeout: float,
        progress: Progress | None,
        answer: "asyncio.Future[bytes]",
    ) -> None:
        super().__init__(method, timeout, progress)
        self.answer = answer

    def finished(self, outcome: bytes | Exception) -> None:
        """Let the task go on."""
        if self.answer.done():
            return
        if isinstance(outcome, bytes):
            self.answer.set_result(outcome)
        else:
            self.answer.set_exception(outcome)
            self.answer.exception()  # looked at: whoever waited may have been cancelled
