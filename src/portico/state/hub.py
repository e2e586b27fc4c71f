"""Tells everyone who wants to hear it that something changed; in this process only."""

import asyncio
from weakref import WeakSet

from portico.model.context import Context
from portico.model.session import Session
from portico.model.types import Change
from portico.protocol.listen import ListenFilter, change_message


class _Listener:
    """What one modern listener has not been told yet; a change twice is told once."""

    def __init__(self, wanted: ListenFilter) -> None:
        self.wanted = wanted
        self.pending: dict[tuple[str, str], Change] = {}
        self.woken = asyncio.Event()

    def offer(self, change: Change) -> None:
        if self.wanted.covers(change):
            self.pending[change.kind, change.uri] = change
            self.woken.set()


class ChangeHub:
    """The in-memory hub: legacy sessions and modern listeners of one process."""

    def __init__(self) -> None:
        self._sessions: WeakSet[Session] = WeakSet()
        self._listeners: set[_Listener] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(self, session: Session) -> None:
        """Send a legacy session its notifications as long as it lives."""
        self._loop = asyncio.get_running_loop()
        self._sessions.add(session)

    @property
    def is_needed(self) -> bool:
        """True as long as there is anybody to tell."""
        return bool(self._sessions or self._listeners)

    def publish(self, change: Change) -> None:
        """Tell all who want to hear of it; may be called from any thread."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return  # nobody has ever listened
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is loop:
            self._tell(change)
        else:
            loop.call_soon_threadsafe(self._tell, change)

    async def follow(self, wanted: ListenFilter, context: Context, first: bytes) -> None:
        """Send a modern listener `first`, then what it wants, until it leaves or we drain."""
        peer = context.peer
        assert peer is not None
        self._loop = asyncio.get_running_loop()
        listener = _Listener(wanted)
        self._listeners.add(listener)  # before `first` goes out, so that no change falls between
        closed = asyncio.ensure_future(peer.closed())
        closed.add_done_callback(lambda _: listener.woken.set())
        try:
            await peer.notify(first)
            while not closed.done():
                await listener.woken.wait()
                listener.woken.clear()
                while listener.pending:
                    change = listener.pending.pop(next(iter(listener.pending)))
                    await peer.notify(change_message(change, wanted.id))
        finally:
            closed.cancel()
            self._listeners.discard(listener)

    def _tell(self, change: Change) -> None:
        message = change_message(change)
        for session in tuple(self._sessions):
            if not change.uri or change.uri in session.subscriptions:
                session.send(message)
        for listener in tuple(self._listeners):
            listener.offer(change)
