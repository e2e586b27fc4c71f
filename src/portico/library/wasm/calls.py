"""Runs the calls of one component in threads: few at a time, each with its deadline.

A guest that computes too long is interrupted by the epoch. A guest that is stuck in a function of
WASI cannot be: its thread is lost, and with it the worker (`on_stuck`).
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from wasmtime import WasmtimeError

from portico.library.wasm.failures import GuestFailure, failure_of, keeps_borrowed
from portico.library.wasm.guest import Capability
from portico.library.wasm.loaded import LoadedComponent
from portico.library.wasm.process_limits import trim_memory
from portico.library.wasm.running_call import GRACE_S, RunningCall
from portico.library.wasm.settings import Instance

if TYPE_CHECKING:
    from portico.library.wasm.call_client import CallClient
    from portico.library.wasm.exports import EnteredInstance

T = TypeVar("T")
_MAX_OUTSIDE = 256
_TICK_S = 0.05
"""How often the epoch of the engine advances while guests run."""
_IDLE_S = 1.0
"""How long after the last call unused memory goes back to the system."""
Result = Mapping[str, object] | None
MAX_SESSIONS = 64
"""The sessions whose instances are kept; the one used least recently loses its instance first."""


class KeptInstance:
    """One instance, which one call at a time may enter."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.entered: EnteredInstance | None = None
        """None before its first call, and after a trap."""
        self.call: RunningCall | None = None
        """The call that entered it last."""

    def on_stderr(self, data: bytes) -> None:
        """Keep what the guest writes to its stderr with its call; threads of wasmtime call this."""
        if self.call is not None:
            self.call.on_stderr(data)


class KeptInstances:
    """The instances of one component."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._kept: dict[str, KeptInstance] = {}

    def of(self, session: str) -> KeptInstance | None:
        """Return the instance for a call; None if it gets a fresh one.

        Without a session nothing is kept: the next call without one may be another client's.
        """
        if self._instance == "call" or (self._instance == "session" and not session):
            return None
        key = session if self._instance == "session" else ""
        found = self._kept.pop(key) if key in self._kept else KeptInstance()
        self._kept[key] = found
        if len(self._kept) > MAX_SESSIONS:
            idle = (key for key, one in self._kept.items() if not one.turn.locked())
            del self._kept[next(idle)]
        return found


def is_list(method: str) -> bool:
    """True for a method that changes nothing, and may be called again."""
    return method.endswith("/list")


def _unwatched() -> None:
    """Do nothing when a call starts."""


class Calls:
    """The calls of one component."""

    def __init__(self, loaded: LoadedComponent, on_stuck: Callable[[GuestFailure], object]) -> None:
        """`on_stuck` is called when a guest cannot be interrupted."""
        self._loaded = loaded
        self._on_stuck = on_stuck
        limits = loaded.settings.limits
        self._time_s = limits.time_s
        self._places = asyncio.Semaphore(limits.concurrency)
        # Guests that wait for something outside need a thread, but no place.
        threads = limits.concurrency + _MAX_OUTSIDE
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="guest")
        self._clock = _EpochClock(loaded)
        self._kept = KeptInstances(loaded.settings.instance)
        self._running: set[asyncio.Future[Result]] = set()
        self._abandoned: asyncio.Future[GuestFailure] = asyncio.Future()
        self._is_closed = False
        self._timer: asyncio.TimerHandle | None = None

    async def answer(
        self,
        capability: Capability,
        method: str,
        params: Mapping[str, object],
        on_start: Callable[[], object] = _unwatched,
        client: "CallClient | None" = None,
        session: str = "",
    ) -> Result:
        """Return the guest's answer; None: not its own. Raises GuestError and GuestFailure.

        `on_start` is called when the guest is about to be entered; `client` and `session`, an id,
        are those of the call.
        """
        kept = self._kept.of(session)
        run = partial(self._run, kept, capability, method, params)
        async with nullcontext() if kept is None else kept.turn:
            return await self._answer(run, on_start, client)

    async def _answer(
        self,
        run: Callable[[RunningCall], Result],
        on_start: Callable[[], object],
        client: "CallClient | None",
    ) -> Result:
        await self._places.acquire()
        loop = asyncio.get_running_loop()
        call = RunningCall(loop, self._time_s, client, self._outside)
        try:
            if self._is_closed:  # it waits for the next worker, which gets it unstarted
                await asyncio.Future()
            on_start()
            self._clock.begin()
            work = loop.run_in_executor(self._threads, run, call)
            work.add_done_callback(self._ended)
            self._running.add(work)
            try:
                return await self._outcome(work, call)
            except asyncio.CancelledError:
                call.cancel()
                await self._let_end(work, call)
                raise
        finally:
            if call.has_place:
                self._places.release()

    async def _outside(self, call: RunningCall, work: Coroutine[Any, Any, T]) -> T:
        """Do something for a guest that does not compute meanwhile: neither its time nor its place
        counts, so that a slow server behind a middleware delays no other request."""
        call.outside_since = time.monotonic()
        call.has_place = False
        self._places.release()
        try:
            return await work
        finally:
            if not call.is_cancelled:
                await self._places.acquire()
                call.has_place = True
            call.deadline += time.monotonic() - call.outside_since
            call.outside_since = None

    async def _outcome(self, work: "asyncio.Future[Result]", call: RunningCall) -> Result:
        ends: set[asyncio.Future[Any]] = {work, self._abandoned}
        done: set[asyncio.Future[Any]] = set()
        while not done:
            left = call.until_stuck_s
            if left <= 0 and call.outside_since is None:
                break
            done, _ = await asyncio.wait(
                ends, timeout=max(left, _TICK_S), return_when=asyncio.FIRST_COMPLETED
            )
        if work in done:
            return work.result()
        if self._abandoned in done:
            raise self._abandoned.result()
        self._running.discard(work)
        failure = GuestFailure.stuck(self._time_s)
        self._on_stuck(failure)
        raise failure

    async def _let_end(self, work: "asyncio.Future[Result]", call: RunningCall) -> None:
        """Keep the place of a cancelled call until its guest has ended."""
        if not await _ended_within(work, call.left_s + GRACE_S):
            self._running.discard(work)
            self._on_stuck(GuestFailure.stuck(self._time_s))

    def _ended(self, work: "asyncio.Future[Result]") -> None:
        self._running.discard(work)
        self._clock.end()
        if not self._running:
            self._trim_when_idle()
        if not work.cancelled():
            work.exception()  # otherwise it is reported as never read

    def _trim_when_idle(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_IDLE_S, self._trim)

    def _trim(self) -> None:
        self._timer = None
        if not self._running:
            trim_memory()

    async def close(self, within_s: float, why: GuestFailure) -> None:
        """Start no more calls, and fail those that do not end in time."""
        self._is_closed = True
        if self._running:
            await asyncio.wait(set(self._running), timeout=within_s)
        if not self._abandoned.done():
            self._abandoned.set_result(why)
        await asyncio.sleep(0)

    def _run(
        self,
        kept: KeptInstance | None,
        capability: Capability,
        method: str,
        params: Mapping[str, object],
        call: RunningCall,
    ) -> Result:
        with call:
            try:
                return capability.answer(self._instance(kept, call), method, params)
            except WasmtimeError as error:
                if kept is not None:
                    kept.entered = None  # an instance that trapped cannot be entered again
                if call.ended_by is not None:
                    raise call.ended_by from None
                if keeps_borrowed(error) and self._loaded.give_no_stream() and is_list(method):
                    return self._run(kept, capability, method, params, call)
                raise failure_of(error, call, self._loaded.settings.limits) from None

    def _instance(self, kept: KeptInstance | None, call: RunningCall) -> "EnteredInstance":
        if kept is None:
            return self._loaded.enter(call.on_stderr)
        kept.call = call
        if kept.entered is None:
            kept.entered = self._loaded.enter(kept.on_stderr)
        return kept.entered


async def _ended_within(work: "asyncio.Future[Result]", seconds: float) -> bool:
    """Wait, even if this task is cancelled again; return False if the time is over first."""
    over = asyncio.get_running_loop().time() + seconds
    while not work.done():
        left = over - asyncio.get_running_loop().time()
        if left <= 0:
            return False
        try:
            await asyncio.wait({work}, timeout=left)
        except asyncio.CancelledError:
            continue
    return True


class _EpochClock:
    """Advances the epoch of an engine while guests run."""

    def __init__(self, loaded: LoadedComponent) -> None:
        self._engine = loaded.engine
        self._running = 0
        self._wake = threading.Event()
        threading.Thread(target=self._tick, daemon=True, name="epochs").start()

    def begin(self) -> None:
        self._running += 1
        self._wake.set()

    def end(self) -> None:
        self._running -= 1
        if not self._running:
            self._wake.clear()

    def _tick(self) -> None:
        while self._wake.wait():
            time.sleep(_TICK_S)
            self._engine.increment_epoch()
