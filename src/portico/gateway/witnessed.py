"""Whoever is told of each call that is over, and how the short way of a call tells it."""

from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING

from portico.model.context import Context
from portico.model.errors import InvalidParams
from portico.model.message import Request, Response
from portico.model.methods import Kind
from portico.model.types import Answer
from portico.protocol.codec import encode, mcp_error_response
from portico.protocol.exact import exact
from portico.state.pending import Onward, Pending, observed

if TYPE_CHECKING:
    from portico.chain.mirror import MirrorEndpoint

_CALL = Kind.CALL  # members of an enum are slow to look up

Witness = Callable[[Request, Context, str, str, Response | None, float], None]
"""Told of every call that is over: the request, who asked, server, tool or other name, the answer
(None if it was cancelled) and when it began."""


Shown = Callable[[Request, Context, str, Response], Response]
"""Makes of a server's answer what the client gets."""


class Passing(Onward):
    """A call on its short way, of which the witness hears, however it ends."""

    __slots__ = (
        "_began",
        "_context",
        "_is_over",
        "_name",
        "_request",
        "_server",
        "_shown",
        "_witness",
    )

    def __init__(
        self,
        inner: Pending,
        witness: Witness,
        request: Request,
        context: Context,
        server: str,
        name: str,
        shown: Shown | None = None,
    ) -> None:
        super().__init__(inner)
        self._began = perf_counter()
        self._witness = witness
        self._request = request
        self._context = context
        self._server = server
        self._name = name
        self._shown = shown
        self._is_over = False

    def cancel(self) -> None:
        """Drop the answer."""
        super().cancel()
        if not self._is_over:
            self._over(None)

    def _arrived(self, response: Response) -> None:
        self._over(response)
        shown = self._shown
        if shown is not None:
            response = shown(self._request, self._context, self._server, response)
        super()._arrived(response)

    def _over(self, response: Response | None) -> None:
        self._is_over = True
        self._witness(self._request, self._context, self._server, self._name, response, self._began)


class WitnessedMirror:
    """The doorway to one server alone; its calls are told of like those of the main one."""

    def __init__(self, inner: "MirrorEndpoint", server: str, witness: Witness) -> None:
        self.inner = inner
        self._server = server
        self._witness = witness

    def handle(self, request: Request, context: Context) -> Answer:
        """The answer; whatever goes wrong is the answer to this request only."""
        meaning = request.meaning
        if meaning is None or meaning.kind is not _CALL:
            return _made_exact(request) or self.inner.handle(request, context)
        began = perf_counter()

        def over(response: Response | None) -> None:
            name = request.name or request.uri
            self._witness(request, context, self._server, name, response, began)

        return observed(_made_exact(request) or self.inner.handle(request, context), over)


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
