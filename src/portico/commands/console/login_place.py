"""The input of a login: its place, a URL or a server of the config, and a plain key."""

import os
import sys

from portico.commands.console.parser import URLS
from portico.core.config.auth_settings import AuthSettings
from portico.core.config.paths import config_file
from portico.core.config.schema import ServerEntry
from portico.core.model.errors import PorticoError
from portico.core.model.wording import close_matches, did_you_mean
from portico.upstream.auth.configured_login import login_store
from portico.upstream.auth.login import BEARER, LoginPlace
from portico.upstream.auth.web_url import checked_url

_MAX_KEY = 16 * 1024


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
