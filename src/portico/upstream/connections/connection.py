"""One connection to an upstream: opened on demand, supervised, closed when idle, reopened."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

from portico.core.model.errors import McpError, TargetError
from portico.core.model.session import Session
from portico.core.protocol.codec import encode
from portico.core.protocol.eras import is_level_enabled
from portico.core.state.background import Background, first_of
from portico.upstream.connections.backoff import Backoff, CircuitBreaker
from portico.upstream.connections.caller import Caller
from portico.upstream.connections.connection_state import TABLE, ConnectionEvent, ConnectionState
from portico.upstream.connections.handshake import LEGACY_FIRST
from portico.upstream.connections.installs import INSTALLING, WAITING
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.connections.session import UpstreamSession, Watcher
from portico.upstream.connections.subscription import keep_listening
from portico.upstream.wires.wire import LOGIN, Address, Failure, quoted_stderr

NOTHING: Mapping[str, Any] = {}
_TIMER_SLACK_S = 0.01
_ERA_MISMATCH_KINDS = ("version", "refused", "protocol", "http")
_INACTIVE = (ConnectionState.IDLE, ConnectionState.CONNECTED)
_ACTIVE, _CALLED, _DRAINED = (
    ConnectionState.ACTIVE,
    ConnectionEvent.CALLED,
    ConnectionEvent.DRAINED,
)  # members of an enum are slow to look up
_FALLBACK_ERAS = {"modern": "auto", "legacy": LEGACY_FIRST}


def closed_error(server: str) -> TargetError:
    """Return the error of a request to an upstream that Portico has closed."""
    return TargetError(f"{server} is being shut down", kind="closed", server=server)


class SessionObserver(Protocol):
    """Receives the events of every new session."""

    def starting(self) -> None:
        """A session is about to open."""
        ...

    def opened(self, connection: "UpstreamConnection", session: UpstreamSession) -> None:
        """A session has opened."""
        ...

    @property
    def is_listed(self) -> bool:
        """True if a catalog of the upstream is known."""
        ...


class UpstreamConnection:
    """One connection to an upstream, shared by all clients or owned by one."""

    def __init__(
        self,
        address: Address,
        policy: UpstreamPolicy,
        breaker: CircuitBreaker,
        watcher: Watcher,
        observer: SessionObserver,
        *,
        owner: Caller | None = None,
        view: str = "",
        declared: Mapping[str, Any] = NOTHING,
    ) -> None:
        """`declared` are the capabilities of its clients, if it has no owner."""
        self.address = address
        self.policy = policy
        self.owner = owner
        self.declared = declared
        self.view = view
        """The name of the catalog view that its clients share."""
        self.state = ConnectionState.DISCONNECTED
        self.busy = 0
        """The number of calls that are running or waiting for the connection."""
        self.level = ""
        self.subscriptions: dict[str, set[Session]] = {}
        """The subscribed client sessions by URI; the upstream has one subscription for each."""
        self.substitute: UpstreamConnection | None = None
        """The connection that takes the subscriptions of this one, if this one is surplus."""
        self.starts = 0
        self.install = ""
        """`installing` while its command may install the server, `waiting to install` before."""
        self.era = policy.era
        """The era to try first."""
        self._breaker = breaker
        self._watcher = watcher
        self._observer = observer
        self._now = asyncio.get_running_loop().time
        self._backoff = Backoff(policy.backoff, self._now)
        self._session: UpstreamSession | None = None
        self._opening: asyncio.Task[UpstreamSession] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._closing = Background()
        self._subscribing: dict[str, asyncio.Future[None]] = {}
        """By URI, a future that is done when the upstream has answered the subscription."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._idle_since = 0.0
        self._closed = False

    @property
    def open_session(self) -> UpstreamSession | None:
        """The session, if it is open now."""
        session = self._session
        return session if session is not None and session.exchange.failure is None else None

    @property
    def transport(self) -> str:
        """The transport of the open session; empty without one."""
        session = self.open_session
        return "" if session is None else session.exchange.wire.transport

    @property
    def has_had_tasks(self) -> bool:
        """True if its process has had tasks, whose results clients may query again."""
        return self.open_session is not None and self.open_session.tasks.has_any

    @property
    def has_tasks(self) -> bool:
        """True if the session has open tasks, or calls that are tasks of ours."""
        session = self.open_session
        if session is None:
            return False
        calls = session.calls.values()
        return bool(session.tasks) or any(call.context.task is not None for call in calls)

    @property
    def is_opening(self) -> bool:
        """True while a session is being opened."""
        return self._opening is not None

    @property
    def is_unused(self) -> bool:
        """True if it has no session, no calls and no subscriptions."""
        idle = self.open_session is None and self._opening is None
        return idle and not self.busy and not self.subscriptions

    async def session(self) -> UpstreamSession:
        """Return the open session, opening one if necessary; raises TargetError."""
        session = self.open_session
        if session is not None:
            return session
        if self._closed:
            raise closed_error(self.address.name)
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.create_task(self._open())
            opening.add_done_callback(self._opening_done)
        limits = self.policy.limits
        # A cancelled waiter must not cancel the task for the others.
        await asyncio.wait({opening}, timeout=None if limits.install is None else limits.init_s)
        if not opening.done():
            name = self.address.name
            why = f"{name} is still being installed or started; try again in a minute"
            raise TargetError(why, kind=INSTALLING, server=name)
        if opening.cancelled():  # by `close`, not by a waiter
            raise closed_error(self.address.name)
        return opening.result()

    def begin(self) -> None:
        """Count a call that is about to use the connection."""
        self.busy += 1
        if self.state in _INACTIVE:
            self.state = TABLE[self.state, _CALLED]

    def end(self, answered: bool) -> None:
        """Count the end of a call; `answered` if the upstream responded."""
        self.busy -= 1
        if answered and (self._backoff.failures or self._breaker.failures):
            self._backoff.succeeded()
            self._breaker.succeeded()
        if self.busy:
            return
        if self.state is _ACTIVE:
            self.state = TABLE[self.state, _DRAINED]
        if not answered and self._breaker.is_open:
            session = self.open_session
            if session is not None:
                self._discard(session)
        if self._idle_timer is None or self.subscriptions:
            self._start_idle_timer()
        else:
            self._idle_since = self._now()

    async def set_level(self, level: str) -> None:
        """Set the upstream's log level, now and in every later session."""
        self.level = level
        session = self.open_session
        if session is not None:
            await self._apply_level(session)

    def logs_at(self, level: str) -> bool:
        """True if the upstream's log level includes this one."""
        return bool(self.level) and is_level_enabled(level, self.level)

    async def subscribe(self, uri: str, subscriber: Session) -> None:
        """Subscribe to a resource; raises the upstream's error if it refuses."""
        session = await self.session()
        if self.substitute is not None:
            await self.substitute.subscribe(uri, subscriber)
            return
        while (settled := self._subscribing.get(uri)) is not None:
            await asyncio.wait({settled})  # the same subscription is pending, and may fail
            session = await self.session()
        holders = self.subscriptions.get(uri)
        if holders is not None:
            holders.add(subscriber)
            return
        self.subscriptions[uri] = {subscriber}
        settled = self._subscribing[uri] = asyncio.get_running_loop().create_future()
        try:
            if not session.modern:
                await self._request(session, "resources/subscribe", uri=uri)
            else:
                self._listen(session)
        except BaseException:
            self.subscriptions.pop(uri, None)
            self._start_idle_timer()
            raise
        finally:
            del self._subscribing[uri]
            settled.set_result(None)

    async def unsubscribe(self, uri: str, subscriber: Session) -> None:
        """Remove a subscriber; the last one ends the subscription at the upstream."""
        if self.substitute is not None:
            await self.substitute.unsubscribe(uri, subscriber)
            return
        holders = self.subscriptions.get(uri, set())
        holders.discard(subscriber)
        if holders or self.subscriptions.pop(uri, None) is None:
            return
        session = self.open_session
        if session is not None and session.modern:
            self._listen(session)
        elif session is not None:
            with contextlib.suppress(McpError, TargetError):
                await self._request(session, "resources/unsubscribe", uri=uri)
        self._start_idle_timer()

    async def close(self) -> None:
        """End the session, and refuse to open another."""
        self._closed = True
        if self._opening is not None and self.install == INSTALLING:
            # An installer that is interrupted leaves damaged files, for others too.
            await first_of(asyncio.wait({self._opening}), self.policy.installs.over.wait())
        for task in (self._opening, self._listening, self._reconnecting):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        session, self._session = self._session, None  # so that its end does not count as a loss
        if session is not None:
            self._close_session(session)
        await self._closing.wait()
        if self.state is not ConnectionState.DISCONNECTED:
            self._fire(ConnectionEvent.CLOSED)

    async def _open(self) -> UpstreamSession:
        await self._wait_for_backoff()
        self._fire(ConnectionEvent.NEEDED)
        session = UpstreamSession(self.address.name, self.owner, self._watcher, self.policy.may_ask)
        session.hides_tasks = self.policy.hides_tasks
        session.is_told = bool(self.declared)
        await self._handshake(session)
        self._session = session
        session.exchange.on_lost = lambda failure: self._lost(session, failure)
        if session.exchange.failure is not None:  # lost during the handshake
            self._fire(ConnectionEvent.OPENED)
            self._lost(session, session.exchange.failure)
            raise session.exchange.failure.error()
        self._fire(ConnectionEvent.OPENED)
        if self.busy:
            self._fire(ConnectionEvent.CALLED)
        await self._replay(session)
        self._observer.opened(self, session)
        self._start_idle_timer()  # the client it was opened for may have left by now
        return session

    async def _wait_for_backoff(self) -> None:
        left = self._backoff.remaining_s
        name = self.address.name
        if left > self.policy.backoff.wait_s:
            # The reason comes last, since it may end with lines of stderr.
            why = f"{name} failed to start; try again in {left:.0f} s"
            why = f"{why}; last failure: {self._breaker.why}"
            raise TargetError(why, kind="backoff", server=name, retry_after_s=round(left, 1))
        if left:
            await asyncio.sleep(left)

    async def _handshake(self, session: UpstreamSession) -> None:
        """Open the session, in the other era if the first fails, and record a failure."""
        name = self.address.name
        declared = self.owner.capabilities if self.owner is not None else self.declared
        info = self.policy.info
        if self.owner is not None and self.owner.info:
            info = self.owner.info
        limits = self.policy.limits
        try:
            async with self._installing(), asyncio.timeout(limits.start_s):
                self.starts += 1
                self._observer.starting()
                try:
                    await session.open(self.address, declared, info, limits, self.era)
                except TargetError as error:
                    if error.kind not in _ERA_MISMATCH_KINDS or self.era not in _FALLBACK_ERAS:
                        raise
                    # The era is from the last session; the server may have been replaced since.
                    self.era = _FALLBACK_ERAS[self.era]
                    await session.open(self.address, declared, info, limits, self.era)
        except TimeoutError as late:
            notes: list[str] = getattr(late.__cause__, "__notes__", [])
            why = f"was not ready within {limits.start_s:g} s{quoted_stderr(''.join(notes))}"
            self._start_failed(why)
            raise TargetError(f"{name} {why}", kind="timeout", server=name) from None
        except TargetError as error:
            if error.kind == LOGIN:  # the server is fine: a login must not wait for a pause
                self._fire(ConnectionEvent.START_FAILED)
            else:
                self._start_failed(str(error))
            raise
        except Exception as error:  # bugs of our own too: the state must allow another attempt
            self._start_failed(str(error))
            raise
        except asyncio.CancelledError:
            self._fire(ConnectionEvent.CLOSED)
            raise

    @contextlib.asynccontextmanager
    async def _installing(self) -> AsyncGenerator[None, None]:
        """Wait for the turn of an installer, unless the server is probably installed."""
        install = self.policy.limits.install
        if install is None:
            yield
            return
        installs = self.policy.installs
        turn = contextlib.nullcontext() if self._observer.is_listed else None
        self.install = WAITING
        try:
            async with turn or installs.turn(install.package):
                self.install = INSTALLING
                yield
        finally:
            self.install = ""

    def _opening_done(self, opening: "asyncio.Task[UpstreamSession]") -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # retrieved, since all waiters may have left

    async def _replay(self, session: UpstreamSession) -> None:
        """Restore the log level and the subscriptions in a new session."""
        with contextlib.suppress(McpError, TargetError):
            await self._apply_level(session)
        if session.modern:
            self._listen(session)
            return
        for uri in tuple(self.subscriptions):
            with contextlib.suppress(McpError, TargetError):
                await self._request(session, "resources/subscribe", uri=uri)

    async def _apply_level(self, session: UpstreamSession) -> None:
        if self.level and not session.modern and "logging" in session.server.capabilities:
            await self._request(session, "logging/setLevel", level=self.level)

    async def _request(self, session: UpstreamSession, method: str, **params: str) -> None:
        await session.request(method, encode(params), timeout=self.policy.limits.list_s)

    def _listen(self, session: UpstreamSession) -> None:
        """Open the change stream of a modern upstream, which lists the subscriptions."""
        if self._listening is not None:
            self._listening.cancel()
        self._listening = asyncio.create_task(
            keep_listening(session, list(self.subscriptions), self.policy.info)
        )

    def _start_failed(self, why: str) -> None:
        self._fire(ConnectionEvent.START_FAILED)
        self._backoff.failed()
        self._breaker.failed(why)

    def _lost(self, session: UpstreamSession, failure: Failure) -> None:
        if self._session is not session:
            return  # several requests may report the same loss
        self._session = None
        self._fire(ConnectionEvent.LOST)
        if failure.kind != LOGIN:
            self._backoff.failed()
            self._breaker.failed(failure.why)
        self._close_session(session)
        self._reconnect_soon()

    def _reconnect_soon(self) -> None:
        if self.subscriptions and not self._closed and self._reconnecting is None:
            self._reconnecting = asyncio.create_task(self._reconnect())

    async def _reconnect(self) -> None:
        """Reopen the session for its subscribers, as often as it takes."""
        try:
            while self.subscriptions and self.open_session is None and not self._closed:
                await asyncio.sleep(self._backoff.remaining_s)
                try:
                    await self.session()
                except TargetError as error:
                    if error.kind == LOGIN:
                        return  # there is no pause to wait for: a login subscribes again
        finally:
            self._reconnecting = None

    def _close_session(self, session: UpstreamSession) -> None:
        session.closing = True
        self._closing.start(session.exchange.close())

    def _start_idle_timer(self) -> None:
        """Start the idle time, if the connection is idle."""
        if self.busy or self.subscriptions or self.policy.idle_s is None:
            return
        self._idle_since = self._now()
        # Calls do not reset the timer: it checks the time itself, which costs less.
        if self._idle_timer is None and self.open_session is not None:
            self._set_idle_timer(self.policy.idle_s)

    def _set_idle_timer(self, after_s: float) -> None:
        self._idle_timer = asyncio.get_running_loop().call_later(after_s, self._check_idle)

    def _check_idle(self) -> None:
        """Close the session if it has been idle for long enough."""
        self._idle_timer = None
        if self.busy or self.policy.idle_s is None:
            return
        left = self._idle_since + self.policy.idle_s - self._now()
        if left <= _TIMER_SLACK_S and self.has_tasks:
            left = self.policy.idle_s
        if left > _TIMER_SLACK_S:
            self._set_idle_timer(left)
        else:
            self._on_idle_timeout()

    def _discard(self, session: UpstreamSession) -> None:
        """Close a session that is open but has stopped answering; the next call opens another."""
        self._fire(ConnectionEvent.CLOSED)
        self._session = None
        self._close_session(session)
        self._reconnect_soon()

    def stop_if_idle(self) -> None:
        """End the session if nothing uses it; the next call opens another."""
        if not self.has_tasks:
            self._on_idle_timeout()

    def _on_idle_timeout(self) -> None:
        self._idle_timer = None
        session = self.open_session
        if session is None or self.busy or self.subscriptions:
            return
        self._fire(ConnectionEvent.IDLE_TIMEOUT)
        self._session = None
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None
        self._close_session(session)

    def _fire(self, event: ConnectionEvent) -> None:
        self.state = TABLE[self.state, event]
