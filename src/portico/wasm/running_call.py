"""One call of a guest, as its thread and the functions of the host see it."""

import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

_TAIL = 4096
_local = threading.local()


class RunningCall:
    """One call of a guest."""

    def __init__(self, loop: "asyncio.AbstractEventLoop", time_s: float) -> None:
        self._loop = loop
        self.deadline = time.monotonic() + time_s
        self.is_cancelled = False
        """True once its client has cancelled it, or disconnected."""
        self._tail = bytearray()

    def __enter__(self) -> "RunningCall":
        """Make this the call of the current thread."""
        _local.call = self
        return self

    def __exit__(self, *_: object) -> None:
        _local.call = None

    @property
    def left_s(self) -> float:
        """The time that is left to it."""
        return max(0.0, self.deadline - time.monotonic())

    def on_stderr(self, data: bytes) -> None:
        """Keep the end of what the guest writes to its stderr."""
        self._tail += data[-_TAIL:]
        del self._tail[:-_TAIL]

    @property
    def stderr(self) -> str:
        """The last line that the guest wrote to its stderr."""
        lines = self._tail.decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work of the host on the event loop, and wait for it; raises TimeoutError."""
        import asyncio

        done: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return done.result(self.left_s)
        except TimeoutError:
            done.cancel()
            raise


def current_call() -> RunningCall:
    """Return the call that the current thread runs."""
    call: RunningCall = _local.call
    return call
