"""The credentials of a server at a URL: its stored login, unless its headers have them already."""

from collections.abc import Mapping
from functools import cache

from portico.core.config.auth_settings import MACHINE, AuthSettings
from portico.core.config.paths import state_folder
from portico.core.http1.errors import InvalidRequest
from portico.core.http1.url import parse_url
from portico.upstream.auth.login import BEARER, LoginPlace
from portico.upstream.auth.login_credentials import LoginCredentials
from portico.upstream.auth.login_store import LoginStore

_NO_SETTINGS = AuthSettings()


def login_credentials(
    url: str, headers: Mapping[str, str], name: str = "", settings: AuthSettings = _NO_SETTINGS
) -> LoginCredentials | None:
    """Return the credentials of a server; None if the user gave others, or the URL is not valid."""
    wanted = settings.key.lower() or BEARER
    if any(header.lower() == wanted for header in headers):
        return None
    try:
        if parse_url(url).login:
            return None
    except InvalidRequest:
        return None  # the first request reports it
    place = LoginPlace(url, name)
    if settings.grant == MACHINE:
        from portico.upstream.auth.machine_credentials import (
            MachineCredentials,  # few servers need it
        )

        return MachineCredentials(place, settings, login_store())
    return LoginCredentials(place, settings, login_store())


def login_store() -> LoginStore:
    """Return the logins of this user; one for the whole process."""
    return _store(state_folder())


@cache
def _store(folder: str) -> LoginStore:
    return LoginStore(folder)
