"""The endpoint of all HTTP clients: each gets the one that fits it, and keeps it."""

import asyncio
from collections.abc import Mapping

from portico.core.config.client_exposure import known_client
from portico.core.model.context import Context
from portico.core.model.message import Request
from portico.core.model.session import Session
from portico.core.model.types import Answer, Endpoint
from portico.edge.fit.exposure_choice import ExposureChoice
from portico.edge.fit.fitted_endpoint import Choose, Chosen, after_task, client_in

MAX_NAMES = 1_000
"""The limit of pairs that are kept, so that made-up names do not fill the memory."""
_INITIALIZE = "initialize"
_MAX_NAME = 200
_MAX_INFO = 1_000
"""The bytes of a `clientInfo` that is recognized as sent."""

Fit = tuple[Endpoint, ExposureChoice]


class FittedHttpEndpoint:
    """Passes each request to the endpoint that fits its client.

    A legacy session is decided by its handshake. Modern requests belong to the pair of their
    principal and the name in their `clientInfo`: the same pair always gets the same endpoint.
    """

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._pairs: dict[tuple[str, str], Fit] = {}
        self._sessions: dict[Session, Fit] = {}
        self._by_client: dict[tuple[str, bytes], Endpoint] = {}

    @property
    def by_client(self) -> Mapping[tuple[str, bytes], Endpoint]:
        """The endpoints of modern clients that are known, by principal and raw `clientInfo`."""
        return self._by_client

    def choices(self) -> list[ExposureChoice]:
        """Return the choices of the open sessions, and of the modern clients that are known."""
        return [choice for _, choice in (*self._sessions.values(), *self._pairs.values())]

    def handle(self, request: Request, context: Context) -> Answer:
        """Answer a request as the endpoint of its client does."""
        session = context.session
        if session is None:
            chosen = self._of_pair(request, context)
            if isinstance(chosen, asyncio.Task):
                return after_task(chosen, self.handle, request, context)
            return chosen.handle(request, context)
        found: Chosen = self._sessions.get(session) or self._of_session(request, session)
        if isinstance(found, asyncio.Task):
            return after_task(found, self.handle, request, context)
        return found[0].handle(request, context)

    def _of_session(self, request: Request, session: Session) -> Chosen:
        found = self._choose(*client_in(request))
        if isinstance(found, asyncio.Task):
            return found
        if request.method == _INITIALIZE:  # anything before it decides nothing
            self._sessions[session] = found
            session.on_end(self, lambda: self._forget(session))
        return found

    def _forget(self, session: Session) -> None:
        self._sessions.pop(session, None)

    def _of_pair(self, request: Request, context: Context) -> "Endpoint | asyncio.Task[None]":
        name, version = client_in(request)
        pair = context.principal, name[:_MAX_NAME]
        found = self._pairs.get(pair)
        if found is None:
            # One made-up name too many is served like a client without a name, now and later.
            is_full = len(self._pairs) >= MAX_NAMES and known_client(name) is None
            chosen = self._choose("", "") if is_full else self._choose(name, version)
            if isinstance(chosen, asyncio.Task):
                return chosen
            found = chosen
            if not is_full:
                self._pairs[pair] = found
        info = request.meta.client_info
        if len(info) <= _MAX_INFO and len(self._by_client) < MAX_NAMES:
            self._by_client[context.principal, info] = found[0]
        return found[0]
