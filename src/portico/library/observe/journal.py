"""The log of a gateway or of `wrap`: a line for each call and for each line of a server's stderr.

A call only adds a note in memory. Notes are written as lines in batches, a moment later.
"""

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from portico.core.config.paths import log_file
from portico.core.model.context import Context
from portico.core.model.message import Meta, Request, Response
from portico.core.model.session import Session
from portico.core.model.types import Link
from portico.core.state.files import make_private
from portico.library.observe import call_redaction
from portico.library.observe.log_file import append_bounded, check_writable
from portico.library.observe.observing import observing, outcome

OFF = "off"
MAX_SIZE = 10_000_000
"""The size at which a gateway's log is rotated."""
FLUSH_INTERVAL_S = 0.5
RETRY_DELAY_S = 5.0
"""The delay after a failed write."""
_BATCH = 250
"""Notes written at once, which delays calls by a few milliseconds."""
_NEXT_BATCH_DELAY_S = 0.02
MAX_NOTES = 5_000
_MAX_PARAMS = 16 * 1024
_MAX_BYTES = 8 * 1024 * 1024
_MAX_TEXT = 2_000
_CLOSE_S = 0.5


class CallNote(Struct, gc=False):
    """A finished call that waits to be counted and written."""

    at: float
    method: str
    params: bytes
    size: int
    meta: Meta
    session: Session | None
    server: str
    name: str
    outcome: str
    took_s: float
    task: str = ""
    """The task that the call is, if it is one."""
    is_counted: bool = True
    """False for a call that was stored: it is counted when it is made."""


class _CallLine(Struct, kw_only=True, omit_defaults=True):
    """A call in the log of `wrap`."""

    time: str
    client: str
    server: str
    method: str
    name: str
    outcome: str
    ms: float
    arguments: str
    task: str = ""


class _GatewayCallLine(_CallLine, tag_field="kind", tag="call"):
    name: str = field(name="tool")


class _StderrLine(Struct, tag_field="kind", tag="stderr"):
    time: str
    server: str
    text: str


class _EventLine(Struct, tag_field="kind", tag="event"):
    time: str
    text: str


class Journal:
    """The writer of one log file; without a path it only counts calls."""

    def __init__(
        self,
        path: str | None,
        report: Callable[[str], None],
        *,
        folder: str | None = None,
        count: Callable[[CallNote], None] = lambda call: None,
        call_line: type[_CallLine] = _GatewayCallLine,
        max_size: int = MAX_SIZE,
    ) -> None:
        """`report` is called once if the file cannot be written; `folder` is created if missing;
        `count` receives every call; a file of `max_size` bytes is rotated."""
        self._path = path
        self._call_line = call_line
        self._max_size = max_size
        self._count = count
        self._uncounted: list[CallNote] = []
        self._report = report
        self._folder = folder
        self._notes: list[CallNote | _StderrLine | _EventLine] = []
        self._bytes = 0
        self._dropped = 0
        self._failed = False
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    def record_call(
        self,
        request: Request,
        context: Context,
        server: str,
        name: str,
        response: Response | None,
        took_s: float,
    ) -> None:
        """Add a finished call."""
        params = request.params
        size = len(params)
        call = CallNote(
            time.time(),
            request.method,
            params if size <= _MAX_PARAMS else b"",
            size,
            request.meta,
            context.session,
            server,
            name,
            outcome(request, response),
            took_s,
        )
        task_control = context.task_control
        if task_control is not None:
            call.task = task_control.run_of or (
                "" if task_control.task is None else task_control.task.id
            )
            call.is_counted = not task_control.is_submission
        self._uncounted.append(call)
        if self._timer is None:
            self._arm(FLUSH_INTERVAL_S)
        elif len(self._uncounted) >= _BATCH:
            self.count()

    def link(self, server: str) -> Link:
        """Return a link that records the calls of one server."""

        def over(
            request: Request, context: Context, response: Response | None, took_s: float
        ) -> None:
            self.record_call(
                request, context, server, request.uri or request.name, response, took_s
            )

        return observing(over)

    def count(self) -> None:
        """Count the new calls and queue them for writing."""
        calls, self._uncounted = self._uncounted, []
        for call in calls:
            if call.is_counted:
                self._count(call)
            if self._path is not None:
                self._note(call, len(call.params))

    def record_stderr(self, server: str, line: str) -> None:
        """Add a line of a server's stderr; safe in any thread."""
        if self._path is not None:
            self._post(_StderrLine(call_redaction.timestamp(time.time()), server, line[:_MAX_TEXT]))

    def event(self, words: str) -> None:
        """Add an event of the gateway; safe in any thread."""
        if self._path is not None:
            self._post(_EventLine(call_redaction.timestamp(time.time()), words[:_MAX_TEXT]))

    def close(self) -> None:
        """Write the remaining notes."""
        self.count()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        until = time.monotonic() + _CLOSE_S
        while self._notes and time.monotonic() < until:
            if not self.write():
                if self._failed:
                    return
                time.sleep(0.01)  # another process holds the lock for a moment

    def _post(self, note: _StderrLine | _EventLine) -> None:
        """Add a note in the loop's thread, to which the notes and their timer belong."""
        if threading.get_ident() == self._thread:
            self._add(note)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the log with it
            self._loop.call_soon_threadsafe(self._add, note)

    def _add(self, note: _StderrLine | _EventLine) -> None:
        self.count()  # the calls before it
        self._note(note)

    def _note(self, note: CallNote | _StderrLine | _EventLine, size: int = 0) -> None:
        notes = self._notes
        if len(notes) >= MAX_NOTES or self._bytes > _MAX_BYTES:
            self._dropped += 1
            return
        notes.append(note)
        self._bytes += size
        if self._timer is None:
            self._arm(FLUSH_INTERVAL_S)

    def _arm(self, after_s: float) -> None:
        self._timer = self._loop.call_later(after_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.count()
        written = not self._notes or self.write()
        if self._notes and self._timer is None:
            self._arm(
                _NEXT_BATCH_DELAY_S
                if written
                else RETRY_DELAY_S
                if self._failed
                else FLUSH_INTERVAL_S
            )

    def write(self) -> bool:
        """Write the oldest notes; returns False if nothing was written."""
        assert self._path is not None
        batch = self._notes[:_BATCH]
        lines = [self._line(note) for note in batch]
        lost = self._dropped
        if lost:
            words = f"{lost} lines dropped: the queue was full, or the log could not be written"
            lines.append(_encoded(_EventLine(call_redaction.timestamp(time.time()), words)))
        try:
            written = self._append(self._path, lines)
        except BlockingIOError:
            return False
        except OSError as error:
            if not self._failed:
                why = error.strerror or str(error)
                self._report(f"cannot write the log {self._path}: {why}; calls continue")
            self._failed = True
            return False
        self._failed = False
        if written == len(lines):
            self._dropped -= lost
        del self._notes[: min(written, len(batch))]
        self._bytes -= sum(
            len(note.params) for note in batch[:written] if isinstance(note, CallNote)
        )
        return True

    def _append(self, path: str, lines: Sequence[bytes]) -> int:
        if self._folder is not None:
            make_private(self._folder)
        return append_bounded(path, lines, self._max_size)

    def _line(self, note: CallNote | _StderrLine | _EventLine) -> bytes:
        return _encoded(_format_call(note, self._call_line) if isinstance(note, CallNote) else note)


def open_journal(
    path: str | None,
    report: Callable[[str], None],
    count: Callable[[CallNote], None] = lambda call: None,
) -> Journal:
    """Open the log at this path; None is the default path, and `off` writes no log."""
    if path is not None:
        return Journal(None if path == OFF else path, report, count=count)
    path = log_file()
    return Journal(path, report, folder=os.path.dirname(path), count=count)


def open_call_log(path: str, report: Callable[[str], None]) -> Journal:
    """Open the log of `wrap`, which is never rotated; raises OSError."""
    check_writable(path)
    return Journal(path, report, call_line=_CallLine, max_size=sys.maxsize)


def _format_call(call: CallNote, line: type[_CallLine]) -> _CallLine:
    if call.size != len(call.params):
        shape = f"{call.size} bytes"
    else:
        shape = call_redaction.argument_shape(call.params)
    return line(
        time=call_redaction.timestamp(call.at),
        client=call_redaction.client_name(call.meta, call.session),
        server=call.server,
        method=call.method,
        name=call_redaction.redact_uri(call.name)[: call_redaction.MAX_WORD],
        outcome=call.outcome,
        ms=int(call.took_s * 1e4 + 0.5) / 10,
        arguments=shape,
        task=call.task,
    )


def _encoded(line: Any) -> bytes:
    try:
        return msgspec.json.encode(line) + b"\n"
    except UnicodeEncodeError:  # a lone surrogate
        whole = {
            key: _replace_surrogates(value) for key, value in msgspec.structs.asdict(line).items()
        }
        return msgspec.json.encode(type(line)(**whole)) + b"\n"


def _replace_surrogates(value: Any) -> Any:
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
