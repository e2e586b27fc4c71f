"""Which way to an upstream a client's call takes: shared with others, or its own."""

import asyncio
from collections.abc import Iterator
from weakref import WeakKeyDictionary

from portico.model.errors import TargetError
from portico.model.session import Session
from portico.protocol.codec import encode
from portico.state.background import Background
from portico.upstream.backoff import CircuitBreaker
from portico.upstream.caller import Caller, Callers
from portico.upstream.connection import SessionObserver, UpstreamConnection, closed_error
from portico.upstream.handshake import LEGACY_FIRST
from portico.upstream.policy import UpstreamPolicy
from portico.upstream.session import UpstreamSession, Watcher
from portico.wires.wire import Address

MODERN, LEGACY = "modern", "legacy"


class ConnectionPool:
    """All ways to one upstream.

    In the modern era an upstream keeps nothing of its clients, so all share one connection. In the
    legacy one it is shared by clients that cannot be asked anything; a client that can be asked
    gets its own, so that no answer, no root and no log line reaches a child that somebody else
    uses. A URL is reached in the client's own era where it speaks both. A process speaks one era,
    so clients of the other are translated rather than given a second process.
    """

    def __init__(
        self,
        address: Address,
        policy: UpstreamPolicy,
        breaker: CircuitBreaker,
        callers: Callers,
        watcher: Watcher,
        observer: SessionObserver,
    ) -> None:
        self.supports: dict[str, bool] = {}
        """By era, whether the upstream speaks it, as far as that is known."""
        self.generation = 0
        """Grows with what is known of that."""
        if policy.era != "auto":
            self.supports = {MODERN: policy.era == MODERN, LEGACY: policy.era == LEGACY}
        self._address = address
        self._policy = policy
        self._breaker = breaker
        self._callers = callers
        self._watcher = watcher
        self._observer = observer
        self._shared: dict[str, list[UpstreamConnection]] = {MODERN: [], LEGACY: []}
        self._own: WeakKeyDictionary[Session, UpstreamConnection] = WeakKeyDictionary()
        self._in_use: set[UpstreamConnection] = set()
        self._free: list[UpstreamConnection] = []
        self._surplus: set[UpstreamConnection] = set()
        """One too many of those that all share: each ends with the calls it has."""
        self._closing = Background()
        self._closed = False

    def __iter__(self) -> Iterator[UpstreamConnection]:
        shared = (*self._shared[MODERN], *self._shared[LEGACY])
        return iter((*shared, *self._own.values(), *self._in_use, *self._free, *self._surplus))

    def view(self, caller: Caller, modern: bool) -> str:
        """What the upstream offers may depend on who asks: by era, and by what it can be asked."""
        era = self.era(modern, caller)
        if era == MODERN or not self.is_own(caller, modern):
            return era
        if not caller.capabilities:
            return LEGACY
        return LEGACY + encode(dict(sorted(caller.capabilities.items()))).decode()

    def era(self, modern: bool, caller: Caller | None = None) -> str:
        """The era in which a client of this one is served."""
        own, other = (MODERN, LEGACY) if modern else (LEGACY, MODERN)
        if self.supports.get(own) is False:
            return other
        policy = self._policy
        if (
            not policy.is_process
            or policy.sharing == "per-client"
            or self.supports.get(other) is False
        ):
            return own
        if self._shared[own] or (caller is not None and caller.session in self._own):
            return own
        if self._shared[other]:
            # A legacy process that is shared can ask nobody.
            can_share = other == MODERN or caller is None or not caller.accepts_questions
            return other if can_share else own
        return MODERN if policy.prefers_modern else own

    def is_own(self, caller: Caller, modern: bool) -> bool:
        """True if this client is to have a way of its own."""
        if self.era(modern, caller) == MODERN or self._policy.sharing == "shared":
            return False
        return self._policy.sharing == "per-client" or caller.accepts_questions

    def acquire(self, caller: Caller, modern: bool, task: str = "") -> UpstreamConnection:
        """The way for a call, which may be about a task; give it back when the call is over."""
        if not self.is_own(caller, modern):
            return self.shared(self.era(modern, caller), task)
        view = self.view(caller, modern)
        if caller.session is not None:
            connection = self._own.get(caller.session)
            if connection is None:
                self._check_limit()
                connection = self._own[caller.session] = self._new(LEGACY, caller, view)
                caller.session.on_end(connection, lambda: self._drop(connection))
            return connection
        found = next((free for free in self._free if free.view == view), None)
        if found is not None:
            self._free.remove(found)
        else:
            self._check_limit()
            found = self._new(LEGACY, caller, view)
        self._in_use.add(found)
        return found

    async def begin_call(self, caller: Caller, modern: bool, task: str = "") -> UpstreamConnection:
        """The same, open, and with the call begun on it; raises TargetError."""
        connection = self.acquire(caller, modern, task)
        connection.begin()
        is_suitable = False
        try:
            await connection.session()
            # Its era may be another than we thought; then not everybody can share it.
            is_suitable = connection.owner is not None or not self.is_own(caller, modern)
        finally:
            if not is_suitable:
                connection.end(answered=connection.open_session is not None)
                self.release(connection)
        return connection if is_suitable else await self.begin_call(caller, modern, task)

    def find_open(self, caller: Caller, modern: bool) -> UpstreamConnection | None:
        """The way for a call, if there is one open that needs no taking."""
        if self.is_own(caller, modern):
            connection = self._own.get(caller.session) if caller.session is not None else None
        else:
            connections = self._shared[self.era(modern, caller)]
            # Of several, the least busy one is chosen for each call.
            connection = connections[0] if connections and self._policy.instances == 1 else None
        return (
            connection if connection is not None and connection.open_session is not None else None
        )

    def release(self, connection: UpstreamConnection) -> None:
        """A call no longer uses this way."""
        if connection in self._surplus and not (
            connection.busy or connection.subscriptions or connection.has_tasks
        ):
            self._drop(connection)
        if connection not in self._in_use:
            return
        self._in_use.discard(connection)
        session = connection.open_session
        if session is not None and session.has_client_roots:
            # What it knows of one client's folders must not serve another.
            self._drop(connection)
        elif session is None and not connection.is_opening:
            self._drop(connection)
        else:
            # One that still starts is kept: who gave up on a slow start comes back for it.
            self._free.append(connection)

    def shared(self, era: str, task: str = "") -> UpstreamConnection:
        """The least busy of the ways that all share; for a task, the one that has it."""
        connections = self._shared[era]
        for connection in connections if task else ():
            if connection.open_session is not None and task in connection.open_session.tasks:
                return connection
        idle = next((connection for connection in connections if not connection.busy), None)
        if idle is not None:
            return idle
        if len(connections) < max(1, self._policy.instances):
            return self._new_shared(era)
        return min(connections, key=lambda connection: connection.busy)

    def for_subscriptions(self, caller: Caller, modern: bool) -> UpstreamConnection:
        """The way that has a client's subscriptions."""
        if self.is_own(caller, modern) and caller.session is not None:
            return self.acquire(caller, modern)
        era = self.era(modern, caller)
        connections = self._shared[era]
        return connections[0] if connections else self._new_shared(era)

    def _new_shared(self, era: str) -> UpstreamConnection:
        connection = self._new(era, None, era)
        self._shared[era].append(connection)
        self.generation += 1  # clients of the other era may share it
        return connection

    def session_opened(self, connection: UpstreamConnection, session: UpstreamSession) -> None:
        """A conversation has begun: remember its era, and put the line where it belongs."""
        era = MODERN if session.modern else LEGACY
        self.generation += 1
        self.supports[era] = True
        if connection.era in (LEGACY_FIRST, "auto") and connection.view.startswith(era) is False:
            self.supports[LEGACY if session.modern else MODERN] = False
        if session.modern and connection not in self._shared[MODERN]:
            self._forget(connection)
            connection.owner = session.owner = None
            connection.view = MODERN
            self._add_shared(connection, MODERN)
        elif not session.modern and connection in self._shared[MODERN]:
            self._shared[MODERN].remove(connection)
            connection.view = LEGACY
            self._add_shared(connection, LEGACY)
        connection.era = era

    def _add_shared(self, connection: UpstreamConnection, era: str) -> None:
        # Whoever comes first in each era begins a conversation; both may turn out to be in one.
        if len(self._shared[era]) < max(1, self._policy.instances):
            self._shared[era].append(connection)
        else:
            self._surplus.add(connection)
            # What calls change, the same process must tell of.
            connection.substitute = self._shared[era][0]

    async def close(self) -> None:
        """Close all, at the same time, and let there be no more."""
        self._closed = True
        connections = tuple(self)
        for client_session, connection in self._own.items():
            client_session.cancel_on_end(connection)
        if connections:
            await asyncio.gather(
                *(connection.close() for connection in connections), return_exceptions=True
            )
        await self._closing.wait()

    def _new(self, era: str, caller: Caller | None, view: str) -> UpstreamConnection:
        if self._closed:
            raise closed_error(self._address.name)
        connection = UpstreamConnection(
            self._address,
            self._policy,
            self._breaker,
            self._watcher,
            self._observer,
            owner=caller,
            view=view,
        )
        connection.level = (caller or self._callers).level  # an earlier line may have been told
        if self.supports.get(era):
            connection.era = era
        else:
            connection.era = "auto" if era == MODERN else LEGACY_FIRST
        return connection

    def _check_limit(self) -> None:
        if len(self._own) + len(self._in_use) + len(self._free) < self._policy.max_children:
            return
        # Who has come to rest makes room: a client that only left its session open begins anew.
        needless = (connection for connection in self._own.values() if connection.is_unused)
        spare = next(iter(self._free), None) or next(needless, None)
        if spare is not None:
            self._drop(spare)
            return
        name = self._address.name
        why = f"{name}: per-client process limit reached ({self._policy.max_children})"
        raise TargetError(why, kind="busy", server=name)

    def _drop(self, connection: UpstreamConnection) -> None:
        if any(connection in connections for connections in self._shared.values()):
            return  # it has become everybody's
        self._forget(connection)
        self._closing.start(connection.close())

    def _forget(self, connection: UpstreamConnection) -> None:
        for client_session, own in tuple(self._own.items()):
            if own is connection:
                del self._own[client_session]
                client_session.cancel_on_end(connection)
        self._in_use.discard(connection)
        self._surplus.discard(connection)
        if connection in self._free:
            self._free.remove(connection)
        if connection in self._shared[LEGACY]:
            self._shared[LEGACY].remove(connection)
