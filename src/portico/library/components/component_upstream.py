"""The upstream of a component's own process, which gets the sessions of clients."""

from portico.core.model.context import Context
from portico.core.model.message import Request, Response
from portico.core.model.types import Answer
from portico.core.state.client_sessions import SESSIONS
from portico.upstream.connections.upstream import Upstream


class ComponentUpstream(Upstream):
    """An upstream whose requests carry an opaque id of their client's session. A server never gets
    one: it would recognise the clients that it serves."""

    component = ""
    """Names the component among those of all configs."""

    def provide(self, request: Request, context: Context) -> Answer:
        """Return the component's response; awaiting it raises McpError if there is none."""
        return super().provide(SESSIONS.stamped(request, context, self.component), context)

    async def relay(self, request: Request, context: Context) -> Response:
        """Return the component's response by the general path."""
        return await super().relay(SESSIONS.stamped(request, context, self.component), context)
