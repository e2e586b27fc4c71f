"""The gateway's log: a line a call, a line for each that a server writes to stderr."""

from collections.abc import Callable

from portico.model.context import Context
from portico.model.message import Request, Response


class Journal:
    """Where it is written."""

    def called(
        self,
        request: Request,
        context: Context,
        server: str,
        name: str,
        response: Response | None,
        took_s: float,
    ) -> None:
        """A call is over."""

    def heard(self, server: str, line: str) -> None:
        """A server wrote to stderr."""

    def event(self, words: str) -> None:
        """Something happened to the gateway."""

    def close(self) -> None:
        """Write what is left."""


def open_journal(path: str | None, report: Callable[[str], None]) -> Journal:
    """The journal at this path; None for the usual place."""
    return Journal()
