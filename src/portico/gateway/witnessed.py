"""Whoever is told of each call that is over, and how the short way of a call tells it."""

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from portico.model.context import Context
from portico.model.errors import InvalidParams
from portico.model.message import Request, Response
from portico.protocol.codec import encode
from portico.protocol.core import mcp_error_response
from portico.protocol.exact import exact
from portico.protocol.methods import TABLE, Kind
from portico.upstream.express import Express

if TYPE_CHECKING:
    from portico.chain.mirror import MirrorEndpoint

Witness = Callable[[Request, Context, str, str, Response | None, float], None]
"""Told of every call that is over: the request, who asked, server, tool or other name, the answer
(None if it was cancelled) and when it began."""


Reply = Callable[[Response], None]
Shown = Callable[[Request, Context, str, Response], Response]
"""Makes of a server's answer what the client gets."""


class Passing:
    """A call on its short way, of which the witness hears, however it ends."""

    __slots__ = (
        "_began",
        "_context",
        "_name",
        "_reply",
        "_request",
        "_server",
        "_shown",
        "_witness",
        "express",
    )

    def __init__(
        self,
        witness: Witness,
        request: Request,
        context: Context,
        server: str,
        name: str,
        reply: Reply,
        shown: Shown | None = None,
    ) -> None:
        self._began = perf_counter()
        self._witness = witness
        self._request = request
        self._context = context
        self._server = server
        self._name = name
        self._reply: Reply | None = reply
        self._shown = shown
        self.express: Express | None = None
        """The call at its server, once it has begun."""

    def answered(self, response: Response) -> None:
        """The server's answer has come."""
        reply = self._reply
        assert reply is not None
        self._over(response)
        shown = self._shown
        if shown is not None:
            response = shown(self._request, self._context, self._server, response)
        reply(response)

    def cancel(self) -> None:
        """Nobody wants the answer any more."""
        if self.express is not None:
            self.express.cancel()
        if self._reply is not None:
            self._over(None)

    def _over(self, response: Response | None) -> None:
        self._reply = None
        self._witness(self._request, self._context, self._server, self._name, response, self._began)


class WitnessedMirror:
    """The doorway to one server alone; its calls are told of like those of the main one."""

    def __init__(self, inner: "MirrorEndpoint", server: str, witness: Witness) -> None:
        self.inner = inner
        self._server = server
        self._witness = witness

    def quick(self, request: Request, context: Context) -> Response | None:
        """The answer if it needs no waiting: no call does that."""
        return self.inner.quick(request, context)

    def express(self, request: Request, context: Context, reply: Reply) -> Passing | None:
        """Begin a call that only needs to be passed on; None if it has to be handled."""
        if _made_exact(request) is not None:
            return None  # it is refused the long way
        name = request.name or request.uri
        passing = Passing(self._witness, request, context, self._server, name, reply)
        passing.express = self.inner.express(request, context, passing.answered)
        return None if passing.express is None else passing

    async def handle(self, request: Request, context: Context) -> Response:
        """The answer; whatever goes wrong is the answer to this request only."""
        began = perf_counter()
        response = _made_exact(request)
        meaning = TABLE.get((request.method, request.version))
        if meaning is None or meaning.kind is not Kind.CALL:
            return response or await self.inner.handle(request, context)
        try:
            response = response or await self.inner.handle(request, context)
        finally:
            name = request.name or request.uri
            self._witness(request, context, self._server, name, response, began)
        return response


_ABOUT_ONE = frozenset(
    {
        *("tools/call", "prompts/get", "completion/complete"),
        *("resources/read", "resources/subscribe", "resources/unsubscribe"),
    }
)
"""Methods whose params name what they are about."""


def _made_exact(request: Request) -> Response | None:
    """Leave in the params what every server reads alike; the refusal if that cannot be."""
    if request.method in _ABOUT_ONE and request.params:
        try:
            request.params = encode(exact(request.params))
        except InvalidParams as error:
            return mcp_error_response(request.id, error)
    return None
