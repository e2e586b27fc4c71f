"""The login and logout of a person at a server, also in every running Portico of this user.

Its place is a URL, or a server of the config.
"""

import asyncio
import os
import sys
import time

from msgspec import Struct

from portico.commands.console.browser_login import BrowserLogin
from portico.commands.console.parser import URLS
from portico.commands.console.render import Screen
from portico.core.config.auth_settings import MACHINE, AuthSettings
from portico.core.config.paths import config_file, control_folder
from portico.core.config.schema import ServerEntry
from portico.core.model.errors import PorticoError
from portico.core.model.wording import close_matches, did_you_mean
from portico.edge.windows.control import tell_all
from portico.upstream.auth.configured_login import login_store
from portico.upstream.auth.flow import LoginError
from portico.upstream.auth.flow_runner import FlowRunner, address_rule
from portico.upstream.auth.login import BEARER, Login, LoginPlace
from portico.upstream.auth.login_flow import revoke
from portico.upstream.auth.login_store import LoginStore
from portico.upstream.auth.machine_credentials import MachineLogin
from portico.upstream.auth.page_login import PageLogin
from portico.upstream.auth.redirect_listener import RedirectListener
from portico.upstream.auth.web_url import checked_url

_MAX_KEY = 16 * 1024
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


def logout_place(name: str, config: str | None) -> tuple[LoginPlace, AuthSettings]:
    """Return the same for a logout, also of a server that was removed from the config."""
    try:
        return login_place(name, config)
    except PorticoError:
        store = login_store()
        for key, facts in store.all_facts().items():
            login = store.load(key) if facts.place == name else None
            if login is not None:
                return LoginPlace(login.url, name), AuthSettings()
        raise


def login_place(name: str, config: str | None) -> tuple[LoginPlace, AuthSettings]:
    """Return the place and the settings of a login: a URL, or a server of the config."""
    if name.startswith(URLS):
        checked_url(name, "the URL")
        return LoginPlace(name), AuthSettings()
    entry = _entry(name, config)
    if not entry.url:
        raise PorticoError(f"{entry.name} is a command; only a server at a URL has a login")
    if entry.problem:
        raise PorticoError(f"cannot log in at {entry.name}: {entry.problem}")
    wanted = entry.auth.key.lower() or BEARER
    if any(name.lower() == wanted for name in entry.headers):
        raise PorticoError(
            f"the headers of {entry.name} in the config contain {wanted} already; remove it to log "
            "in instead"
        )
    checked_url(entry.url, f"the URL of {entry.name}")
    return LoginPlace(entry.url, entry.name), entry.auth


def _entry(name: str, config: str | None) -> ServerEntry:
    from portico.core.config.read import read

    path = config or config_file()
    if config is None and not os.path.lexists(path):
        raise PorticoError(f"there is no config at {path}; give a URL, or --config FILE")
    servers = read(path, only=(name,)).servers
    if name not in servers:
        meant = did_you_mean(close_matches(name, servers))
        raise PorticoError(f"there is no server {name!r} in {path}{f'; {meant}' if meant else ''}")
    return servers[name]


def read_key(place: LoginPlace) -> str:
    """Read a key without an echo; without a terminal, read one line. Raises PorticoError."""
    if sys.stdin.isatty():
        from getpass import getpass

        key = getpass(f"key for {place.shown}: ")
    else:
        key = sys.stdin.readline(_MAX_KEY)
    key = key.strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise PorticoError("the key must be one word of printable ASCII; nothing was stored")
    return key
