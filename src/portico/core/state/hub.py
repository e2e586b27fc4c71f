"""Publishes changes to the sessions and listeners of this process."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from weakref import WeakSet

from portico.core.model.context import Context
from portico.core.model.session import Session
from portico.core.model.types import Change
from portico.core.protocol.listen import ListenFilter, change_message

_AT_ONCE = 100
"""Subscribers to notify in one turn of the loop: all other work waits that long."""


class _Listener:
    """The changes not yet sent to one modern listener, without duplicates."""

    def __init__(self, wanted: ListenFilter) -> None:
        self.wanted = wanted
        self.pending: dict[tuple[str, str], Change] = {}
        self.woken = asyncio.Event()

    def add(self, change: Change) -> None:
        self.pending[change.kind, change.uri] = change
        self.woken.set()


class ChangeHub:
    """The in-memory hub of legacy sessions and modern listeners."""

    def __init__(self) -> None:
        self._sessions: WeakSet[Session] = WeakSet()
        self._listeners: set[_Listener] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changes: dict[tuple[str, str], Change] = {}
        """Changes that wait for their turn; a later one replaces an equal one."""
        self._notifying: Iterator[None] | None = None
        """Notifies one subscriber at each step; None if there is nothing left to send."""

    def attach(self, session: Session) -> None:
        """Send notifications to a legacy session for its lifetime."""
        self._use_running_loop()
        self._sessions.add(session)

    @property
    def is_needed(self) -> bool:
        """True while there are sessions or listeners."""
        return bool(self._sessions or self._listeners)

    def publish(self, change: Change) -> None:
        """Notify all subscribers; may be called from any thread."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return  # there has never been a subscriber
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is loop:
            self._deliver(change)
        else:
            loop.call_soon_threadsafe(self._deliver, change)

    async def follow(
        self,
        wanted: ListenFilter,
        context: Context,
        first: bytes,
        sent: Callable[[], None] = lambda: None,
    ) -> None:
        """Send `first` to a modern listener and call `sent`, then send its changes, until it ends
        or we drain."""
        peer = context.peer
        assert peer is not None
        self._use_running_loop()
        listener = _Listener(wanted)
        self._listeners.add(listener)  # before `first` is sent, so that no change is missed
        closed = asyncio.ensure_future(peer.closed())
        closed.add_done_callback(lambda _: listener.woken.set())
        try:
            await peer.notify(first)
            sent()
            while not closed.done():
                await listener.woken.wait()
                listener.woken.clear()
                while listener.pending:
                    change = listener.pending.pop(next(iter(listener.pending)))
                    await peer.notify(change_message(change, wanted.id))
        finally:
            closed.cancel()
            self._listeners.discard(listener)

    def _use_running_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the former loop may have ended halfway
            self._loop, self._notifying = loop, None

    def _deliver(self, change: Change) -> None:
        self._changes[change.kind, change.uri] = change
        if self._notifying is None:
            self._notifying = self._notify_each()
            self._notify_some()

    def _notify_some(self) -> None:
        """Notify some subscribers now, and the others in the next turns of the loop."""
        assert self._notifying is not None
        assert self._loop is not None
        count = 0
        try:
            count = sum(1 for _ in islice(self._notifying, _AT_ONCE))
        finally:
            if count < _AT_ONCE:
                self._notifying = None
        if count == _AT_ONCE:
            self._loop.call_soon(self._notify_some)

    def _notify_each(self) -> Iterator[None]:
        while self._changes:
            change = self._changes.pop(next(iter(self._changes)))
            message = change_message(change)
            for session in tuple(self._sessions):
                if not change.uri or change.uri in session.subscriptions:
                    session.send(message)
                    yield
            for listener in tuple(self._listeners):
                if listener.wanted.covers(change):
                    listener.add(change)
                    yield
