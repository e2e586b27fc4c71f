"""An upstream that can take another's place: it is told what clients told that one."""

from contextlib import suppress
from functools import cached_property
from weakref import WeakKeyDictionary

from portico.model.context import Context
from portico.model.errors import McpError
from portico.model.message import Request, Response
from portico.model.session import Session
from portico.upstream.upstream import Upstream

_FOLLOW, _UNFOLLOW, _LEVEL = "resources/subscribe", "resources/unsubscribe", "logging/setLevel"

Told = dict[tuple[str, str], tuple[Request, str, str]]
"""By method and URI, what a client has asked for, as whom, and the log level where it is one."""


class Successor(Upstream):
    """Remembers what outlasts a call: whose subscriptions and log levels there are."""

    @cached_property
    def _told(self) -> WeakKeyDictionary[Session, Told]:
        return WeakKeyDictionary()

    async def relay(self, request: Request, context: Context) -> Response:
        """The upstream's answer to a request; raises McpError if there is none."""
        response = await super().relay(request, context)
        session = context.session
        if response.error or session is None:
            return response
        if request.method == _FOLLOW:
            self._note(session, request, context)
        elif request.method == _UNFOLLOW and session in self._told:
            self._told[session].pop((_FOLLOW, request.uri), None)
        return response

    async def set_level(self, level: str, request: Request, context: Context) -> None:
        """A client wants log messages from this level on."""
        if context.session is not None:
            self._note(context.session, request, context, level)
        await super().set_level(level, request, context)

    async def succeed(self, before: "Successor") -> None:
        """Go on with what clients have told the one before."""
        for session, told in tuple(before._told.items()):
            for request, principal, level in tuple(told.values()):
                context = Context(principal=principal, session=session, version=request.version)
                with suppress(McpError):  # it may not have any more what the other one had
                    if request.method == _LEVEL:
                        await self.set_level(level, request, context)
                    else:
                        await self.relay(request, context)

    async def close(self) -> None:
        """End all conversations, and leave nothing with clients that go on."""
        await super().close()
        self._callers.forget()

    def _note(self, session: Session, request: Request, context: Context, level: str = "") -> None:
        told = self._told.setdefault(session, {})
        told[request.method, request.uri] = (request, context.principal, level)
