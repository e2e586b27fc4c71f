"""`portico servers add`, `remove`, `enable` and `disable`: change one entry of the config."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from portico.commands.console.given_secrets import GivenSecrets, secret_files
from portico.commands.console.parser import URLS
from portico.commands.console.render import Screen
from portico.commands.console.secret_values import plain_secrets
from portico.core.config.entry import read_server
from portico.core.config.expand import Sources, is_reference
from portico.core.config.paths import BUNDLES, config_file, state_folder
from portico.core.config.schema import file_of
from portico.core.config.values import check_url
from portico.core.documents.edit import add_server, check_name, remove_server, set_enabled
from portico.core.documents.problems import ConfigError, Report
from portico.upstream.process.environment import looks_secret

_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")


def main(options: argparse.Namespace) -> int:
    """Change the config and report the change."""
    path: str = options.config or config_file()
    name: str = options.name
    changed = True
    notes: list[str] | None = []
    if options.action == "add":
        notes = _add(path, options)
        changed = notes is not None
        message = f"added {name} to {path}" if changed else "nothing was added"
    elif options.action == "remove":
        remove_server(path, name)
        notes = [
            f"the files of its bundle remain in {folder}; delete them if nothing uses them"
            for folder in _unpacked(name)
        ]
        notes += [
            f"its secret remains in {file}; delete it if nothing uses it"
            for file in secret_files(path, name)
        ]
        message = f"removed {name} from {path}"
    else:
        changed = set_enabled(path, name, options.action == "enable")
        message = f"{name} is {'now' if changed else 'already'} {options.action}d"
    if options.json:
        told = {"ok": True, "server": name, "config": os.path.abspath(path), "changed": changed}
        Screen(sys.stdout).compact(told)
    else:
        Screen(sys.stdout).print(message)
    for note in notes or ():
        Screen(sys.stderr).print(f"portico: {note}")
    return 0 if changed or options.action != "add" else 1


def _add(path: str, options: argparse.Namespace) -> list[str] | None:
    """Add a server, and return notes about it; None if a person did not agree."""

    def write(entry: dict[str, Any]) -> None:
        _check(path, options.name, entry)
        add_server(path, options.name, entry)

    check_name(path, options.name)
    if options.source is None:
        given = {key: value for key, value in options.env if _is_referenced(key, value)}
        secrets = GivenSecrets(path, options.name, given, options.secrets or "")
        entry = _entry(options, secrets.references())
        _check(path, options.name, entry)
        kept = secrets.store()
        add_server(path, options.name, entry)
        return [*kept, *_notes(options, are_kept=bool(kept))]
    from portico.commands.console.servers_from import add_from

    added = add_from(options, write)
    if added is None:
        return None
    values = (*added.get("env", {}).values(), *added.get("headers", {}).values())
    return [*_unset((*added.get("args", ()), *values))]


def _unpacked(name: str) -> list[str]:
    """The folders of bundles that were added under this name."""
    made = re.compile(rf"{re.escape(name)}-[0-9a-f]{{8}}")
    folder = os.path.join(state_folder(), BUNDLES)
    found = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, one) for one in found if made.fullmatch(one)]


def _command(options: argparse.Namespace) -> list[str]:
    """The words of the command to write. A file that is here gets its absolute path, so that every
    window finds it; a folder does not, since each window has its own."""
    return [
        os.path.abspath(word) if _is_relative(options, word, os.path.isfile) else word
        for word in options.target
    ]


def _is_relative(options: argparse.Namespace, word: str, is_there: Callable[[str], bool]) -> bool:
    """True if a word is a path that is only there from the working directory."""
    if options.cwd or word.startswith(("/", "~", "$", "-")) or not {".", "/"} & set(word):
        return False
    return is_there(file_of(word))


def _entry(options: argparse.Namespace, secrets: Mapping[str, str]) -> dict[str, Any]:
    """The entry to write, with only the keys that were given, and references to its secrets."""
    if options.target[0].startswith(URLS) and len(options.words) > 1:
        entry: dict[str, Any] = {"url": options.target[0]}
    else:
        command, *args = _command(options)
        entry = {"command": command, "args": args}
    entry["env"] = {**dict(options.env), **secrets}
    entry["headers"] = dict(options.header)
    cwd = options.cwd or ""
    if cwd and not cwd.startswith(("~", "$")):
        cwd = os.path.abspath(cwd)  # relative paths in the file start at its own folder
    entry["cwd"] = cwd
    entry["tags"] = options.tag
    found = {key: value for key, value in entry.items() if value}
    return {**found, "enabled": False} if options.disabled else found


def _is_referenced(key: str, value: str) -> bool:
    """True if a variable is written as a reference, to keep its secret out of the file."""
    is_name = key.isascii() and key.isidentifier()
    return bool(value) and is_name and looks_secret(key) and not is_reference(value)


def _notes(options: argparse.Namespace, *, are_kept: bool) -> Iterator[str]:
    """Notes on secrets that the file refers to or contains, and on relative paths; `are_kept` is
    True if the secrets of `--env` have a place."""
    for key, value in () if are_kept else options.env:
        if _is_referenced(key, value):
            yield (
                f"{key} looks like a secret: the config contains ${{{key}}}, not its value.\n"
                f"  {_remedy(key, value)}, or keep it with --secrets file (a file that only you "
                "can read) or --secrets keyring."
            )
    given = (*options.target, *(value for _, value in (*options.env, *options.header)))
    yield from _unset(given)
    for (_, name), _ in plain_secrets({"headers": dict(options.header)}):
        yield (
            f"the config now contains the value of {name}; to keep it out, use a reference in "
            f"single quotes: --header '{name}: ${{NAME}}'"
        )
    for word in options.target if len(options.words) == 1 else ():
        if _is_relative(options, word, os.path.isdir):
            yield f"{word} is a path in the folder of each window; for this one, give all of it"


def _unset(texts: Iterable[str]) -> Iterator[str]:
    """Notes on variables that texts refer to, and that are not set here."""
    for name in dict.fromkeys(name for text in texts for name in _VARIABLE.findall(text)):
        if name not in os.environ:
            yield f"{name} is not set in this shell; set it in the environment of the gateway"


def _remedy(key: str, value: str) -> str:
    if os.environ.get(key) == value:
        return f"{key} is set in this shell; set it also for clients that start the gateway"
    return f"Set {key} in the environment of the gateway (export {key}=... before it starts)"


def _check(path: str, name: str, entry: dict[str, Any]) -> None:
    """Reject an entry that could not be read back; its variables may still be unset."""
    report = Report()
    sources = Sources({}, os.path.dirname(os.path.abspath(path)))
    read_server(report, ("servers", name), name, entry, sources, False, of_client=False)
    if "${" not in entry.get("url", "${"):
        check_url(report, ("servers", name, "url"), entry["url"])
    if report.problems:
        raise ConfigError(*map(str, report.problems))
