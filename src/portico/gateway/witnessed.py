"""Whoever is told of each call that is over, and how the short way of a call tells it."""

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from portico.model.context import Context
from portico.model.message import Request, Response
from portico.protocol.methods import TABLE, Kind
from portico.upstream.express import Express

if TYPE_CHECKING:
    from portico.chain.mirror import MirrorEndpoint

Witness = Callable[[Request, Context, str, str, Response | None, float], None]
"""Told of every call that is over: the request, who asked, server, tool or other name, the answer
(None if it was cancelled) and when it began."""


class Passing:
    """A call on its short way, of which the witness hears also if it is cancelled."""

    __slots__ = ("_express", "_forgotten")

    def __init__(self, express: Express, forgotten: Callable[[], None]) -> None:
        self._express = express
        self._forgotten = forgotten

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        self._express.cancel()
        self._forgotten()


class WitnessedMirror:
    """The doorway to one server alone; its calls are told of like those of the main one."""

    def __init__(self, inner: "MirrorEndpoint", server: str, witness: Witness) -> None:
        self.inner = inner
        self._server = server
        self._witness = witness

    def quick(self, request: Request, context: Context) -> Response | None:
        """The answer if it needs no waiting: no call does that."""
        return self.inner.quick(request, context)

    def express(
        self, request: Request, context: Context, reply: Callable[[Response], None]
    ) -> Passing | None:
        """Begin a call that only needs to be passed on; None if it has to be handled."""
        began = perf_counter()
        is_over = False

        def answered(response: Response) -> None:
            nonlocal is_over
            is_over = True
            self._tell(request, context, response, began)
            reply(response)

        def forgotten() -> None:
            if not is_over:
                self._tell(request, context, None, began)

        express = self.inner.express(request, context, answered)
        return None if express is None else Passing(express, forgotten)

    async def handle(self, request: Request, context: Context) -> Response:
        """The answer; whatever goes wrong is the answer to this request only."""
        meaning = TABLE.get((request.method, request.version))
        if meaning is None or meaning.kind is not Kind.CALL:
            return await self.inner.handle(request, context)
        began = perf_counter()
        response: Response | None = None
        try:
            response = await self.inner.handle(request, context)
        finally:
            self._tell(request, context, response, began)
        return response

    def _tell(
        self, request: Request, context: Context, response: Response | None, began: float
    ) -> None:
        name = request.name or request.uri
        self._witness(request, context, self._server, name, response, began)
