"""`portico servers add`, `remove`, `enable` and `disable`: change one entry of the config."""

import argparse
import os
import re
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from portico.config.edit import add_server, remove_server, set_enabled
from portico.config.entry import read_server
from portico.config.expand import Sources, is_reference
from portico.config.paths import config_file
from portico.config.problems import ConfigError, Report
from portico.config.values import check_url
from portico.console.render import Screen
from portico.console.usage import URLS
from portico.process.environment import looks_secret

_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_HEADER = re.compile("authorization|token|secret|key|cookie", re.IGNORECASE)


def main(options: argparse.Namespace) -> int:
    """Change the config and report the change."""
    path: str = options.config or config_file()
    name: str = options.name
    changed = True
    if options.action == "add":
        entry = _entry(options)
        _check(path, name, entry)
        add_server(path, name, entry)
        message = f"added {name} to {path}"
    elif options.action == "remove":
        remove_server(path, name)
        message = f"removed {name} from {path}"
    else:
        changed = set_enabled(path, name, options.action == "enable")
        message = f"{name} is {'now' if changed else 'already'} {options.action}d"
    if options.json:
        told = {"ok": True, "server": name, "config": os.path.abspath(path), "changed": changed}
        Screen(sys.stdout).json(msgspec.json.encode(told))
    else:
        Screen(sys.stdout).print(message)
    if options.action == "add":
        for note in _notes(options):
            Screen(sys.stderr).print(f"portico: {note}")
    return 0


def _relative_word(options: argparse.Namespace) -> str:
    """The first word of a command that is a path relative to the working directory; else empty."""
    words = [] if options.cwd or len(options.words) > 1 else options.target
    near = (word for word in words if not word.startswith(("/", "~", "$", "-")))
    return next((word for word in near if os.path.exists(word) and not shutil.which(word)), "")


def _entry(options: argparse.Namespace) -> dict[str, Any]:
    """The entry to write, with only the keys that were given."""
    if options.target[0].startswith(URLS) and len(options.words) > 1:
        entry: dict[str, Any] = {"url": options.target[0]}
    else:
        entry = {"command": options.target[0], "args": options.target[1:]}
    entry["env"] = {
        key: f"${{{key}}}" if _is_referenced(key, value) else value for key, value in options.env
    }
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


def _notes(options: argparse.Namespace) -> Iterator[str]:
    """Notes on secrets that the file refers to or contains, and on relative paths."""
    for key, value in options.env:
        if _is_referenced(key, value):
            yield (
                f"{key} looks like a secret: the config contains ${{{key}}}, not its value.\n"
                f"  {_remedy(key, value)}, or use --env {key}=file:PATH or "
                f"{key}=keyring:NAME."
            )
    given = (*options.target, *(value for _, value in (*options.env, *options.header)))
    for name in dict.fromkeys(name for text in given for name in _VARIABLE.findall(text)):
        if name not in os.environ:
            yield f"{name} is not set in this shell; set it in the environment of the gateway"
    for name, value in options.header:
        if _SECRET_HEADER.search(name) and not is_reference(value):
            yield (
                f"the config now contains the value of {name}; to keep it out, use a reference in "
                f"single quotes: --header '{name}: ${{NAME}}'"
            )
    if here := _relative_word(options):
        yield (
            f"{here} is relative to the directory in which the gateway starts; "
            "use an absolute path, or add `--cwd .`"
        )


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
