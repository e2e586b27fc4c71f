"""JSON-RPC batches (2025-03-26 only): collects all responses before it delivers them."""

from collections.abc import Callable

from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.types import Endpoint
from portico.core.protocol.inbound import ClientAnswer, RefusedMessage
from portico.edge.transport.calls_in_flight import CallsInFlight

BatchMembers = list[Request | ClientAnswer | RefusedMessage]


class Batch:
    """Delivers one array of all responses, or nothing if no member expects one."""

    def __init__(self, deliver: Callable[[bytes], None], *, now: bool = False) -> None:
        """`now` runs each member up to its first wait before the next one is started."""
        self._deliver = deliver
        self._now = now
        self._answers: list[bytes] = []
        self._open = 1  # the batch itself, until all members have been started

    def serve(
        self,
        members: BatchMembers,
        endpoint: Endpoint,
        calls: CallsInFlight,
        context: Context,
    ) -> None:
        """Start every member; they finish in any order."""
        for member in members:
            if isinstance(member, ClientAnswer):
                calls.settle(member)
            elif isinstance(member, RefusedMessage):
                if not member.is_notification:
                    self._answers.append(member.response.encode())
            elif member.method == "notifications/cancelled" and not member.id:
                calls.cancel(member)
            else:
                self._start(member, endpoint, calls, context)
        self._done(None)

    def _start(
        self, request: Request, endpoint: Endpoint, calls: CallsInFlight, context: Context
    ) -> None:
        response: Response | None = None

        async def work() -> None:
            nonlocal response
            response = await calls.await_answer(endpoint.handle(request, context))

        self._open += 1
        # A cancelled member has no response, but is done.
        refused = calls.start(request, work, over=lambda: self._done(response), now=self._now)
        if refused is not None:
            self._done(refused)

    def _done(self, response: Response | None) -> None:
        if response is not None and not response.is_nothing:
            self._answers.append(response.encode())
        self._open -= 1
        if not self._open:
            self._deliver(b"[" + b",".join(self._answers) + b"]" if self._answers else b"")
