"""An upstream that can take another's place: it is told what clients told that one."""

from contextlib import suppress
from typing import Any

from portico.model.context import Context
from portico.model.errors import McpError
from portico.model.message import Request, Response
from portico.model.session import Session
from portico.upstream.upstream import Upstream

_FOLLOW, _UNFOLLOW, _LEVEL = "resources/subscribe", "resources/unsubscribe", "logging/setLevel"

Told = dict[tuple[str, str], tuple[Request, Context, str]]
"""By method and URI, what a client has asked for, and the log level where it is one."""


class Successor(Upstream):
    """Remembers what outlasts a call: whose subscriptions and log levels there are."""

    def __init__(self, *where: Any, **how: Any) -> None:
        """The same as any upstream."""
        super().__init__(*where, **how)
        self._told: dict[Session, Told] = {}

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
        for told in tuple(before._told.values()):
            for request, context, level in tuple(told.values()):
                with suppress(McpError):  # it may not have any more what the other one had
                    if request.method == _LEVEL:
                        await self.set_level(level, request, context)
                    else:
                        await self.relay(request, context)

    def _note(self, session: Session, request: Request, context: Context, level: str = "") -> None:
        later = Context(principal=context.principal, session=session, version=context.version)
        told = self._told.get(session)
        if told is None:
            told = self._told[session] = {}
            session.when_over(lambda: self._forget(session))
        told[request.method, request.uri] = (request, later, level)

    def _forget(self, session: Session) -> None:
        self._told.pop(session, None)
