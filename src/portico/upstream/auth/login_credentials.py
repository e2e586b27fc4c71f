"""The credentials of a server with logins: read from disk, refreshed, never obtained by a page."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from portico.core.config.auth_settings import AuthSettings
from portico.core.state.background import Background
from portico.core.state.report import report
from portico.upstream.auth.challenge import INSUFFICIENT_SCOPE, Challenge, parse_challenge
from portico.upstream.auth.client_identity import REGISTERED
from portico.upstream.auth.flow import (
    GrantRefused,
    IssuerUnavailable,
    LoginError,
    LoginNeeded,
    ScopesRefused,
    shown,
)
from portico.upstream.auth.flow_runner import FlowRunner, address_rule
from portico.upstream.auth.login import (
    BEARER,
    Login,
    LoginFacts,
    LoginPlace,
    is_machine,
    login_command,
)
from portico.upstream.auth.login_store import LoginStore
from portico.upstream.auth.token_request import Tokens, refresh_grant

if TYPE_CHECKING:
    from portico.upstream.auth.login_links import LoginLinks

RETRY_S = 5.0
"""How soon a refresh that failed is tried again while the token is still valid."""
MAX_STEP_UPS = 3
"""How many logins may request a missing scope before the server's word is final."""
_MIN_USE_S = 1.0
"""A new token is used for this long at least, even if it lives shorter: the server decides."""
_PATIENCE_S = 10.0
"""A token that is refused this soon after a refusal is not refreshed again: no loop."""
_CLOSE_S = 5.0
_NEVER = float("inf")
_ENDED = {
    "invalid_grant": "the login has ended",
    "invalid_client": "the authorization server has forgotten Portico",
    "unauthorized_client": "the authorization server does not let Portico refresh the login",
}
"""The refusals that end a login; with any other, it is kept."""
_LATER = ("temporarily_unavailable", "server_error", "slow_down")
_INTERRUPTED = "a refresh was interrupted before its answer was stored, so the login has ended"

Refresh = Callable[[Login], Awaitable[Tokens]]
T = TypeVar("T")


class LoginCredentials:
    """The login of one place. Reading and refreshing happen once for all calls that wait."""

    def __init__(
        self,
        place: LoginPlace,
        settings: AuthSettings,
        store: LoginStore,
        *,
        refresh: Refresh | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`refresh` sends the refresh grant; by default over HTTP."""
        self.name = settings.key.lower() or BEARER
        """The header that carries it."""
        self.place = place
        self.place_key = place.key
        self.needed = ""
        """The reason for which a person must log in; empty if there is none."""
        self.on_changed: Callable[[], None] | None = None
        """Called if another account is logged in now; without it, that one is used at once."""
        self._settings = settings
        self._store = store
        self._refresh_grant = refresh or self._send_refresh
        self._clock = clock
        self._value: str | None = None
        self._until = 0.0
        self._recovered, self._trusted_until = "", 0.0
        """The token of the last refresh after a refusal, and until when another refusal of it means
        that the server does not accept the login."""
        self._unsaved: Login | None = None
        """New tokens that could not be stored."""
        self._links: LoginLinks | None = None
        self._lock = asyncio.Lock()
        self._running = Background()
        self._asked: Mapping[str, int] = {}
        """How many logins in a row have requested a missing scope."""
        self.account = self._account()
        """The id of the login in use; empty without one."""

    def header(self) -> str | None:
        """Return the value to send now: empty for none, None if `obtain` must be awaited first."""
        return self._value if self._clock() < self._until else None

    async def obtain(self) -> None:
        """Read the login, and refresh it if it is due; raises LoginError."""
        await self._once(self._obtain())

    async def refused(self, status: int, challenge: str) -> bool:
        """Return True if the request can be sent once more; raises LoginNeeded if a person must
        log in first."""
        found = parse_challenge(challenge)
        if status == 403 and found.error == INSUFFICIENT_SCOPE:
            await self._once(self._step_up(self._value or "", found))
            return True
        if status != 401:
            return False
        await self._once(self._recover(self._value or "", found))
        return True

    def adopt(self) -> None:
        """Use the login that is stored now, of any account."""
        self.account = self._account()
        self._forget()

    def accepted(self) -> None:
        """Record that the server returned its lists: without a login, none is needed any more."""
        if not self._value:
            self.needed = ""

    async def close(self) -> None:
        """Let a refresh finish, within a limit: its answer must be stored."""
        await self._running.wait(_CLOSE_S)

    def links(self) -> "LoginLinks | None":
        """Return the links to this login; None if calls get none."""
        if self._links is None and self._settings.links:
            from portico.upstream.auth.login_links import LoginLinks  # few clients can show one

            self._links = LoginLinks(self.place, self._settings, self._store)
        return self._links

    def is_stale(self) -> bool:
        """True if another login is stored than the one in use."""
        return self._account() != self.account or (self._facts() is not None and not self._value)

    def status(self) -> dict[str, Any] | None:
        """Return the facts for people; None without a login that is needed."""
        facts = self._facts()
        if facts is None and not self.needed:
            return None
        return login_status(self.place, facts, self.needed)

    async def _once(self, work: Coroutine[Any, Any, None]) -> None:
        """Run in a task of its own: a caller that leaves must not interrupt a refresh."""
        task = self._running.start(self._locked(work))
        task.add_done_callback(_retrieve)
        await asyncio.shield(task)

    async def _locked(self, work: Coroutine[Any, Any, None]) -> None:
        async with self._lock:
            await work

    async def _obtain(self) -> None:
        if self.header() is not None:
            return  # another call was faster
        login = await self._load()
        if login is None:
            await self._missing(None, "")
        elif self._clock() < login.fresh_until:
            self._use_login(login)
        else:
            await self._renew(login)

    async def _recover(self, refused: str, challenge: Challenge) -> None:
        """Find a login that was not refused: a newer one on disk, or a refreshed one."""
        if self._value and self._value != refused:
            return  # another call was faster
        login = await self._load()
        if login is None:
            await self._missing(challenge, refused)
            return
        if login.value != refused:
            self._use_login(login)
            return
        is_known = login.access == self._recovered and self._clock() < self._trusted_until
        if not self._can_renew(login) or is_known:
            raise self._need("refused the login (HTTP 401)", challenge.scopes)
        await self._renew(login, was_refused=True)
        self._recovered = (self._value or "").removeprefix("Bearer ")
        self._trusted_until = min(self._until, self._clock() + _PATIENCE_S)

    async def _load(self) -> Login | None:
        """Return the stored login of this account; raises LoginError."""
        if self._unsaved is not None:
            return await self._save(self._unsaved)
        try:
            login = await _in_thread(self._store.load, self.place.key)
        except LoginError as error:
            raise self._need(f"cannot use its login: {error}") from None
        if login is not None and not self._is_own(login.facts):
            login = None  # the config has changed
        account = self._account() if login is None else login.facts.id
        if account != self.account:
            if self.on_changed is not None:
                self.on_changed()
                raise LoginError("has another login now; try again")
            self.account = account
        if login is not None and login.facts.ended:
            raise self._need(f"requires a login: {login.facts.ended}")
        return login

    async def _renew(self, login: Login, *, was_refused: bool = False) -> None:
        """Refresh a login, unless another process did so meanwhile."""
        is_valid = self._clock() < login.facts.expires and not was_refused
        if not self._can_renew(login):
            if is_valid:
                self._use(login.value, login.facts.expires)
                return
            raise self._need("requires a login: the last one has expired")
        try:
            async with self._store.lock(self.place.key):
                stored = await self._load()  # read again under the lock
                if stored is None:
                    self._forget()
                    raise self._need("is logged out")
                if stored.access != login.access and self._clock() < stored.fresh_until:
                    self._use_login(stored)
                else:
                    self._use_login(await self._refresh(stored))
        except LoginNeeded:
            raise
        except (IssuerUnavailable, LoginError):
            if not is_valid:
                raise
            self._use(login.value, min(login.facts.expires, self._clock() + RETRY_S))

    async def _refresh(self, login: Login) -> Login:
        """Send the refresh grant and store its answer; the lock is held."""
        key, store = self.place.key, self._store
        was_interrupted = store.is_refreshing(key)
        store.mark_refreshing(key)  # stays if the answer is lost
        try:
            tokens = await self._refresh_grant(login)
        except GrantRefused as refused:
            return await self._ended(login, refused, was_interrupted)
        self._unsaved = login.renewed(tokens, self._clock())
        return await self._save(self._unsaved)

    async def _save(self, renewed: Login) -> Login:
        """Store new tokens before they are used; where that fails, this process still has them."""
        key, store = self.place.key, self._store
        facts = store.facts(key)
        if facts is not None and facts.id != renewed.facts.id:
            self._unsaved = None
            return renewed  # another account is stored by now, and never overwritten
        try:
            await _in_thread(store.save, key, renewed, is_renewed=True)
            store.clear_refreshing(key)
        except LoginError as error:
            report(f"the new login of {self.place.shown} is lost when this process ends: {error}")
        else:
            self._unsaved = None
        return renewed

    async def _ended(self, login: Login, refused: GrantRefused, was_interrupted: bool) -> Login:
        """End a login that was refused; return a newer one if there is one."""
        key, store = self.place.key, self._store
        stored = await self._load()
        if stored is not None and stored.refresh != login.refresh:
            return stored  # by a process without the lock; never deleted
        store.clear_refreshing(key)
        if refused.code in _LATER:
            raise IssuerUnavailable(str(refused))
        why = _ENDED.get(refused.code, "")
        if not why:
            raise self._need(f"cannot refresh its login: {refused}")
        if refused.code == "invalid_grant" and was_interrupted:
            why = _INTERRUPTED
        if refused.code != "invalid_grant" and login.client.kind == REGISTERED:
            store.save_client(login.facts.issuer, None)  # registered again by the next login
        await _in_thread(store.save, key, login.without_tokens(why), is_renewed=True)
        self._forget()
        raise self._need(f"requires a login: {why}")

    async def _send_refresh(self, login: Login) -> Tokens:
        rule = await address_rule(self.place.url, self._settings.issuer)
        flow = refresh_grant(login.endpoint, login.refresh, login.resource)
        return await FlowRunner(rule).run(flow)

    def _use_login(self, login: Login) -> None:
        if login.facts.id != self.account:
            return  # another account was adopted meanwhile
        self.name, self.needed, self._asked = login.header.lower(), "", login.asked
        self._use(login.value, max(login.fresh_until, self._clock() + _MIN_USE_S))

    def _use(self, value: str, until: float) -> None:
        self._value, self._until = value, until

    def _forget(self) -> None:
        self._value, self._until, self.needed = None, 0.0, ""

    def _need(self, why: str, scopes: Sequence[str] = ()) -> LoginNeeded:
        self.needed = why
        return LoginNeeded(why, login_command(self.place, scopes), scopes)

    def _facts(self) -> LoginFacts | None:
        """Return the facts of the stored login that is used here."""
        facts = self._store.facts(self.place.key)
        return facts if facts is not None and self._is_own(facts) else None

    async def _step_up(self, refused: str, challenge: Challenge) -> None:
        """Raise the login that a call lacks scopes for; it ends after a few that did not help."""
        if challenge.problem:
            why = f"requires {challenge.problem}, which Portico does not request (HTTP 403)"
            raise ScopesRefused(why)
        if self._value and self._value != refused:
            return  # another call was faster
        facts = self._facts()
        granted = () if facts is None else facts.scopes
        missing = tuple(scope for scope in challenge.scopes if scope not in granted)
        wanted = missing or challenge.scopes
        if not wanted:
            why = "refuses the call for its scopes (HTTP 403), and names none; if you know them,"
            raise ScopesRefused(f"{why} run `{login_command(self.place)} --scope NAME`")
        logins = max((self._asked.get(scope, 0) for scope in wanted), default=0)
        if logins >= MAX_STEP_UPS:
            raise ScopesRefused(
                f"refuses the scopes {shown(' '.join(wanted))} (HTTP 403), though {logins} logins "
                "requested them; the account may lack these rights there",
                wanted,
            )
        await self._more_scopes(wanted)

    async def _more_scopes(self, scopes: tuple[str, ...]) -> None:
        """Raise LoginNeeded: only a person can agree to more scopes."""
        words = shown(" ".join(scopes))
        raise self._need(f"requires more scopes: {words} (HTTP 403)", scopes)

    # Where machines differ from people.

    def _is_own(self, facts: LoginFacts) -> bool:
        return not is_machine(facts.id)

    def _account(self) -> str:
        facts = self._facts()
        return "" if facts is None else facts.id

    def _can_renew(self, login: Login) -> bool:
        return bool(login.refresh)

    async def _missing(self, challenge: Challenge | None, refused: str) -> None:
        """Send no credentials until the server requires a login; then only a person can help."""
        if challenge is None:
            self._use("", _NEVER)
            return
        self._forget()
        why = "requires a login (HTTP 401)" if not refused else "is logged out"
        raise self._need(why, challenge.scopes)


async def _in_thread(work: Callable[..., T], *args: Any, **more: Any) -> T:
    """Run work that may wait for the disk or the keyring; here, if no thread can be started."""
    try:
        return await asyncio.to_thread(work, *args, **more)
    except RuntimeError:
        return work(*args, **more)


def _retrieve(task: "asyncio.Task[None]") -> None:
    if not task.cancelled():
        task.exception()  # all callers may have left


def login_status(place: LoginPlace, facts: LoginFacts | None, needed: str = "") -> dict[str, Any]:
    """Return a login for people: its account, scopes, and how long it lasts."""
    known = facts or LoginFacts(id="", place=place.shown)
    if known.ended and not needed:
        needed = f"requires a login: {known.ended}"
    command = login_command(place)
    return {
        "account": known.account,
        "issuer": known.issuer,
        "scopes": list(known.scopes),
        "expires": known.expires or None,
        "ends": known.ends or None,
        "refreshes": known.refreshes,
        "needed": needed,
        "problem": f"{place.shown} {needed}; run `{command}`" if needed else "",
        "command": command,
    }
