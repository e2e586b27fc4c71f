"""The login and logout of a person at a server, also in every running Portico of this user."""

import asyncio
import os
import sys
import time
from typing import Any

from msgspec import Struct

from portico.auth.flow import LoginError
from portico.auth.flow_runner import FlowRunner, address_rule, probe
from portico.auth.login import Login, LoginPlace
from portico.auth.login_flow import LoginSettings, log_in, revoke
from portico.auth.login_store import LoginStore
from portico.auth.redirect_listener import RedirectListener
from portico.config.auth_settings import AuthSettings
from portico.config.paths import control_folder
from portico.console.browser_login import BrowserLogin
from portico.console.render import Screen
from portico.model.errors import PorticoError
from portico.windows.control import send_command, socket_names

_TELL_S = 60.0


class ServerLogin(Struct, frozen=True):
    """The login at one place."""

    place: LoginPlace
    settings: AuthSettings
    store: LoginStore

    async def obtain(
        self, scopes: tuple[str, ...], within_s: float, *, opens_browser: bool
    ) -> tuple[Login, list[str]]:
        """Log in and store it; return the servers that use it now, too. Raises PorticoError."""
        place = self.place
        listener = RedirectListener(place.shown)
        browser = BrowserLogin(Screen(sys.stderr), listener, opens_browser=opens_browser)
        try:
            rule = await address_rule(place.url, self.settings.issuer)
            settings = LoginSettings(
                place=place,
                auth=self.settings,
                challenge=await probe(place.url, rule),
                scopes=scopes,
                before=await asyncio.to_thread(self._before),
            )
            flow = log_in(settings, self.store, listener.bind, os.urandom, time.time)
            try:
                async with asyncio.timeout(within_s):
                    login = await FlowRunner(rule, browser.visit).run(flow)
            except TimeoutError:
                why = f"the login was not completed within {within_s:g} s"
                raise LoginError(why) from None
            servers = await self.save(login)
            listener.answer(login.facts.account)
        except LoginError as error:
            listener.answer(why=str(error))
            raise PorticoError(f"cannot log in at {place.shown}: {error}") from None
        finally:
            await listener.close()
        return login, servers

    def _before(self) -> Login | None:
        try:
            return self.store.load(self.place.key)
        except LoginError:
            return None  # damaged, or its key is lost: this login replaces it

    async def save(self, login: Login) -> list[str]:
        """Store a login; return the servers that use it now."""
        async with self.store.lock(self.place.key):
            await asyncio.to_thread(self.store.save, self.place.key, login)
            self.store.clear_refreshing(self.place.key)
        return await self._tell("login")

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
        return await asyncio.to_thread(_tell, do, self.place.key)


def _tell(do: str, place: str) -> list[str]:
    """Tell every running Portico; return the servers that use the change now."""
    folder = control_folder()
    servers: list[Any] = []
    for name in socket_names(folder):
        reply = send_command(folder, name, do, _TELL_S, place=place)
        if reply is not None and isinstance(reply.get("servers"), list):
            servers += reply["servers"]
    return [str(server) for server in servers]
