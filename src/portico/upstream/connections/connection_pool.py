"""The connections to one upstream, shared by clients or owned by one."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from portico.core.model.errors import TargetError
from portico.core.model.session import Session
from portico.core.protocol.codec import encode
from portico.core.state.background import Background
from portico.upstream.connections.backoff import CircuitBreaker
from portico.upstream.connections.caller import Caller, Callers
from portico.upstream.connections.connection import (
    NOTHING,
    SessionObserver,
    UpstreamConnection,
    closed_error,
)
from portico.upstream.connections.handshake import LEGACY_FIRST
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.session import UpstreamSession, Watcher
from portico.upstream.wires.wire import Address

MODERN, LEGACY = "modern", "legacy"
PLAIN = "legacy{}"
"""The shared legacy connection to a server that sends questions, for clients without answers."""
_ASKABLE: dict[str, Any] = {
    "roots": {"listChanged": True},
    "sampling": {},
    "elicitation": {"form": {}, "url": {}},
}
"""The capabilities declared to a shared server: it lists all its tools, and sends its questions."""
_LEFT_S = 1.0
"""How soon a connection that its clients have left is looked at."""
_TASKS_S = 30.0
"""How often a connection that is kept for tasks is looked at; clients may query them again."""


class ConnectionPool:
    """All connections to one upstream, and the choice of one for each call.

    A modern upstream keeps no state of its clients, so all share one connection. A legacy one is
    shared by clients that do not accept questions. A client that does gets its own connection, so
    that its answers, roots and log messages never reach another client's process. A URL is reached
    in the client's own era where it supports both. A process runs in one era, and requests of the
    other are translated rather than given a second process. In a gateway a client that
    accepts questions gets a process in the legacy era, since most servers of both eras can send
    questions only there; all clients share that process until its first question. A question that
    the legacy era does not have goes to the modern connection.
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
        self.asks: frozenset[str] = frozenset()
        """The questions that the upstream has sent so far, as in an offer."""
        self.declared: Mapping[str, Any] = NOTHING
        """The capabilities that are declared to a shared upstream."""
        if policy.is_gateway and policy.may_ask and policy.sharing != "shared":
            self.declared = _ASKABLE
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
        self._shared: dict[str, list[UpstreamConnection]] = {MODERN: [], LEGACY: [], PLAIN: []}
        self._own: WeakKeyDictionary[Session, UpstreamConnection] = WeakKeyDictionary()
        self._in_use: set[UpstreamConnection] = set()
        self._free: list[UpstreamConnection] = []
        self._surplus: set[UpstreamConnection] = set()
        """Shared connections beyond the limit; each closes after its last call."""
        self._left: set[UpstreamConnection] = set()
        """Connections whose clients have left, but not all their calls and tasks."""
        self._closing = Background()
        self._closed = False

    def __iter__(self) -> Iterator[UpstreamConnection]:
        shared = (*self._shared[MODERN], *self._shared[LEGACY], *self._shared[PLAIN])
        own = (*self._own.values(), *self._in_use, *self._free, *self._left)
        return iter((*shared, *own, *self._surplus))

    def view(self, caller: Caller, modern: bool) -> str:
        """Return the name of a client's view, by its era and capabilities."""
        if not self.is_own(caller, modern):
            return self._kind(caller, modern)
        if not caller.capabilities and not self.declared:
            return LEGACY
        return LEGACY + encode(dict(sorted(caller.capabilities.items()))).decode()

    def era(self, modern: bool, caller: Caller | None = None) -> str:
        """Return the era in which the upstream serves a client of this era."""
        own, other = (MODERN, LEGACY) if modern else (LEGACY, MODERN)
        if self.supports.get(own) is False:
            return other
        policy = self._policy
        if self.declared and caller is not None and caller.accepts_questions:
            # Most servers of both eras can send questions in the legacy era only. A modern client
            # with tasks loses them there, so for it the server must have refused to send one.
            may_send = not modern or "legacy" in self.asks
            may_send = may_send or (policy.is_process and not caller.has_tasks)
            if may_send and self.supports.get(LEGACY) is not False:
                return LEGACY
        if (
            not policy.is_process
            or policy.sharing == "per-client"
            or self.supports.get(other) is False
        ):
            return own
        if self._has_shared(own) or (caller is not None and caller.session in self._own):
            return own
        if self._has_shared(other):
            # A shared legacy process cannot send questions.
            can_share = other == MODERN or caller is None or not caller.accepts_questions
            return other if can_share else own
        if not policy.is_gateway:
            return own
        return LEGACY if self.supports.get(LEGACY) else MODERN

    def is_own(self, caller: Caller, modern: bool) -> bool:
        """True if this client gets a connection of its own."""
        if self.era(modern, caller) == MODERN or self._policy.sharing == "shared":
            return False
        if self._policy.sharing == "per-client" or not caller.accepts_questions:
            return self._policy.sharing == "per-client"
        # One without questions is shared: not every window needs a process of its own. Tasks are
        # not declared to it: tools that depend on them are in the process of a client with tasks.
        is_shared = self.declared and self._policy.is_process and not caller.has_tasks
        return bool(self.asks) or not is_shared

    def _has_shared(self, era: str) -> bool:
        return bool(self._shared[era] or (era == LEGACY and self._shared[PLAIN]))

    def _kind(self, caller: Caller, modern: bool) -> str:
        """Return which shared connection a client uses."""
        era = self.era(modern, caller)
        return PLAIN if era == LEGACY and self.asks and self.declared else era

    def asked(self, what: frozenset[str]) -> list[UpstreamConnection]:
        """Record questions of the upstream; after the first, return the connections that its
        clients no longer share."""
        is_first = not self.asks
        self.asks |= what
        self.generation += 1
        if not is_first or not self.declared:
            return []
        shared, self._shared[LEGACY] = self._shared[LEGACY], []
        for connection in shared:
            self._leave(connection)
        return shared

    def leave_all(self) -> list[UpstreamConnection]:
        """Leave all connections, which end after their calls; later calls open others."""
        left = [connection for connection in self if connection not in self._left]
        self._shared = {kind: [] for kind in self._shared}
        for connection in left:
            self._forget(connection)
            self._leave(connection)
        self.generation += 1
        return left

    def acquire(self, caller: Caller, modern: bool, task: str = "") -> UpstreamConnection:
        """Return a connection for a call, which may be about a task; release it afterwards."""
        holder = self._holding(task) if task else None
        if holder is not None:
            return holder
        if not self.is_own(caller, modern):
            return self.shared(self._kind(caller, modern))
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
            is_suitable = self.is_suitable(connection, caller, modern) or (
                task != "" and task in session.tasks
            )
        finally:
            if not is_suitable:
                connection.end(answered=connection.open_session is not None)
                self.release(connection)
        return connection if is_suitable else await self.begin_call(caller, modern, task)

    def is_suitable(self, connection: UpstreamConnection, caller: Caller, modern: bool) -> bool:
        """True if this client may use the connection now."""
        if connection.owner is not None:
            return True
        if connection in self._surplus or connection in self._left:
            return False
        return not self.is_own(caller, modern)

    async def begin_modern(self) -> UpstreamConnection | None:
        """Begin a call on an open modern connection; None if the upstream has only the legacy era;
        raises TargetError."""
        if self.supports.get(MODERN) is False:
            return None
        connection = self.shared(MODERN)
        connection.begin()
        is_modern = False
        try:
            is_modern = (await connection.session()).modern
        finally:
            if not is_modern:
                connection.end(answered=connection.open_session is not None)
                self.release(connection)
        return connection if is_modern else None

    def find_open(self, caller: Caller, modern: bool) -> UpstreamConnection | None:
        """Return an open connection that needs no acquiring, if there is one."""
        if self.is_own(caller, modern):
            connection = self._own.get(caller.session) if caller.session is not None else None
        else:
            connections = self._shared[self._kind(caller, modern)]
            # With several instances, `acquire` chooses the least busy one for each call.
            connection = connections[0] if connections and self._policy.instances == 1 else None
        session = connection.open_session if connection is not None else None
        return connection if session is not None and not session.awaits_roots else None

    def _holding(self, task: str) -> UpstreamConnection | None:
        """Return the connection whose process has this task: no other one knows it."""
        for connection in self:
            session = connection.open_session
            if session is not None and task in session.tasks:
                return connection
        return None

    def release(self, connection: UpstreamConnection) -> None:
        """Return a connection after a call."""
        if not (connection.busy or connection.subscriptions or connection.has_tasks):
            is_left = connection in self._left and not connection.has_had_tasks
            if connection in self._surplus or is_left:
                self._drop(connection)
            elif self.asks and self.declared and connection in self._shared[LEGACY]:
                self._shared[LEGACY].remove(connection)  # it was opened for its lists only
                self._drop(connection)
        if connection not in self._in_use:
            return
        self._in_use.discard(connection)
        session = connection.open_session
        if connection.has_tasks:
            self._leave(connection)
        elif session is not None and session.has_client_roots:
            # The process knows the client's roots: no other client may use it.
            self._drop(connection)
        elif session is None and not connection.is_opening:
            self._drop(connection)
        else:
            # Keep one that is still starting: the client may have timed out, and will retry.
            self._free.append(connection)

    def shared(self, kind: str) -> UpstreamConnection:
        """Return the least busy shared connection."""
        connections = self._shared[kind]
        idle = next((connection for connection in connections if not connection.busy), None)
        if idle is not None:
            return idle
        if len(connections) < max(1, self._policy.instances):
            return self._new_shared(kind)
        return min(connections, key=lambda connection: connection.busy)

    def for_subscriptions(self, caller: Caller, modern: bool) -> UpstreamConnection:
        """Return the connection for a client's subscriptions and notifications."""
        if self.is_own(caller, modern) and caller.session is not None:
            return self.acquire(caller, modern)
        kind = self._kind(caller, modern)
        connections = self._shared[kind]
        return connections[0] if connections else self._new_shared(kind)

    def _new_shared(self, kind: str) -> UpstreamConnection:
        connection = self._new(LEGACY if kind == PLAIN else kind, None, kind)
        self._shared[kind].append(connection)
        if kind == LEGACY and self.declared and self._policy.is_process:
            self._drop_unused(MODERN)
        self.generation += 1  # clients of the other era may share it
        return connection

    def _drop_unused(self, kind: str) -> None:
        """Close the shared connections that were opened for lists only."""
        for connection in tuple(self._shared[kind]):
            session = connection.open_session
            if session is None or connection.busy or connection.subscriptions or session.is_used:
                continue
            self._shared[kind].remove(connection)
            self._drop(connection)

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
        owner = connection.owner
        declares_roots = owner is not None and "roots" in owner.capabilities
        session.reads_roots = declares_roots and "start" in self.asks

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
            declared=self.declared if caller is None and view != PLAIN else NOTHING,
        )
        connection.level = (caller or self._callers).level  # it may have been set on an earlier one
        if self.supports.get(era):
            connection.era = era
        else:
            connection.era = "auto" if era == MODERN else LEGACY_FIRST
        return connection

    def _check_limit(self) -> None:
        own = (self._own, self._in_use, self._free, self._left)
        if sum(map(len, own)) < self._policy.max_children:
            return
        # Evict an idle connection: its client's next call opens another.
        done = (one for one in self._left if not (one.busy or one.has_tasks))
        unused = (connection for connection in self._own.values() if connection.is_unused)
        needless = (*done, *unused)
        spare = next(iter((*self._free, *needless)), None)
        if spare is not None:
            self._drop(spare)
            return
        name = self._address.name
        why = f"{name}: per-client process limit reached ({self._policy.max_children})"
        raise TargetError(why, kind="busy", server=name)

    def _leave(self, connection: UpstreamConnection) -> None:
        """Keep a connection until its calls and tasks are over, though its clients have left."""
        self._left.add(connection)
        loop = asyncio.get_running_loop()

        def look() -> None:
            if connection not in self._left or self._closed:
                return
            if connection.busy or connection.has_tasks:
                loop.call_later(_TASKS_S, look)
            else:
                self._drop(connection)

        loop.call_later(_TASKS_S if connection.has_had_tasks else _LEFT_S, look)

    def _drop(self, connection: UpstreamConnection) -> None:
        if any(connection in connections for connections in self._shared.values()):
            return  # it is shared by now
        self._forget(connection)
        if connection.has_tasks and not self._closed:
            self._leave(connection)
            return
        self._closing.start(connection.close())

    def _forget(self, connection: UpstreamConnection) -> None:
        for client_session, own in tuple(self._own.items()):
            if own is connection:
                del self._own[client_session]
                client_session.cancel_on_end(connection)
        self._in_use.discard(connection)
        self._surplus.discard(connection)
        self._left.discard(connection)
        if connection in self._free:
            self._free.remove(connection)
        for kind in (LEGACY, PLAIN):
            if connection in self._shared[kind]:
                self._shared[kind].remove(connection)
