"""Keeps one way to an upstream: opened on need, watched, closed when idle, opened again."""

import asyncio
import contextlib
from typing import Protocol

from portico.model.errors import McpError, TargetError
from portico.model.session import Session
from portico.protocol.codec import encode
from portico.protocol.eras import is_level_enabled
from portico.state.background import Background
from portico.upstream.backoff import Backoff, CircuitBreaker
from portico.upstream.caller import Caller
from portico.upstream.connection_state import TABLE, ConnectionEvent, ConnectionState
from portico.upstream.handshake import LEGACY_FIRST
from portico.upstream.policy import UpstreamPolicy
from portico.upstream.session import UpstreamSession, Watcher
from portico.upstream.subscription import keep_listening
from portico.wires.wire import Address, Failure

_SOON_S = 0.01
_MISUNDERSTOOD = ("version", "refused", "protocol", "http")
_AT_REST = (ConnectionState.IDLE, ConnectionState.CONNECTED)
_ACTIVE, _CALLED, _RESTED = (
    ConnectionState.ACTIVE,
    ConnectionEvent.CALLED,
    ConnectionEvent.RESTED,
)  # of an enum: slow to look up
_OTHERWISE = {"modern": "auto", "legacy": LEGACY_FIRST}


def shut_down(server: str) -> TargetError:
    """Why nothing can be asked any more of an upstream that we have closed."""
    return TargetError(f"{server} is being shut down", kind="closed", server=server)


class Opened(Protocol):
    """Who is told of every new conversation."""

    def starting(self) -> None:
        """A conversation is about to begin."""
        ...

    def opened(self, line: "UpstreamConnection", upstream_session: UpstreamSession) -> None:
        """A conversation has begun."""
        ...


class UpstreamConnection:
    """One way to an upstream; for all clients, or for one of them alone."""

    def __init__(
        self,
        address: Address,
        policy: UpstreamPolicy,
        breaker: CircuitBreaker,
        watcher: Watcher,
        registry: Opened,
        *,
        owner: Caller | None = None,
        view: str = "",
    ) -> None:
        self.address = address
        self.policy = policy
        self.owner = owner
        self.view = view
        """What its clients have in common: what the upstream offers may depend on it."""
        self.state = ConnectionState.DISCONNECTED
        self.busy = 0
        """Calls under way or waiting for the connection."""
        self.level = ""
        self.subscriptions: dict[str, set[Session]] = {}
        """By URI, the sessions that follow it: the upstream is asked for it once."""
        self.instead: UpstreamConnection | None = None
        """Who is to hear of resources for it, since it is one too many."""
        self.starts = 0
        self.era = policy.era
        """The era to try first."""
        self._breaker = breaker
        self._watcher = watcher
        self._registry = registry
        self._now = asyncio.get_running_loop().time
        self._pause = Backoff(policy.backoff, self._now)
        self._upstream_session: UpstreamSession | None = None
        self._opening: asyncio.Task[UpstreamSession] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._reviving: asyncio.Task[None] | None = None
        self._closing = Background()
        self._following: dict[str, asyncio.Future[None]] = {}
        """By URI, what is done when the upstream has said whether it will have it."""
        self._idle: asyncio.TimerHandle | None = None
        self._rested = 0.0
        self._closed = False

    @property
    def open_leg(self) -> UpstreamSession | None:
        """The conversation, if it is open now."""
        upstream_session = self._upstream_session
        return (
            upstream_session
            if upstream_session is not None and upstream_session.exchange.failure is None
            else None
        )

    @property
    def has_tasks(self) -> bool:
        """True if results are still to come that a client has not fetched."""
        upstream_session = self.open_leg
        return upstream_session is not None and bool(upstream_session.tasks)

    @property
    def is_opening(self) -> bool:
        """True if it is being opened just now."""
        return self._opening is not None

    @property
    def is_needless(self) -> bool:
        """True if nothing of it runs, and nobody would miss it."""
        idle = self.open_leg is None and self._opening is None
        return idle and not self.busy and not self.subscriptions

    async def upstream_session(self) -> UpstreamSession:
        """The open conversation, begun if need be; raises TargetError."""
        upstream_session = self.open_leg
        if upstream_session is not None:
            return upstream_session
        if self._closed:
            raise shut_down(self.address.name)
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.create_task(self._open())
            opening.add_done_callback(self._opened)
        # One who gives up waiting does not end it for the others.
        await asyncio.wait({opening})
        if opening.cancelled():  # by us, and not whoever waits for it
            raise shut_down(self.address.name)
        return opening.result()

    def begin(self) -> None:
        """A call is about to use the line."""
        self.busy += 1
        if self.state in _AT_REST:
            self.state = TABLE[self.state, _CALLED]

    def end(self, answered: bool) -> None:
        """A call is over; `answered` if the upstream showed that it lives."""
        self.busy -= 1
        if answered and (self._pause.failures or self._breaker.failures):
            self._pause.succeeded()
            self._breaker.succeeded()
        if self.busy:
            return
        if self.state is _ACTIVE:
            self.state = TABLE[self.state, _RESTED]
        if not answered and self._breaker.is_open:
            upstream_session = self.open_leg
            if upstream_session is not None:
                self._give_up_on(upstream_session)
        if self._idle is None or self.subscriptions:
            self._rest()
        else:
            self._rested = self._now()

    async def set_level(self, level: str) -> None:
        """Have the upstream log from this level on, now and after every new beginning."""
        self.level = level
        upstream_session = self.open_leg
        if upstream_session is not None:
            await self._apply_level(upstream_session)

    def logs(self, level: str) -> bool:
        """True if the upstream was told to log this much."""
        return bool(self.level) and is_level_enabled(level, self.level)

    async def follow(self, uri: str, who: Session) -> None:
        """Hear of changes to a resource; raises the upstream's error if it will not have it."""
        upstream_session = await self.upstream_session()
        if self.instead is not None:
            await self.instead.follow(uri, who)
            return
        while (settled := self._following.get(uri)) is not None:
            await asyncio.wait({settled})  # somebody else asks just now, and may be refused
            upstream_session = await self.upstream_session()
        holders = self.subscriptions.get(uri)
        if holders is not None:
            holders.add(who)
            return
        self.subscriptions[uri] = {who}
        settled = self._following[uri] = asyncio.get_running_loop().create_future()
        try:
            if not upstream_session.modern:
                await self._tell(upstream_session, "resources/subscribe", uri=uri)
            else:
                self._listen(upstream_session)
        except BaseException:
            self.subscriptions.pop(uri, None)
            self._rest()
            raise
        finally:
            del self._following[uri]
            settled.set_result(None)

    async def unfollow(self, uri: str, who: Session) -> None:
        """Do so no longer, if nobody else wants to."""
        if self.instead is not None:
            await self.instead.unfollow(uri, who)
            return
        holders = self.subscriptions.get(uri, set())
        holders.discard(who)
        if holders or self.subscriptions.pop(uri, None) is None:
            return
        upstream_session = self.open_leg
        if upstream_session is not None and upstream_session.modern:
            self._listen(upstream_session)
        elif upstream_session is not None:
            with contextlib.suppress(McpError, TargetError):
                await self._tell(upstream_session, "resources/unsubscribe", uri=uri)
        self._rest()

    async def close(self) -> None:
        """End the conversation, and let nobody begin another."""
        self._closed = True
        for task in (self._opening, self._listening, self._reviving):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        if self._idle is not None:
            self._idle.cancel()
        upstream_session, self._upstream_session = (
            self._upstream_session,
            None,
        )  # how it ends from now on is our own doing
        if upstream_session is not None:
            self._put_away(upstream_session)
        await self._closing.wait()
        if self.state is not ConnectionState.DISCONNECTED:
            self._happens(ConnectionEvent.CLOSED)

    async def _open(self) -> UpstreamSession:
        await self._wait_out_the_pause()
        self._happens(ConnectionEvent.NEEDED)
        self.starts += 1
        self._registry.starting()
        upstream_session = UpstreamSession(
            self.address.name, self.owner, self._watcher, self.policy.may_ask
        )
        await self._greet(upstream_session)
        self._upstream_session = upstream_session
        upstream_session.exchange.when_lost = lambda failure: self._lost(upstream_session, failure)
        if upstream_session.exchange.failure is not None:  # it left while it was being greeted
            self._happens(ConnectionEvent.OPENED)
            self._lost(upstream_session, upstream_session.exchange.failure)
            raise upstream_session.exchange.failure.error()
        self._happens(ConnectionEvent.OPENED)
        if self.busy:
            self._happens(ConnectionEvent.CALLED)
        await self._replay(upstream_session)
        self._registry.opened(self, upstream_session)
        self._rest()  # whoever it was opened for may have left by now
        return upstream_session

    async def _wait_out_the_pause(self) -> None:
        left = self._pause.left_s
        name = self.address.name
        if left > self.policy.backoff.wait_s:
            why = f"failed to start again and again; the next try is in {left:.0f} s"
            why = f"{name} {why}; the last time it {self._breaker.why}"
            raise TargetError(why, kind="backoff", server=name, retry_after_s=round(left, 1))
        if left:
            await asyncio.sleep(left)

    async def _greet(self, upstream_session: UpstreamSession) -> None:
        """Get into conversation, in whichever era that can be; what comes of it is noted."""
        name = self.address.name
        declared = self.owner.capabilities if self.owner is not None else {}
        info = self.policy.info
        if self.owner is not None and self.owner.info:
            info = self.owner.info
        limits = self.policy.limits
        try:
            async with asyncio.timeout(limits.init_s):
                try:
                    await upstream_session.open(self.address, declared, info, limits, self.era)
                except TargetError as error:
                    if error.kind not in _MISUNDERSTOOD or self.era not in _OTHERWISE:
                        raise
                    # It spoke this era the last time; it may have been replaced since.
                    self.era = _OTHERWISE[self.era]
                    await upstream_session.open(self.address, declared, info, limits, self.era)
        except TimeoutError:
            why = f"did not get ready within {limits.init_s:g} s"
            self._refused(why)
            raise TargetError(f"{name} {why}", kind="timeout", server=name) from None
        except Exception as error:  # also where we failed ourselves: it can be tried again
            self._refused(str(error))
            raise
        except asyncio.CancelledError:
            self._happens(ConnectionEvent.CLOSED)
            raise

    def _opened(self, opening: "asyncio.Task[UpstreamSession]") -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # looked at: all who waited may have left

    async def _replay(self, upstream_session: UpstreamSession) -> None:
        """Tell a new conversation what an earlier one was told."""
        with contextlib.suppress(McpError, TargetError):
            await self._apply_level(upstream_session)
        if upstream_session.modern:
            self._listen(upstream_session)
            return
        for uri in tuple(self.subscriptions):
            with contextlib.suppress(McpError, TargetError):
                await self._tell(upstream_session, "resources/subscribe", uri=uri)

    async def _apply_level(self, upstream_session: UpstreamSession) -> None:
        if (
            self.level
            and not upstream_session.modern
            and "logging" in upstream_session.server.capabilities
        ):
            await self._tell(upstream_session, "logging/setLevel", level=self.level)

    async def _tell(self, upstream_session: UpstreamSession, method: str, **params: str) -> None:
        await upstream_session.request(method, encode(params), timeout=self.policy.limits.list_s)

    def _listen(self, upstream_session: UpstreamSession) -> None:
        """Have a modern upstream tell of changes, by a stream that says which."""
        if self._listening is not None:
            self._listening.cancel()
        self._listening = asyncio.create_task(
            keep_listening(upstream_session, list(self.subscriptions), self.policy.info)
        )

    def _refused(self, why: str) -> None:
        self._happens(ConnectionEvent.REFUSED)
        self._pause.failed()
        self._breaker.failed(why)

    def _lost(self, upstream_session: UpstreamSession, failure: Failure) -> None:
        if self._upstream_session is not upstream_session:
            return  # several requests may meet the same end
        self._upstream_session = None
        self._happens(ConnectionEvent.LOST)
        self._pause.failed()
        self._breaker.failed(failure.why)
        self._put_away(upstream_session)
        self._revive_soon()

    def _revive_soon(self) -> None:
        if self.subscriptions and not self._closed and self._reviving is None:
            self._reviving = asyncio.create_task(self._revive())

    async def _revive(self) -> None:
        """Begin again for those who wait for news, as often as it takes."""
        try:
            while self.subscriptions and self.open_leg is None and not self._closed:
                await asyncio.sleep(self._pause.left_s)
                with contextlib.suppress(TargetError):
                    await self.upstream_session()
        finally:
            self._reviving = None

    def _put_away(self, upstream_session: UpstreamSession) -> None:
        upstream_session.closing = True
        self._closing.start(upstream_session.exchange.close())

    def _rest(self) -> None:
        """Begin to count the time without anything to do."""
        if self.busy or self.subscriptions or self.policy.idle_s is None:
            return
        self._rested = self._now()
        # The timer stays set, whatever is called meanwhile: to set one costs more than to look.
        if self._idle is None and self.open_leg is not None:
            self._look_in(self.policy.idle_s)

    def _look_in(self, after_s: float) -> None:
        self._idle = asyncio.get_running_loop().call_later(after_s, self._look)

    def _look(self) -> None:
        """Rest for good, if there was nothing to do for long enough."""
        self._idle = None
        if self.busy or self.policy.idle_s is None:
            return
        left = self._rested + self.policy.idle_s - self._now()
        if left <= _SOON_S and self.has_tasks:
            left = self.policy.idle_s
        if left > _SOON_S:
            self._look_in(left)
        else:
            self._tired()

    def _give_up_on(self, upstream_session: UpstreamSession) -> None:
        """It lives, but has failed everybody for long: who tries next had better begin anew."""
        self._happens(ConnectionEvent.CLOSED)
        self._upstream_session = None
        self._put_away(upstream_session)
        self._revive_soon()

    def _tired(self) -> None:
        self._idle = None
        upstream_session = self.open_leg
        if upstream_session is None or self.busy or self.subscriptions:
            return
        self._happens(ConnectionEvent.TIRED)
        self._upstream_session = None
        if self._listening is not None:
            self._listening.cancel()
            self._listening = None
        self._put_away(upstream_session)

    def _happens(self, event: ConnectionEvent) -> None:
        self.state = TABLE[self.state, event]
