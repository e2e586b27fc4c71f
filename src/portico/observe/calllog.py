"""A line a call, in a file: who called what, how it went, and never with which values."""

import time
from collections.abc import Callable

import msgspec
from msgspec import Struct

from portico.model.context import Context
from portico.model.message import Request, Response
from portico.observe import callwords
from portico.observe.link import outcome
from portico.observe.logfile import append


class _Line(Struct):
    time: str
    client: str
    server: str
    method: str
    name: str
    outcome: str
    ms: float
    arguments: str


class CallLog:
    """Writes a line for each call that is over."""

    def __init__(self, path: str, server: str, report: Callable[[str], None]) -> None:
        """`report` is told, once, that the file cannot be written; calls go on. Raises OSError if
        it cannot be opened now."""
        self._path = path
        self._server = server
        self._report = report
        self._failed = False
        append(path, b"")

    def over(
        self, request: Request, context: Context, response: Response | None, took_s: float
    ) -> None:
        """Write the line of a call."""
        name = callwords.plain(request.uri) if request.uri else request.name
        line = _Line(
            time=callwords.stamp(time.time()),
            client=callwords.client(request.meta, context.session),
            server=self._server,
            method=request.method,
            name=name[: callwords.MOST_WORD],
            outcome=outcome(request, response),
            ms=round(took_s * 1e3, 1),
            arguments=callwords.arguments(request.params),
        )
        try:
            append(self._path, msgspec.json.encode(line) + b"\n")
            self._failed = False
        except OSError as error:
            if not self._failed:
                self._report(f"{self._path} cannot be written: {error.strerror or error}")
            self._failed = True
