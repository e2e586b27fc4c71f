"""`portico servers add NAME --from SOURCE`: a server.json of the registry, or an .mcpb bundle.

Everything that would run is shown first; nothing is unpacked, written or started before a yes.
"""

import argparse
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from portico.commands.console.dialog import Dialog
from portico.commands.console.parser import URLS
from portico.commands.console.published_form import given_values, is_agreed, show_planned
from portico.commands.console.published_secrets import keyring_secrets
from portico.commands.console.render import Screen
from portico.commands.console.secret_values import keyring_store
from portico.commands.published.settings import PublishedError
from portico.commands.published.source import planned_server


def add_from(
    options: argparse.Namespace, write: Callable[[dict[str, Any]], None]
) -> dict[str, Any] | None:
    """Show the server that a source describes; write and return its entry after a yes."""
    name, source = options.name, options.source
    if source.startswith(URLS):
        Screen(sys.stderr).print_waiting(f"downloading {source}")
    with ExitStack() as stack:
        try:
            planned = planned_server(name, source, options.use, stack)
            given = given_values(name, planned.settings, options.set, may_ask=not options.yes)
            secrets = keyring_secrets(options, planned.settings, Dialog(yes=options.yes))
            marked = secrets.entry(planned, given)
        except PublishedError as error:
            raise PublishedError(f"{source}: {error}") from None
        marked |= {"tags": options.tag} if options.tag else {}
        marked |= {"enabled": False} if options.disabled else {}
        entry = secrets.shown(marked)
        show_planned(name, source, planned, entry)
        if not options.yes and not is_agreed():
            return None
        planned.unpack()
        try:
            store = keyring_store()
            if store is not None:
                secrets.stored(marked, store)
            write(entry)
        except BaseException:
            if planned.unpacked:
                shutil.rmtree(entry["cwd"], ignore_errors=True)
            raise
    return entry
