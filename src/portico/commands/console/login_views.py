"""Logins for people: the account, its scopes, how long it lasts, and the command to run."""

import time
from collections.abc import Collection, Mapping
from typing import Any

from portico.commands.console.parser import URLS
from portico.commands.console.tables import duration
from portico.core.config.schema import ComponentEntry, ServerEntry
from portico.upstream.auth.login import WARN_S, LoginPlace


def login_line(login: Mapping[str, Any], now: float | None = None) -> str:
    """Return a login in a few words; empty if there is none."""
    now = time.time() if now is None else now
    if login.get("needed"):
        return f"needs a login: run `{login['command']}`"
    words = f"logged in as {login['account']}" if login.get("account") else "logged in"
    if login.get("scopes"):
        words += f" ({' '.join(login['scopes'])})"
    expires, ends = login.get("expires"), login.get("ends")
    if ends:
        return f"{words}, until a login is needed in {_left(ends, now)}"
    if not expires:
        return words
    what = "refreshed in" if login.get("refreshes") else "expires in"
    return f"{words}, {what} {_left(expires, now)}"


def login_warning(server: str, login: Mapping[str, Any] | None, now: float | None = None) -> str:
    """Return the warning about a login that ends soon; empty if it does not."""
    now = time.time() if now is None else now
    ends = None if login is None else login.get("ends")
    if login is None or not ends or login.get("needed") or ends - now > WARN_S:
        return ""
    return f"the login at {server} ends in {_left(ends, now)}; run `{login['command']}`"


def configured_login(entry: ServerEntry | ComponentEntry) -> dict[str, Any]:
    """Return the stored login of a configured server, if it has one, as a part of its status."""
    if not isinstance(entry, ServerEntry) or not entry.url or "$" in entry.url:
        return {}
    from portico.upstream.auth.configured_login import login_credentials

    login = login_credentials(entry.url, entry.headers, entry.name, entry.auth)
    status = None if login is None else login.status()
    return {} if status is None else {"login": status}


def other_logins(shown: Collection[str]) -> list[dict[str, Any]]:
    """Return the logins that are not shown yet: at URLs, and of servers that were removed."""
    from portico.upstream.auth.configured_login import login_store
    from portico.upstream.auth.login_credentials import login_status

    return [
        {"server": facts.place, "login": login_status(_place(facts.place), facts)}
        for facts in login_store().all_facts().values()
        if facts.place not in shown
    ]


def _place(shown: str) -> LoginPlace:
    return LoginPlace(shown) if shown.startswith(URLS) else LoginPlace("https://removed", shown)


def _left(until: float, now: float) -> str:
    return duration(max(0.0, until - now))
