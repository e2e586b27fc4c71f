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
from portico.upstream.connection import Opened, UpstreamConnection, shut_down
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
        registry: Opened,
    ) -> None:
        self.speaks: dict[str, bool] = {}
        """By era, whether the upstream speaks it, as far as that is known."""
        self.edition = 0
        """Grows with what is known of that."""
        if policy.era != "auto":
            self.speaks = {MODERN: policy.era == MODERN, LEGACY: policy.era == LEGACY}
        self._address = address
        self._policy = policy
        self._breaker = breaker
        self._callers = callers
        self._watcher = watcher
        self._registry = registry
        self._shared: dict[str, list[UpstreamConnection]] = {MODERN: [], LEGACY: []}
        self._own: WeakKeyDictionary[Session, UpstreamConnection] = WeakKeyDictionary()
        self._lent: set[UpstreamConnection] = set()
        self._free: list[UpstreamConnection] = []
        self._surplus: set[UpstreamConnection] = set()
        """One too many of those that all share: each ends with the calls it has."""
        self._closing = Background()
        self._closed = False

    def __iter__(self) -> Iterator[UpstreamConnection]:
        shared = (*self._shared[MODERN], *self._shared[LEGACY])
        return iter((*shared, *self._own.values(), *self._lent, *self._free, *self._surplus))

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
        if self.speaks.get(own) is False:
            return other
        policy = self._policy
        if (
            not policy.is_process
            or policy.sharing == "per-client"
            or self.speaks.get(other) is False
        ):
            return own
        if self._shared[own] or (caller is not None and caller.session in self._own):
            return own
        if self._shared[other]:
            # A legacy process that is shared can ask nobody.
            can_share = other == MODERN or caller is None or not caller.talks_back
            return other if can_share else own
        return MODERN if policy.prefers_modern else own

    def is_own(self, caller: Caller, modern: bool) -> bool:
        """True if this client is to have a way of its own."""
        if self.era(modern, caller) == MODERN or self._policy.sharing == "shared":
            return False
        return self._policy.sharing == "per-client" or caller.talks_back

    def take(self, caller: Caller, modern: bool, task: str = "") -> UpstreamConnection:
        """The way for a call, which may be about a task; give it back when the call is over."""
        if not self.is_own(caller, modern):
            return self.shared(self.era(modern, caller), task)
        view = self.view(caller, modern)
        if caller.session is not None:
            line = self._own.get(caller.session)
            if line is None:
                self._check_room()
                line = self._own[caller.session] = self._new(LEGACY, caller, view)
                caller.session.on_end(line, lambda: self._drop(line))
            return line
        found = next((free for free in self._free if free.view == view), None)
        if found is not None:
            self._free.remove(found)
        else:
            self._check_room()
            found = self._new(LEGACY, caller, view)
        self._lent.add(found)
        return found

    async def begun(self, caller: Caller, modern: bool, task: str = "") -> UpstreamConnection:
        """The same, open, and with the call begun on it; raises TargetError."""
        line = self.take(caller, modern, task)
        line.begin()
        is_right = False
        try:
            await line.upstream_session()
            # Its era may be another than we thought; then not everybody can share it.
            is_right = line.owner is not None or not self.is_own(caller, modern)
        finally:
            if not is_right:
                line.end(answered=line.open_leg is not None)
                self.give_back(line)
        return line if is_right else await self.begun(caller, modern, task)

    def at_hand(self, caller: Caller, modern: bool) -> UpstreamConnection | None:
        """The way for a call, if there is one open that needs no taking."""
        if self.is_own(caller, modern):
            line = self._own.get(caller.session) if caller.session is not None else None
        else:
            lines = self._shared[self.era(modern, caller)]
            # Of several, the least busy one is chosen for each call.
            line = lines[0] if lines and self._policy.instances == 1 else None
        return line if line is not None and line.open_leg is not None else None

    def give_back(self, line: UpstreamConnection) -> None:
        """A call no longer uses this way."""
        if line in self._surplus and not (line.busy or line.subscriptions or line.has_tasks):
            self._drop(line)
        if line not in self._lent:
            return
        self._lent.discard(line)
        upstream_session = line.open_leg
        if upstream_session is not None and upstream_session.told_roots:
            # What it knows of one client's folders must not serve another.
            self._drop(line)
        elif upstream_session is None and not line.is_opening:
            self._drop(line)
        else:
            # One that still starts is kept: who gave up on a slow start comes back for it.
            self._free.append(line)

    def shared(self, era: str, task: str = "") -> UpstreamConnection:
        """The least busy of the ways that all share; for a task, the one that has it."""
        lines = self._shared[era]
        for line in lines if task else ():
            if line.open_leg is not None and task in line.open_leg.tasks:
                return line
        idle = next((line for line in lines if not line.busy), None)
        if idle is not None:
            return idle
        if len(lines) < max(1, self._policy.instances):
            return self._add(era)
        return min(lines, key=lambda line: line.busy)

    def first(self, caller: Caller, modern: bool) -> UpstreamConnection:
        """The way that has a client's subscriptions."""
        if self.is_own(caller, modern) and caller.session is not None:
            return self.take(caller, modern)
        era = self.era(modern, caller)
        lines = self._shared[era]
        return lines[0] if lines else self._add(era)

    def _add(self, era: str) -> UpstreamConnection:
        line = self._new(era, None, era)
        self._shared[era].append(line)
        self.edition += 1  # clients of the other era may share it
        return line

    def learned(self, line: UpstreamConnection, upstream_session: UpstreamSession) -> None:
        """A conversation has begun: remember its era, and put the line where it belongs."""
        era = MODERN if upstream_session.modern else LEGACY
        self.edition += 1
        self.speaks[era] = True
        if line.era in (LEGACY_FIRST, "auto") and line.view.startswith(era) is False:
            self.speaks[LEGACY if upstream_session.modern else MODERN] = False
        if upstream_session.modern and line not in self._shared[MODERN]:
            self._forget(line)
            line.owner = upstream_session.owner = None
            line.view = MODERN
            self._share(line, MODERN)
        elif not upstream_session.modern and line in self._shared[MODERN]:
            self._shared[MODERN].remove(line)
            line.view = LEGACY
            self._share(line, LEGACY)
        line.era = era

    def _share(self, line: UpstreamConnection, era: str) -> None:
        # Whoever comes first in each era begins a conversation; both may turn out to be in one.
        if len(self._shared[era]) < max(1, self._policy.instances):
            self._shared[era].append(line)
        else:
            self._surplus.add(line)
            # What calls change, the same process must tell of.
            line.instead = self._shared[era][0]

    async def close(self) -> None:
        """Close all, at the same time, and let there be no more."""
        self._closed = True
        lines = tuple(self)
        for session, line in self._own.items():
            session.cancel_on_end(line)
        if lines:
            await asyncio.gather(*(line.close() for line in lines), return_exceptions=True)
        await self._closing.wait()

    def _new(self, era: str, caller: Caller | None, view: str) -> UpstreamConnection:
        if self._closed:
            raise shut_down(self._address.name)
        line = UpstreamConnection(
            self._address,
            self._policy,
            self._breaker,
            self._watcher,
            self._registry,
            owner=caller,
            view=view,
        )
        line.level = (caller or self._callers).level  # an earlier line may have been told
        if self.speaks.get(era):
            line.era = era
        else:
            line.era = "auto" if era == MODERN else LEGACY_FIRST
        return line

    def _check_room(self) -> None:
        if len(self._own) + len(self._lent) + len(self._free) < self._policy.max_children:
            return
        # Who has come to rest makes room: a client that only left its session open begins anew.
        needless = (line for line in self._own.values() if line.is_needless)
        spare = next(iter(self._free), None) or next(needless, None)
        if spare is not None:
            self._drop(spare)
            return
        name = self._address.name
        why = f"{self._policy.max_children} clients have a {name} of their own already"
        raise TargetError(why, kind="busy", server=name)

    def _drop(self, line: UpstreamConnection) -> None:
        if any(line in lines for lines in self._shared.values()):
            return  # it has become everybody's
        self._forget(line)
        self._closing.start(line.close())

    def _forget(self, line: UpstreamConnection) -> None:
        for session, own in tuple(self._own.items()):
            if own is line:
                del self._own[session]
                session.cancel_on_end(line)
        self._lent.discard(line)
        self._surplus.discard(line)
        if line in self._free:
            self._free.remove(line)
        if line in self._shared[LEGACY]:
            self._shared[LEGACY].remove(line)
