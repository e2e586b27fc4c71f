"""The login and logout of a person at a server, also in every running Portico of this user."""

import asyncio
import sys
import time

from msgspec import Struct

from portico.commands.console.browser_login import BrowserLogin
from portico.commands.console.render import Screen
from portico.core.config.auth_settings import MACHINE, AuthSettings
from portico.core.config.paths import control_folder
from portico.core.model.errors import PorticoError
from portico.edge.windows.control import tell_all
from portico.upstream.auth.flow import LoginError
from portico.upstream.auth.flow_runner import FlowRunner, address_rule
from portico.upstream.auth.login import Login, LoginPlace
from portico.upstream.auth.login_flow import revoke
from portico.upstream.auth.login_store import LoginStore
from portico.upstream.auth.machine_login import MachineLogin
from portico.upstream.auth.page_login import PageLogin
from portico.upstream.auth.redirect_listener import RedirectListener

WITHIN_S = 600.0
"""How long a person may take to log in."""


class ServerLogin(Struct, frozen=True):
    """The login at one place."""

    place: LoginPlace
    settings: AuthSettings
    store: LoginStore

    async def obtain(
        self, scopes: tuple[str, ...], within_s: float, *, opens_browser: bool
    ) -> tuple[Login, list[str]]:
        """Log in and store it; return the servers that use it now, too. Raises PorticoError."""
        running: list[str] = []

        async def store(login: Login) -> None:
            running.extend(await self.save(login))

        try:
            if self.settings.grant == MACHINE:
                machine = MachineLogin(self.place, self.settings, time.time)
                before = await asyncio.to_thread(self._page.before)
                login = await machine.obtain(before, scopes=scopes)
                await store(login)
                return login, running
            listener = RedirectListener(self.place.shown)
            browser = BrowserLogin(Screen(sys.stderr), listener, opens_browser=opens_browser)
            visit = browser.visit
            return await self._page.obtain(scopes, within_s, listener, visit, store), running
        except LoginError as error:
            raise PorticoError(f"cannot log in at {self.place.shown}: {error}") from None

    async def save(self, login: Login) -> list[str]:
        """Store a login; return the servers that use it now."""
        await self._page.save(login)
        return await self._tell("login")

    @property
    def _page(self) -> PageLogin:
        return PageLogin(self.place, self.settings, self.store)

    async def end(self) -> tuple[bool, str, list[str]]:
        """Revoke the login where the server offers that, then forget it in any case. Return whether
        there was one, why it is not revoked, and the servers that know it."""
        login, problem = None, ""
        async with self.store.lock(self.place.key):
            try:
                login = await asyncio.to_thread(self.store.load, self.place.key)
                if login is not None and login.revocation_endpoint:
                    rule = await address_rule(self.place.url, self.settings.issuer)
                    await FlowRunner(rule).run(revoke(login))
            except LoginError as error:
                problem = str(error)
            self.store.remove(self.place.key)
        is_known = login is not None or bool(problem)
        return is_known, problem, await self._tell("logout") if is_known else []

    async def _tell(self, do: str) -> list[str]:
        """Tell every running Portico; return the servers that use the change now."""
        return await asyncio.to_thread(tell_all, control_folder(), do, place=self.place.key)
