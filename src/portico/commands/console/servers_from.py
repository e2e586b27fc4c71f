"""`portico servers add NAME --from SOURCE`: a server.json of the registry, or an .mcpb bundle.

Everything that would run is shown first; nothing is unpacked, written or started before a yes.
"""

import argparse
import asyncio
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from portico.commands.console.dialog import Dialog
from portico.commands.console.form import Form, can_ask, is_confirmed
from portico.commands.console.parser import URLS
from portico.commands.console.published_secrets import keyring_secrets
from portico.commands.console.render import Screen, Ticker
from portico.commands.console.secret_values import keyring_store
from portico.commands.published.settings import PublishedError, Setting, Values
from portico.commands.published.source import PublishedServer, planned_server
from portico.core.config.expand import is_reference


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
        unasked = "nothing was added: there is no terminal to confirm at; add --yes"
        if not options.yes and not asyncio.run(is_confirmed("Add it?", unasked)):
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


def given_values(
    name: str, settings: tuple[Setting, ...], pairs: list[tuple[str, str]], *, may_ask: bool
) -> Values:
    """Return the values that a person gave, and those that are typed now; raises PublishedError."""
    given: dict[str, list[str]] = {}
    for key, value in pairs:
        given.setdefault(key, []).append(value)
    known = {one.key: one for one in settings}
    for key in given:
        if key not in known:
            shown = f"it has {', '.join(known)}" if known else "it has none"
            raise PublishedError(f"there is no setting {key!r}; {shown}")
    asked = [one for one in settings if not one.is_secret and one.key not in given]
    if asked and may_ask and can_ask(Screen(sys.stderr)):
        given |= asyncio.run(_asked(name, asked))
    missing = [one.key for one in settings if one.is_missing and one.key not in given]
    if missing:
        shown = " ".join(f"--set {key}=VALUE" for key in missing)
        raise PublishedError(f"it needs values; add {shown}")
    found = {key: known[key].given(values) for key, values in given.items()}
    return found | {one.key: _referred(one, name, found) for one in settings if one.is_secret}


def _referred(setting: Setting, server: str, given: Values) -> tuple[str, ...]:
    """A secret as the config refers to it: never its value."""
    values = given.get(setting.key, ())
    if values and all(map(is_reference, values)):
        return values
    return (setting.reference(server),) if values or setting.is_required else ()


async def _asked(name: str, settings: list[Setting]) -> dict[str, list[str]]:
    screen = Screen(sys.stderr)
    params = {
        "message": "its settings",
        "requestedSchema": {
            "type": "object",
            "properties": {one.key: _field(one) for one in settings},
            "required": [one.key for one in settings if one.is_missing],
        },
    }
    answer = await Form(screen, name, Ticker(screen)).answer(params)
    if answer["action"] != "accept":
        raise PublishedError("nothing was added: its settings were not given")
    lists = {one.key for one in settings if one.is_list}
    return {
        key: str(value).split(os.pathsep) if key in lists else [_as_text(value)]
        for key, value in answer["content"].items()
    }


def _field(setting: Setting) -> dict[str, Any]:
    kind = setting.kind if setting.kind in ("number", "boolean") else "string"
    about = setting.title if not setting.is_list else f"{setting.title} (several: {os.pathsep})"
    field: dict[str, Any] = {"type": kind, "title": setting.key, "description": about}
    if setting.choices:
        field["enum"] = list(setting.choices)
    if setting.default:
        about = f"{about} (default {os.pathsep.join(setting.default)})".strip()
        field["description"] = about
    return field


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def show_planned(name: str, source: str, planned: PublishedServer, entry: dict[str, Any]) -> None:
    """Show all that a server would run."""
    screen = Screen(sys.stderr)
    if planned.others:
        screen.print(f"{planned.title} is available as {planned.others}; --use picks another")
    screen.print(f"{name}: {planned.title}, from {source}", "bold")
    if "url" in entry:
        screen.print(f"  URL:         {entry['url']}")
        screen.print(f"  headers:     {_names(entry.get('headers', {}))}")
        return
    screen.print(f"  command:     {shlex.join([entry['command'], *entry['args']])}")
    screen.print(f"  environment: {_names(entry.get('env', {}))}")
    screen.print(f"  folder:      {entry.get('cwd') or 'the folder of each window'}")
    if planned.unpacked:
        screen.print(f"  unpacks:     {planned.unpacked} into {entry['cwd']}")


def _names(pairs: dict[str, str]) -> str:
    """The names of variables or headers, and the references that they get."""
    shown = [f"{key} = {one}" if is_reference(one) else key for key, one in pairs.items()]
    return ", ".join(shown) or "nothing is added"
