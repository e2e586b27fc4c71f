"""Legacy HTTP sessions: their owners, calls, streams and expiry."""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Iterator

from portico.core.model.errors import AskError
from portico.core.model.session import Session
from portico.core.model.version import LATEST_LEGACY, Version
from portico.edge.transport.calls_in_flight import CallsInFlight
from portico.edge.transport.http_limits import HttpLimits
from portico.edge.transport.resumable_stream import ResumableStream

MAX_NOTICE_BYTES = 16 * 1024 * 1024
"""The bytes of notifications that may wait for one session's reader."""
_STREAM_WAIT_S = 30.0
"""How long a question waits for a client to open its stream."""


class NotificationQueue:
    """Unsolicited notifications that wait for a reader, without duplicates."""

    def __init__(self, limit: int, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._limit = limit
        self._send = send
        self._waiting: dict[bytes, None] = {}
        self._size = 0
        self._sending: asyncio.Task[None] | None = None
        self.has_reader = False
        """True while a reader is connected."""

    def add(self, message: bytes) -> None:
        """Queue a notification for the reader; over the limit, drop the oldest."""
        if message not in self._waiting:
            self._waiting[message] = None
            self._size += len(message)
        while len(self._waiting) > self._limit or (
            self._size > MAX_NOTICE_BYTES and len(self._waiting) > 1
        ):
            self._next()
        self.flush()

    def flush(self) -> None:
        """Send the queued notifications if there is a reader."""
        if self.has_reader and self._waiting and self._sending is None:
            self._sending = asyncio.create_task(self._run())

    def __len__(self) -> int:
        return len(self._waiting)

    async def _run(self) -> None:
        try:
            while self.has_reader and self._waiting:
                await self._send(self._next())
        finally:
            self._sending = None

    def _next(self) -> bytes:
        message = next(iter(self._waiting))
        del self._waiting[message]
        self._size -= len(message)
        return message


class HttpSession:
    """One legacy `Mcp-Session-Id`: its calls, streams and unsent notifications."""

    def __init__(
        self,
        id: str,
        principal: str,
        limits: HttpLimits,
        on_replay_size: "Callable[[HttpSession, int], None] | None" = None,
    ) -> None:
        """`on_replay_size` gets the number of bytes kept for replay."""
        self.id = id
        self._on_replay_size = on_replay_size
        self.principal = principal
        self._limits = limits
        self._last_number = 0
        self._reserved = 0
        self.notices = NotificationQueue(limits.notices, self._send)
        self.session = Session(self.notices.add, id=id, principal=principal)
        self.session.ask = self._ask
        self.calls = CallsInFlight()
        self.streams: dict[str, ResumableStream] = {}
        """The streams by key, oldest first."""
        self._listeners: list[ResumableStream] = []
        self._has_listener = asyncio.Event()
        self.open_requests = 0
        """The number of HTTP requests in progress."""
        self.is_used = False
        """True once a message other than the handshake arrived."""
        self.is_closed = False
        self.over = asyncio.Event()
        """Set when the session ends or the server drains."""

    @property
    def version(self) -> Version:
        """The negotiated version."""
        return self.session.version or LATEST_LEGACY

    def open_stream(self, *, listens: bool = False) -> ResumableStream | None:
        """Return a new stream; None if there are too many in use."""
        number = self.reserve()
        return self.open_reserved(number, listens=listens) if number else None

    def reserve(self) -> int:
        """Return the number of a stream that may not be needed; 0 if there are too many in use."""
        while len(self.streams) + self._reserved >= self._limits.session_streams:
            idle = next((s for s in self.streams.values() if s.is_idle), None)
            if idle is None:
                return 0
            self.close_stream(idle)
        self._reserved += 1
        self._last_number += 1
        return self._last_number

    def release(self, used: bool) -> None:
        """Release a reserved number that needs no stream; one not `used` is assigned again."""
        self._reserved -= 1
        if not used:
            self._last_number -= 1

    def open_reserved(self, number: int, *, listens: bool = False) -> ResumableStream:
        """Return a new stream with a reserved number."""
        self._reserved -= 1
        stream = ResumableStream(
            str(number),
            self._limits,
            # Clients before 2025-11-25 reject an event without data as malformed.
            primes=self.version >= Version.V2025_11_25,
            listens=listens,
            on_size_change=self._trim,
        )
        self.streams[stream.key] = stream
        return stream

    def close_stream(self, stream: ResumableStream) -> None:
        """Drop a stream that no client can or may resume."""
        size = stream.size
        stream.drop()
        self.streams.pop(stream.key, None)
        if size and self._on_replay_size is not None:
            self._on_replay_size(self, self._size)

    def close_if_finished(self, stream: ResumableStream) -> None:
        """Drop a stream that has ended, unless its client may resume it."""
        if stream.over.done() and stream.response is None and not stream.can_resume:
            self.close_stream(stream)

    def listen(self, stream: ResumableStream) -> None:
        """Send unsolicited notifications over this stream; the newest of several gets them.

        "The server MUST send each of its JSON-RPC messages on only one of the connected streams".
        """
        self._listeners.append(stream)
        self._has_listener.set()
        self.notices.has_reader = True
        self.notices.flush()

    def stop_listening(self, stream: ResumableStream) -> None:
        """Stop sending notifications over this stream; use an older one if there is one."""
        if stream in self._listeners:
            self._listeners.remove(stream)
        self.notices.has_reader = bool(self._listeners)
        if not self._listeners:
            self._has_listener.clear()

    def drain(self) -> None:
        """End the streams that would never end by themselves."""
        self.over.set()
        for stream in tuple(self._listeners):
            stream.complete()

    def close(self) -> None:
        """End all calls, questions and streams."""
        self.is_closed = True
        self.calls.close()
        self.drain()
        for stream in tuple(self.streams.values()):
            stream.complete()
        self.session.send = _discard  # the hub may still send to the session
        self.session.end()

    async def _ask(self, method: str, params: bytes) -> bytes:
        """Send a question that belongs to no call, on the stream for unsolicited messages."""
        if not self.is_closed and not self._listeners:
            # A server may send one right after the handshake, before the client opens its stream.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_listener.wait(), _STREAM_WAIT_S)
        if self.is_closed or not self._listeners:
            raise AskError("cannot send a request to the client: it has no open stream")
        return await ask_on(self._listeners[-1], self.calls, method, params)

    async def _send(self, message: bytes) -> None:
        if self._listeners:
            await self._listeners[-1].send(message)
        else:
            self.notices.add(message)

    def _trim(self) -> None:
        """Keep the session within its replay limit: drop its oldest unread streams."""
        self.free_replay(self._size - self._limits.session_replay_bytes)
        if self._on_replay_size is not None:
            self._on_replay_size(self, self._size)

    @property
    def _size(self) -> int:
        return sum(stream.size for stream in self.streams.values())

    def free_replay(self, size: int) -> None:
        """Free this many bytes by closing unread streams, the oldest first."""
        for stream in tuple(self.streams.values()):
            if size <= 0:
                return
            if stream.response is None:
                size -= stream.size
                self.close_stream(stream)


async def ask_on(
    stream: ResumableStream, calls: CallsInFlight, method: str, params: bytes
) -> bytes:
    """Send a question on a stream and wait for its answer, which arrives in another POST."""
    question = calls.question(method, params)
    try:
        await stream.send(question.message)
        return await question.answer
    except asyncio.CancelledError:
        question.answer.cancel()
        await stream.send(question.cancellation)
        raise


class Sessions:
    """All sessions of one app, the least recently used first."""

    def __init__(
        self,
        limits: HttpLimits,
        clock: Callable[[], float] = lambda: asyncio.get_running_loop().time(),
    ) -> None:
        self._limits = limits
        self._now = clock
        self._sessions: dict[bytes, HttpSession] = {}
        self._last_used: dict[bytes, float] = {}
        self._replay_sizes: dict[HttpSession, int] = {}
        """The bytes that each session keeps for replay."""
        self._replay_bytes = 0
        self._unused: dict[bytes, HttpSession] = {}
        """The sessions that may not have been used since their handshake, oldest first."""
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[HttpSession]:
        return iter(tuple(self._sessions.values()))

    def create(self, principal: str) -> HttpSession:
        """Create a session with an unguessable id."""
        id = secrets.token_urlsafe(24)
        session = HttpSession(id, principal, self._limits, self._record_replay)
        key = id.encode()
        self._sessions[key] = session
        self._last_used[key] = self._now()
        self._set_timer()
        return session

    def handshake_done(self, session: HttpSession) -> None:
        """Let a session make room for others until it is used for more than its handshake."""
        if not session.is_closed:
            self._unused[session.id.encode()] = session

    def make_room(self) -> bool:
        """Make room for one more session; return False if all are in use."""
        if len(self._sessions) >= self._limits.sessions:
            self.expire()
        while len(self._sessions) >= self._limits.sessions and self._unused:
            oldest = next(iter(self._unused.values()))
            del self._unused[oldest.id.encode()]
            if not oldest.is_used and not oldest.open_requests:
                self.end(oldest)
        return len(self._sessions) < self._limits.sessions

    def find(self, id: bytes, principal: str) -> HttpSession | None:
        """Return the session of this id if it belongs to this principal."""
        session = self._sessions.get(id)
        if session is None or session.principal != principal:
            return None
        del self._last_used[id]
        self._last_used[id] = self._now()
        return session

    def end(self, session: HttpSession) -> None:
        """End a session and forget its id."""
        key = session.id.encode()
        if self._sessions.pop(key, None) is not None:
            del self._last_used[key]
        self._unused.pop(key, None)
        self._record_replay(session, 0)
        session.close()

    def expire(self) -> None:
        """End the sessions that have been idle for too long."""
        now = self._now()
        for key, used in tuple(self._last_used.items()):
            if now - used < self._limits.session_idle_s:
                break
            session = self._sessions[key]
            if session.open_requests:
                self.find(key, session.principal)  # an open request is use, too
            else:
                self.end(session)

    def _record_replay(self, session: HttpSession, size: int) -> None:
        """Record a session's replay bytes; over the limit for all, free those of the oldest."""
        self._replay_bytes += size - self._replay_sizes.pop(session, 0)
        if size:
            self._replay_sizes[session] = size
        if self._replay_bytes > self._limits.all_replay_bytes:
            for other in tuple(self._replay_sizes):
                other.free_replay(self._replay_bytes - self._limits.all_replay_bytes)

    def drain(self) -> None:
        """End the streams that would never end by themselves."""
        for session in self:
            session.drain()

    def close(self) -> None:
        """End all sessions."""
        for session in self:
            self.end(session)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if self._timer is None and self._last_used:
            due = next(iter(self._last_used.values())) + self._limits.session_idle_s - self._now()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(due, 0.01), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.expire()
        self._set_timer()


def _discard(message: bytes) -> None:
    """Send nothing to a session that has ended."""
