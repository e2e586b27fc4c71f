"""Reports whose message keeps the event loop busy.

A thread asks the loop for a sign of life. Messages are not tracked for it: only when the sign is
late, the thread reads from the loop's stack which message is being processed.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from types import FrameType
from typing import Self

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LOOPS = ("asyncio/base_events.py", "asyncio/runners.py")
_WAITING = "selectors.py"
_NO_END_S = 10.0
"""A stall this long is reported before it ends."""
_QUIET_S = 10.0
"""At most one line about the same server in this time; further stalls are counted."""
_MAX_TOLD = 1000


class Watchdog:
    """Watches the running loop while its block is open; a threshold of 0 watches nothing."""

    def __init__(self, threshold_s: float, tell: Callable[[str], None]) -> None:
        """`tell` logs a line; it is called on the loop, or by the thread if the loop hangs."""
        self._threshold_s = threshold_s
        self._tell = tell
        self._stopped = threading.Event()
        self._alive = threading.Event()
        self._told_at: dict[str, float] = {}
        self._untold = 0

    def __enter__(self) -> Self:
        if self._threshold_s > 0:
            self._loop = asyncio.get_running_loop()
            self._watched = threading.get_ident()
            try:
                threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
            except RuntimeError as error:  # no more threads: serve without it
                self._tell(f"the event loop is not watched: {error}")
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._alive.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._threshold_s / 2):
            self._alive.clear()
            asked = monotonic()
            if not self._on_the_loop(self._alive.set):
                return
            if self._alive.wait(self._threshold_s) or self._stopped.is_set():
                continue
            whose, doing = _processed(self._watched)
            has_ended = self._alive.wait(_NO_END_S)
            if self._stopped.is_set():
                return
            if self._is_news(whose):
                self._report(doing, monotonic() - asked, has_ended)
            else:
                self._untold += 1

    def _is_news(self, whose: str) -> bool:
        now = monotonic()
        if now - self._told_at.get(whose, -_QUIET_S) < _QUIET_S:
            return False
        if len(self._told_at) >= _MAX_TOLD:
            self._told_at.clear()
        self._told_at[whose] = now
        return True

    def _report(self, doing: str, took_s: float, has_ended: bool) -> None:
        more = f" ({self._untold} more stalls before)" if self._untold else ""
        line = f"all clients waited {took_s:.2f} s{more}: {doing}"
        self._untold = 0
        if has_ended:
            self._on_the_loop(lambda: self._tell(line))
        else:
            self._tell(f"{line}; still busy")

    def _on_the_loop(self, act: Callable[[], None]) -> bool:
        try:
            self._loop.call_soon_threadsafe(act)
        except RuntimeError:
            return False  # the loop is closed
        return True


def _processed(thread: int) -> tuple[str, str]:
    """Whose message a thread is processing, and that in words: which method, how large, where."""
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
        return "", "not by a message: the machine or another thread was busy"
    facts = [fact for fact in (method, f"{size:,} bytes" if size else "") if fact]
    about = f" ({', '.join(facts)})" if facts else ""
    if server and facts:
        return server, f"processing a message of {server}{about}, in {place}"
    if server:
        return server, f"working for {server}, in {place}"
    if method:
        return method, f"processing a client's message{about}, in {place}"
    return place, f"in {place}"


def _callback(thread: int) -> Iterator[FrameType]:
    """The frames of what the loop runs now, the innermost first; none if it waits."""
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
