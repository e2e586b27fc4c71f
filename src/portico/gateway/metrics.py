"""Counts what the gateway does, and says so in Prometheus' words."""

from portico.model.message import Request, Response


class Metrics:
    """Counters of one gateway."""

    def called(
        self, request: Request, server: str, name: str, response: Response | None, took_s: float
    ) -> None:
        """A call is over; no response if it was cancelled."""
