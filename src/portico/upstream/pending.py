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


class Expected(ABC):
    """A request that waits for its answer."""

    __slots__ = ("_begun", "deadline", "is_done", "method", "progress", "timeout")

    def __init__(self, method: str, timeout: float, progress: Progress | None = None) -> None:
        self.method = method
        self.timeout = timeout
        self.progress = progress
        self.is_done = False

    @abstractmethod
    def finished(self, outcome: bytes | Exception) -> None:
        """Take the raw result, or why there is none: ServerError or TargetError."""

    def begins(self, now: float) -> float:
        """It is on its way; until when it may take."""
        self._begun = now
        self.deadline = now + self.timeout
        return self.deadline

    def settle(self, outcome: bytes | Exception) -> None:
        """Tell whoever waits; the first outcome stands."""
        if self.is_done:
            return
        self.is_done = True
        try:
            self.finished(outcome)
        except Exception as error:  # noqa: BLE001  (who fails to hear it must not cost the others)
            context = {"message": f"the answer to {self.method} was lost", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    def moves(self, params: bytes, now: float) -> None:
        """It makes progress: give it more time, and say so."""
        self.extend(now)
        if self.progress is not None:
            self.progress(params)

    def extend(self, now: float, our_turn: bool = False) -> None:
        """Count its time anew; while it is our turn to answer, it has all there is."""
        latest = self._begun + max(self.timeout, MAX_CALL_S)
        self.deadline = latest if our_turn else min(now + self.timeout, latest)


class Asked(Expected):
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
