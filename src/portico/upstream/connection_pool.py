"""The connections to one upstream, shared by clients or owned by one."""

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
_TASKS_S = 30.0
"""How often a connection that is kept for tasks is looked at; clients may query them again."""


class ConnectionPool:
    """All connections to one upstream, and the choice of one for each call.

    A modern upstream keeps no state of its clients, so all share one connection. A legacy one is
    shared by clients that do not accept questions. A client that does gets its own connection, so
    that its answers, roots and log messages never reach another client's process. A URL is reached
    in the client's own era where it supports both. A process runs in one era, and requests of the
    other are translated rather than given a second process.
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
        """By era, whether the upstream supports it, as far as is known."""
        self.generation = 0
        """Increases whenever views or routes may change; caches compare it."""
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
        """Shared connections beyond the limit; each closes after its last call."""
        self._with_tasks: set[UpstreamConnection] = set()
        """Connections whose client has left, but not its tasks."""
        self._closing = Background()
        self._closed = False

    def __iter__(self) -> Iterator[UpstreamConnection]:
        shared = (*self._shared[MODERN], *self._shared[LEGACY])
        own = (*self._own.values(), *self._in_use, *self._free, *self._with_tasks)
        return iter((*shared, *own, *self._surplus))

    def view(self, caller: Caller, modern: bool) -> str:
        """Return the name of a client's view, by its era and capabilities."""
        era = self.era(modern, caller)
        if era == MODERN or not self.is_own(caller, modern):
            return era
        if not caller.capabilities:
            return LEGACY
        return LEGACY + encode(dict(sorted(caller.capabilities.items()))).decode()

    def era(self, modern: bool, caller: Caller | None = None) -> str:
        """Return the era in which the upstream serves a client of this era."""
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
            # A shared legacy process cannot send questions.
            can_share = other == MODERN or caller is None or not caller.accepts_questions
            return other if can_share else own
        return MODERN if policy.prefers_modern else own

    def is_own(self, caller: Caller, modern: bool) -> bool:
        """True if this client gets a connection of its own."""
        if self.era(modern, caller) == MODERN or self._policy.sharing == "shared":
            return False
        return self._policy.sharing == "per-client" or caller.accepts_questions

    def acquire(self, caller: Caller, modern: bool, task: str = "") -> UpstreamConnection:
        """Return a connection for a call, which may be about a task; release it afterwards."""
        holder = self._holding(task) if task else None
        if holder is not None:
            return holder
        if not self.is_own(caller, modern):
            return self.shared(self.era(modern, caller))
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
        """Acquire an open connection and begin a call on it; raises TargetError."""
        connection = self.acquire(caller, modern, task)
        connection.begin()
        is_suitable = False
        try:
            session = await connection.session()
            # It may be of another era than expected, in which this client cannot share it.
            is_suitable = (
                connection.owner is not None
                or not self.is_own(caller, modern)
                or (task != "" and task in session.tasks)
            )
        finally:
            if not is_suitable:
                connection.end(answered=connection.open_session is not None)
                self.release(connection)
        return connection if is_suitable else await self.begin_call(caller, modern, task)

    def find_open(self, caller: Caller, modern: bool) -> UpstreamConnection | None:
        """Return an open connection that needs no acquiring, if there is one."""
        if self.is_own(caller, modern):
            connection = self._own.get(caller.session) if caller.session is not None else None
        else:
            connections = self._shared[self.era(modern, caller)]
            # With several instances, `acquire` chooses the least busy one for each call.
            connection = connections[0] if connections and self._policy.instances == 1 else None
        return (
            connection if connection is not None and connection.open_session is not None else None
        )

    def _holding(self, task: str) -> UpstreamConnection | None:
        """Return the connection whose process has this task: no other one knows it."""
        for connection in self:
            session = connection.open_session
            if session is not None and task in session.tasks:
                return connection
        return None

    def release(self, connection: UpstreamConnection) -> None:
        """Return a connection after a call."""
        if connection in self._surplus and not (
            connection.busy or connection.subscriptions or connection.has_tasks
        ):
            self._drop(connection)
        if connection not in self._in_use:
            return
        self._in_use.discard(connection)
        session = connection.open_session
        if connection.has_tasks:
            self._keep_for_tasks(connection)
        elif session is not None and session.has_client_roots:
            # The process knows the client's roots: no other client may use it.
            self._drop(connection)
        elif session is None and not connection.is_opening:
            self._drop(connection)
        else:
            # Keep one that is still starting: the client may have timed out, and will retry.
            self._free.append(connection)

    def shared(self, era: str) -> UpstreamConnection:
        """Return the least busy shared connection."""
        connections = self._shared[era]
        idle = next((connection for connection in connections if not connection.busy), None)
        if idle is not None:
            return idle
        if len(connections) < max(1, self._policy.instances):
            return self._new_shared(era)
        return min(connections, key=lambda connection: connection.busy)

    def for_subscriptions(self, caller: Caller, modern: bool) -> UpstreamConnection:
        """Return the connection for a client's subscriptions and notifications."""
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
        """Record the era of a new session, and move its connection to that era."""
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
        # The first clients of both eras each open a session; both may turn out to be of one era.
        if len(self._shared[era]) < max(1, self._policy.instances):
            self._shared[era].append(connection)
        else:
            self._surplus.add(connection)
            # Only the process that serves later calls sees their changes.
            connection.substitute = self._shared[era][0]

    async def close(self) -> None:
        """Close all connections concurrently, and refuse new ones."""
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
        connection.level = (caller or self._callers).level  # it may have been set on an earlier one
        if self.supports.get(era):
            connection.era = era
        else:
            connection.era = "auto" if era == MODERN else LEGACY_FIRST
        return connection

    def _check_limit(self) -> None:
        own = (self._own, self._in_use, self._free, self._with_tasks)
        if sum(map(len, own)) < self._policy.max_children:
            return
        # Evict an idle connection: its client's next call opens another.
        done = (one for one in self._with_tasks if not (one.busy or one.has_tasks))
        unused = (connection for connection in self._own.values() if connection.is_unused)
        needless = (*done, *unused)
        spare = next(iter((*self._free, *needless)), None)
        if spare is not None:
            self._drop(spare)
            return
        name = self._address.name
        why = f"{name}: per-client process limit reached ({self._policy.max_children})"
        raise TargetError(why, kind="busy", server=name)

    def _keep_for_tasks(self, connection: UpstreamConnection) -> None:
        """Keep a connection until its tasks are over, though its client has left."""
        self._with_tasks.add(connection)
        loop = asyncio.get_running_loop()

        def look() -> None:
            if connection not in self._with_tasks or self._closed:
                return
            if connection.busy or connection.has_tasks:
                loop.call_later(_TASKS_S, look)
            else:
                self._drop(connection)

        loop.call_later(_TASKS_S, look)

    def _drop(self, connection: UpstreamConnection) -> None:
        if any(connection in connections for connections in self._shared.values()):
            return  # it is shared by now
        self._forget(connection)
        if connection.has_tasks and not self._closed:
            self._keep_for_tasks(connection)
            return
        self._closing.start(connection.close())

    def _forget(self, connection: UpstreamConnection) -> None:
        for client_session, own in tuple(self._own.items()):
            if own is connection:
                del self._own[client_session]
                client_session.cancel_on_end(connection)
        self._in_use.discard(connection)
        self._surplus.discard(connection)
        self._with_tasks.discard(connection)
        if connection in self._free:
            self._free.remove(connection)
        if connection in self._shared[LEGACY]:
            self._shared[LEGACY].remove(connection)
