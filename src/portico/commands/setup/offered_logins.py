"""Logins that `portico init` offers for servers at URLs that were imported."""

import asyncio
from collections.abc import Iterator, Sequence

from portico.commands.console.dialog import Dialog
from portico.commands.console.login_place import login_place
from portico.commands.console.server_login import WITHIN_S, ServerLogin
from portico.commands.setup.import_plan import PlannedServer
from portico.core.model.errors import PorticoError
from portico.upstream.auth.configured_login import login_store


class OfferedLogins:
    """Logs in after an answer of the person or by a flag, never by `--yes`."""

    def __init__(self, dialog: Dialog, config: str | None, *, offers: bool) -> None:
        """Without `offers` there are no questions."""
        self._dialog = dialog
        self._config = config
        self._asks = offers and dialog.asks

    def run(self, imported: Sequence[PlannedServer], named: Sequence[str]) -> list[str]:
        """Log in at the named servers, and ask about each other one; return the servers that are
        left."""
        left = [name for name in _remote(imported) if name not in named]
        if self._dialog.dry_run:
            return [*named, *left]
        wanted = [*named, *(name for name in left if self._is_wanted(name))]
        done = [name for name in wanted if self._log_in(name)]
        return [name for name in (*named, *left) if name not in done]

    def _is_wanted(self, name: str) -> bool:
        question = f"Log in at {name} now, in your browser? [y/N] "
        return self._asks and self._dialog.choose(question, "ny") == "y"

    def _log_in(self, name: str) -> bool:
        try:
            place, settings = login_place(name, self._config)
            store = login_store()
            store.check_writable()
            login = ServerLogin(place, settings, store)
            asyncio.run(login.obtain((), WITHIN_S, opens_browser=True))
        except PorticoError as error:  # the rest of the setup is done, and stays
            self._dialog.note(str(error))
            return False
        self._dialog.out.print(f"logged in at {name}")
        return True


def _remote(imported: Sequence[PlannedServer]) -> Iterator[str]:
    """The servers that may require a login: those at a URL without headers of their own."""
    for one in imported:
        if "url" in one.server.entry and "headers" not in one.server.entry:
            yield one.name
