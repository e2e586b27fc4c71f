"""Reports which message blocks the event loop.

A thread pings the loop. Messages are not tracked for it: only when a ping is late, the thread reads
the current message from the loop's stack. Once nothing was received for a while, the thread sleeps
until something is.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from types import FrameType
from typing import Self

_HOME = os.path.abspath(os.path.join(__file__, "../../..")) + os.sep
_LOOPS = ("asyncio/base_events.py", "asyncio/runners.py")
_WAITING = "selectors.py"
_LONG_STALL_S = 10.0
"""A stall this long is reported before it ends."""
_QUIET_S = 10.0
"""The interval between two reports about the same server; further stalls are counted."""
_MAX_REPORTED = 1000
AWAKE_S = 5.0
"""How long the thread pings the loop after something was received."""
SLEEP_S = 5.0
"""The interval between two pings after that: work that was not received may stall the loop, too."""


class Activity:
    """When this process last received something."""

    def __init__(self) -> None:
        self.is_quiet = False
        """True if a receiver has to call `note`: once for each ping."""
        self.last = 0.0
        self.sleepers: set[threading.Event] = set()

    def note(self) -> None:
        """Note that something is received, and wake the watchdogs."""
        self.is_quiet = False
        self.last = monotonic()
        for sleeper in tuple(self.sleepers):
            sleeper.set()


ACTIVITY = Activity()
"""The activity of this process; each receiver of bytes checks whether it is quiet."""


class Watchdog:
    """Watches the running loop within a `with` block; a threshold of 0 disables it."""

    def __init__(self, threshold_s: float, report: Callable[[str], None]) -> None:
        """`report` is called on the loop, or by the thread if the loop hangs."""
        self._threshold_s = threshold_s
        self._report = report
        self._stopped = threading.Event()
        self._alive = threading.Event()
        self._woken = threading.Event()
        self._reported_at: dict[str, float] = {}
        self._unreported = 0

    def __enter__(self) -> Self:
        if self._threshold_s > 0:
            self._loop = asyncio.get_running_loop()
            self._watched = threading.get_ident()
            ACTIVITY.note()
            ACTIVITY.sleepers.add(self._woken)
            try:
                threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
            except RuntimeError as error:  # no more threads: serve without it
                self._report(f"cannot start the event loop watchdog: {error}")
        return self

    def __exit__(self, *_: object) -> None:
        ACTIVITY.sleepers.discard(self._woken)
        for event in (self._stopped, self._alive, self._woken):
            event.set()

    def _pause(self) -> None:
        """Wait for the time of the next ping."""
        self._woken.clear()
        ACTIVITY.is_quiet = True
        if monotonic() - ACTIVITY.last < AWAKE_S:
            self._stopped.wait(self._threshold_s / 2)
        elif not self._stopped.is_set():
            self._woken.wait(SLEEP_S)

    def _watch(self) -> None:
        while True:
            self._pause()
            if self._stopped.is_set():
                return
            self._alive.clear()
            pinged = monotonic()
            if not self._on_the_loop(self._alive.set):
                return
            if self._alive.wait(self._threshold_s) or self._stopped.is_set():
                continue
            whose, doing = _current_work(self._watched)
            has_ended = self._alive.wait(_LONG_STALL_S)
            if self._stopped.is_set():
                return
            if self._is_due(whose):
                self._report_stall(doing, monotonic() - pinged, has_ended)
            else:
                self._unreported += 1

    def _is_due(self, whose: str) -> bool:
        now = monotonic()
        if now - self._reported_at.get(whose, -_QUIET_S) < _QUIET_S:
            return False
        if len(self._reported_at) >= _MAX_REPORTED:
            self._reported_at.clear()
        self._reported_at[whose] = now
        return True

    def _report_stall(self, doing: str, took_s: float, has_ended: bool) -> None:
        more = f" (after {self._unreported} unreported stalls)" if self._unreported else ""
        line = f"all clients waited {took_s:.2f} s{more}: {doing}"
        self._unreported = 0
        if has_ended:
            self._on_the_loop(lambda: self._report(line))
        else:
            self._report(f"{line}; still busy")

    def _on_the_loop(self, act: Callable[[], None]) -> bool:
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            return False  # the loop is closed
        return True


def _current_work(thread: int) -> tuple[str, str]:
    """Return the source of a thread's current message, and its method, size and place in words."""
    place = server = method = ""
    size = 0
    for frame in _callback(thread):
        place = place or _place(frame)
        names = frame.f_locals
        owner = names.get("self")
        server = server or _text(names.get("server")) or _text(getattr(owner, "server", None))
        request = names.get("request") or owner
        method = method or _text(getattr(request, "method", None))
        message = names.get("message")
        if isinstance(message, bytes):
            size = size or len(message)
    if not place:
        return "", "no message was being processed: the machine or another thread was busy"
    facts = [fact for fact in (method, f"{size:,} bytes" if size else "") if fact]
    about = f" ({', '.join(facts)})" if facts else ""
    if server and facts:
        return server, f"processing a message from {server}{about}, in {place}"
    if server:
        return server, f"working for {server}, in {place}"
    if method:
        return method, f"processing a message from a client{about}, in {place}"
    return place, f"in {place}"


def _callback(thread: int) -> Iterator[FrameType]:
    """Yield the frames of the loop's current callback, innermost first; none while it waits."""
    frame = sys._current_frames().get(thread)
    if frame is None or frame.f_code.co_filename.endswith(_WAITING):
        return
    while frame is not None and not frame.f_code.co_filename.endswith(_LOOPS):
        yield frame
        frame = frame.f_back


def _place(frame: FrameType) -> str:
    name = frame.f_code.co_filename
    return f"{name.removeprefix(_HOME)}:{frame.f_lineno}" if name.startswith(_HOME) else ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
