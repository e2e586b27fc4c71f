"""A request that waits for its answer, and for how long."""

import asyncio
from collections.abc import Callable

MAX_CALL_S = 3600.0
"""However much progress it makes, a request takes no longer."""
FOREVER = float("inf")
"""For a request that ends when either side has had enough of it."""

Progress = Callable[[bytes], None]
"""Takes the raw params of a progress notification."""
Finished = Callable[[bytes | Exception], None]
"""Takes the raw result of a request, or why there is none: ServerError or TargetError."""


class Pending:
    """A request that waits for its answer."""

    __slots__ = ("_latest", "_progress", "deadline", "finished", "is_done", "method", "timeout")

    def __init__(
        self, method: str, timeout: float, now: float, finished: Finished, progress: Progress | None
    ) -> None:
        self.method = method
        self.timeout = timeout
        self.deadline = now + timeout
        self.finished = finished
        self.is_done = False
        self._latest = now + max(timeout, MAX_CALL_S)
        self._progress = progress

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
        if self._progress is not None:
            self._progress(params)

    def extend(self, now: float, our_turn: bool = False) -> None:
        """Count its time anew; while it is our turn to answer, it has all there is."""
        self.deadline = self._latest if our_turn else min(now + self.timeout, self._latest)
