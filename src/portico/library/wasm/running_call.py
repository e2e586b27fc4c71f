"""One call of a guest, as its thread and the functions of the host see it."""

import re
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import asyncio

    from portico.library.wasm.call_client import CallClient

T = TypeVar("T")

Outside = Callable[["RunningCall", Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]
CANCELLED_S = 1.0
"""How long a guest may still compute once its call was cancelled, to end by itself."""
GRACE_S = 1.0
"""How long after its deadline a guest may take to be interrupted, before it is stuck."""
_TAIL = 4096
_NOTES = ("note: ", "thread ", "stack backtrace")
"""How lines begin that a compiler's runtime adds to the reason."""
_EXCEPTION = r"[\w.]*(Error|Exception|Interrupt|Warning)\b"
_local = threading.local()


class CallEnded(Exception):
    """The client has left while the guest waited."""


class RunningCall:
    """One call of a guest."""

    def __init__(
        self,
        loop: "asyncio.AbstractEventLoop",
        time_s: float,
        client: "CallClient | None" = None,
        outside: "Outside | None" = None,
    ) -> None:
        """`client` is the client of the call; `outside` runs work whose time does not count."""
        self._loop = loop
        self.deadline = time.monotonic() + time_s
        self.client = client
        self._outside = outside
        self._waiting: Future[Any] | None = None
        self.outside_since: float | None = None
        """Since when the guest waits for something whose time does not count."""
        self.has_place = True
        """True while it has one of the places of the component."""
        self.ended_by: BaseException | None = None
        """Why the guest was ended, such as by a question that ends the round."""
        self.handled: Any = None
        """The `HandledRequest` of middleware with typed interfaces."""
        self.results: list[Any] = []
        """The values behind resources of the host."""
        self._cancelled_at: float | None = None
        self._tail = bytearray()

    def __enter__(self) -> "RunningCall":
        """Make this the call of the current thread."""
        _local.call = self
        return self

    def __exit__(self, *_: object) -> None:
        _local.call = None

    @property
    def is_cancelled(self) -> bool:
        """True once its client has cancelled it, or disconnected."""
        return self._cancelled_at is not None

    @property
    def is_over(self) -> bool:
        """True once its guest must not compute any longer."""
        at = self._cancelled_at
        return not self.left_s or (at is not None and time.monotonic() > at + CANCELLED_S)

    @property
    def left_s(self) -> float:
        """The time that is left to it."""
        return max(0.0, self.deadline - (self.outside_since or time.monotonic()))

    @property
    def until_stuck_s(self) -> float:
        """The time until it is stuck, unless its guest waits outside; negative afterwards."""
        return self.deadline + GRACE_S - (self.outside_since or time.monotonic())

    def on_stderr(self, data: bytes) -> None:
        """Keep the end of what the guest writes to its stderr."""
        self._tail += data[-_TAIL:]
        del self._tail[:-_TAIL]

    @property
    def stderr(self) -> str:
        """The reason that the guest wrote to its stderr: its last exception, or its last line."""
        text = self._tail.decode(errors="replace").strip()
        lines = [line.strip() for line in text.splitlines() if not line.startswith(_NOTES)]
        named = [line for line in lines if re.match(_EXCEPTION, line)]
        return (named or lines or [""])[-1]

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work of the host on the event loop, and wait for it; raises TimeoutError and
        CallEnded."""
        import asyncio

        done: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return self._result(done, self.left_s)
        except TimeoutError:
            done.cancel()
            raise

    def wait_outside(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something for the guest whose time does not count; raises CallEnded."""
        import asyncio

        assert self._outside is not None
        done: Future[T] = asyncio.run_coroutine_threadsafe(self._outside(self, work), self._loop)
        return self._result(done)

    def _result(self, done: Future[T], within_s: float | None = None) -> T:
        self._waiting = done
        try:
            if self.is_cancelled:
                done.cancel()
            return done.result(within_s)
        except CancelledError:
            raise CallEnded from None
        finally:
            self._waiting = None

    def cancel(self) -> None:
        """Note that the client has cancelled it, and end what it waits for."""
        self._cancelled_at = time.monotonic()
        if self._waiting is not None:
            self._waiting.cancel()


def current_call() -> RunningCall:
    """Return the call that the current thread runs."""
    call: RunningCall = _local.call
    return call


def call_now() -> RunningCall | None:
    """Return the call that the current thread runs, if it runs one."""
    return getattr(_local, "call", None)
