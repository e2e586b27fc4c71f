"""Imports servers for `import`, `migrate` and `init`: shows, prompts, writes.

`import_plan.py` decides what is new or changed; `source.py` reads the files of clients.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from portico.commands.console.argument_types import repeatable
from portico.commands.console.parser import Parser
from portico.commands.console.secret_values import (
    KEEP,
    KEYRING,
    NO_KEYRING,
    VARIABLE,
    inputs_of,
    keyring_store,
    plain_secrets,
    variable_for,
    with_answers,
    with_references,
    with_variables,
)
from portico.commands.setup.import_plan import (
    CHANGED,
    KNOWN,
    NEW,
    SKIPPED,
    ImportPlan,
    PlannedServer,
    import_changes,
    plan_import,
    record_import,
)
from portico.commands.setup.moves import FileChanges
from portico.commands.setup.source import Source, read_source
from portico.core.config.client_table import SOURCES, format_of, this_system
from portico.core.config.paths import config_file
from portico.core.documents.problems import ConfigError, suggestion
from portico.core.model.errors import PorticoError
from portico.core.model.wording import counted

_SECRETS = (KEEP, VARIABLE, KEYRING)


def add_move_options(parser: Parser) -> None:
    """Add the options of the commands that change a client's file or the config."""
    parser.add_config()
    what = "do what is shown, without questions"
    parser.add_argument("--yes", "-y", action="store_true", help=what)
    parser.add_flag("--dry-run", "show the changes as a diff, and make none")


def add_import_options(parser: Parser) -> None:
    """Add the options of an import."""
    repeatable(parser.add_argument, "--only", str, "NAME", "import this server only")
    add_secrets(parser)


def add_secrets(parser: Parser) -> None:
    """Add --secrets."""
    what = "plain secrets: keep them as they are, refer to variables (env), or use the keyring"
    parser.add_argument("--secrets", choices=_SECRETS, help=what)


def config_of(options: argparse.Namespace) -> str:
    """The config that a command changes."""
    return os.path.abspath(options.config or config_file())


def sources_of(word: str) -> list[Source]:
    """Read the files of a client by its name, or one file; ConfigError if there is none."""
    row = SOURCES.get(word)
    if row is not None:
        paths = row.sources(this_system())
        if not paths:
            where = row.file(this_system())
            raise ConfigError(f"{row.title} has no file to import from: {where} does not exist")
        return [read_source(path, row) for path in paths]
    if not os.path.exists(word) and not {".", os.sep} & set(word):
        hint = suggestion(word, SOURCES)
        raise ConfigError(f"there is no client {word!r}, and no such file; {hint}")
    path = os.path.abspath(word)
    row = format_of(path)
    is_of_user = row is not None and path in row.sources(this_system())
    return [read_source(path, row, is_of_project=not is_of_user)]


class Imported(Struct):
    """The servers of one source that are in the config now."""

    source: Source
    servers: list[PlannedServer]
    """Those imported now or before, and not changed since."""
    has_changes: bool


class Importer:
    """Imports sources into a config, one after the other."""

    def __init__(self, files: FileChanges, config: str, secrets: str | None) -> None:
        self._files = files
        self._dialog = files.dialog
        self._config = config
        self._secrets = secrets

    def run(self, source: Source, only: Sequence[str] = ()) -> Imported:
        """Show what a source has, ask, and write it to the config."""
        plan = plan_import(source, self._config)
        _check_only(plan, only)
        self._show(plan, only)
        open_ones = [one for one in plan.of(NEW, CHANGED) if _is_wanted(one, only)]
        known = [one for one in plan.of(KNOWN) if _is_wanted(one, only)]
        picked = self._picked(open_ones)
        if not picked and not source.tables:
            return Imported(source, known, False)
        entries = {one.name: self._entry(one) for one in picked}
        changed = self._files.apply(
            self._config,
            lambda document: import_changes(document, plan, entries),
            [one.server.entry for one in plan.servers],
        )
        if not self._dialog.dry_run:
            record_import(source, picked)
        return Imported(source, [*known, *picked], changed)

    def _show(self, plan: ImportPlan, only: Sequence[str]) -> None:
        dialog, source = self._dialog, plan.source
        dialog.out.print(f"{source.path}:", "bold")
        shown = [one for one in plan.servers if _is_wanted(one, only)]
        width = max((len(one.name) for one in shown), default=0)
        for one in shown:
            for line in _about(one, width):
                dialog.out.print(line)
        if not shown and not source.tables:
            dialog.out.print("  no servers")
        for table, value in source.tables.items():
            dialog.out.print(f"  [{table}] {', '.join(_names(value))}")
        notes = [note for one in shown if one.state in (NEW, CHANGED) for note in one.server.notes]
        for note in (*source.notes, *notes):
            dialog.note(note)

    def _picked(self, open_ones: list[PlannedServer]) -> list[PlannedServer]:
        if not open_ones:
            return []
        dialog = self._dialog
        question = f"Import {counted(len(open_ones), 'server')}? [Y]es, [n]o, [c]hoose: "
        answer = dialog.choose(question, "ync")
        if answer == "n":
            return []
        if answer == "y":
            return open_ones
        return [one for one in open_ones if dialog.confirm(f"Import {one.name}?")]

    def _entry(self, one: PlannedServer) -> dict[str, Any]:
        """The entry to write, with its inputs and secrets where the person keeps them."""
        dialog, entry = self._dialog, dict(one.server.entry)
        if ids := inputs_of(entry):
            entry = self._with_inputs(one.name, entry, ids)
        secrets = plain_secrets(entry)
        if not secrets:
            return entry
        keys = ", ".join(str(at[1]) for at, _ in secrets)
        store = keyring_store()
        how = self._secrets or self._ask_secrets(one.name, keys, has_keyring=store is not None)
        if how == KEYRING and store is None:
            raise PorticoError(NO_KEYRING)
        made, names = with_references(one.name, entry, how, None if dialog.dry_run else store)
        for name in names:
            dialog.note(f"{one.name}: set {name} in the environment of the gateway")
        if how == KEEP:
            dialog.note(f"{one.name}: {keys} is in the config as plain text")
        return made

    def _ask_secrets(self, name: str, keys: str, *, has_keyring: bool) -> str:
        if not self._dialog.asks:
            return KEEP
        places = "[k]eyring, [v]ariable, " if has_keyring else "[v]ariable, "
        question = f"{name}: {keys} is a secret in plain text. Keep it in: {places}[p]lain text: "
        answer = self._dialog.choose(question, "kvp" if has_keyring else "vp")
        return {"k": KEYRING, "v": VARIABLE, "p": KEEP}[answer]

    def _with_inputs(self, name: str, entry: dict[str, Any], ids: list[str]) -> dict[str, Any]:
        store = keyring_store()
        answers: dict[str, str] = {}
        if store is not None and self._dialog.asks:
            asked = {id: self._dialog.value(f"{name}: {id} (Enter to skip): ") for id in ids}
            answers = {id: value for id, value in asked.items() if value}
        made = with_answers(name, entry, answers, store) if store else with_variables(entry)
        for id in ids:
            if id not in answers:
                self._dialog.note(f"{name}: set {variable_for(id)}, its input {id}")
        return made


def _is_wanted(one: PlannedServer, only: Sequence[str]) -> bool:
    return not only or one.name in only or one.server.key in only


def _check_only(plan: ImportPlan, only: Sequence[str]) -> None:
    for name in only:
        if not any(_is_wanted(one, (name,)) for one in plan.servers):
            hint = suggestion(name, (one.name for one in plan.servers)) or "there is none"
            raise ConfigError(f"{plan.source.path}: there is no server {name!r}; {hint}")


def _about(one: PlannedServer, width: int) -> Iterator[str]:
    server = one.server
    said = {NEW: "", CHANGED: "  (changed since it was imported)", KNOWN: "  (imported already)"}
    if one.state == SKIPPED:
        yield f"  {one.name.ljust(width)}  not imported: line {server.line}: {server.problem}"
        return
    yield f"  {one.name.ljust(width)}  {server.shown}{said[one.state]}"
    entry, pad = server.entry, " " * (width + 4)
    if one.state == KNOWN:
        return
    if one.name != server.key:
        yield f"{pad}named {server.key!r} there"
    for key in ("env", "headers"):
        if entry.get(key):
            yield f"{pad}{key}: {', '.join(entry[key])}"
    if entry.get("cwd"):
        yield f"{pad}in {entry['cwd']}"


def _names(value: Any) -> list[str]:
    if isinstance(value, list):
        return [str(one.get("id", "")) for one in value]
    return [str(key) for key in value]
