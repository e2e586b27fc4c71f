"""The login of a person over HTTP: from the first request until the login is on disk."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable

from msgspec import Struct

from portico.core.config.auth_settings import AuthSettings
from portico.upstream.auth.flow import LoginError, Visit
from portico.upstream.auth.flow_runner import FlowRunner, address_rule, probe
from portico.upstream.auth.login import Login, LoginPlace
from portico.upstream.auth.login_flow import LoginSettings, log_in
from portico.upstream.auth.login_store import LoginStore
from portico.upstream.auth.redirect_listener import RedirectListener


class PageLogin(Struct, frozen=True):
    """The login at one place, by a page in a browser."""

    place: LoginPlace
    auth: AuthSettings
    store: LoginStore

    async def obtain(
        self,
        scopes: tuple[str, ...],
        within_s: float,
        listener: RedirectListener,
        visit: Callable[[Visit], Awaitable[str]],
        store: Callable[[Login], Awaitable[None]],
    ) -> Login:
        """Log in. `visit` sends the person to a page and returns the URL that the browser ended
        at; `store` keeps the login before the browser shows its last page. Raises LoginError."""
        try:
            rule = await address_rule(self.place.url, self.auth.issuer)
            settings = LoginSettings(
                place=self.place,
                auth=self.auth,
                challenge=await probe(self.place.url, rule),
                scopes=scopes,
                before=await asyncio.to_thread(self.before),
            )
            flow = log_in(settings, self.store, listener.bind, os.urandom, time.time)
            try:
                async with asyncio.timeout(within_s):
                    login = await FlowRunner(rule, visit).run(flow)
            except TimeoutError:
                why = f"the login was not completed within {within_s:g} s"
                raise LoginError(why) from None
            await store(login)
            listener.answer(login.facts.account)
        except LoginError as error:
            listener.answer(why=str(error))
            raise
        finally:
            await listener.close()
        return login

    def before(self) -> Login | None:
        """Return the login that a new one replaces."""
        try:
            return self.store.load(self.place.key)
        except LoginError:
            return None  # damaged, or its key is lost: this login replaces it

    async def save(self, login: Login) -> None:
        """Store a login; raises LoginError."""
        async with self.store.lock(self.place.key):
            await asyncio.to_thread(self.store.save, self.place.key, login)
            self.store.clear_refreshing(self.place.key)
