"""`portico servers login` and `logout`: the login at a remote server.

The login itself, which `portico init` offers too: `console/server_login.py`.
"""

import argparse
import os
import sys

from portico.commands.console.render import Screen
from portico.commands.console.server_login import (
    WITHIN_S,
    ServerLogin,
    login_place,
    logout_place,
    read_key,
)
from portico.commands.console.target import run
from portico.upstream.auth.configured_login import login_store
from portico.upstream.auth.login import Login, key_login


def main(options: argparse.Namespace) -> int:
    """Log in or out, and tell every running Portico."""
    find = logout_place if options.action == "logout" else login_place
    place, settings = find(options.name, options.config)
    store = login_store()
    store.check_writable()
    login = ServerLogin(place, settings, store)
    if options.action == "logout":
        return run(_log_out(login, options))
    if options.key:
        return run(_store_key(login, read_key(place), options))
    return run(_log_in(login, options))


async def _log_in(login: ServerLogin, options: argparse.Namespace) -> int:
    scopes = tuple(scope for one in options.scope for scope in one.split())
    within_s = options.timeout or WITHIN_S
    made, running = await login.obtain(scopes, within_s, opens_browser=not options.no_browser)
    return _report(made, running, options)


async def _store_key(login: ServerLogin, key: str, options: argparse.Namespace) -> int:
    made = key_login(login.place, key, login.settings.key, os.urandom(12).hex())
    return _report(made, await login.save(made), options)


def _report(login: Login, running: list[str], options: argparse.Namespace) -> int:
    facts = login.facts
    if options.json:
        told = {"ok": True, "server": facts.place, "account": facts.account, "running": running}
        told |= {"scopes": facts.scopes, "expires": facts.expires or None}
        Screen(sys.stdout).compact(told)
        return 0
    whose = f" as {facts.account}" if facts.account else ""
    scopes = f", with the scopes {' '.join(facts.scopes)}" if facts.scopes else ""
    Screen(sys.stdout).print(f"logged in at {facts.place}{whose}{scopes}")
    return 0


async def _log_out(login: ServerLogin, options: argparse.Namespace) -> int:
    is_known, problem, running = await login.end()
    place = login.place.shown
    if options.json:
        told = {"ok": True, "server": place, "changed": is_known, "problem": problem}
        Screen(sys.stdout).compact({**told, "running": running})
        return 0
    Screen(sys.stdout).print(f"logged out at {place}" if is_known else f"{place} was not logged in")
    if problem:
        words = f"portico: the tokens are forgotten here, but not revoked: {problem}"
        Screen(sys.stderr).print(words)
    return 0
