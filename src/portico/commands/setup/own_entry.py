"""Portico's own entry in a client's file: its command line, and how it is recognised."""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from portico.core.config.client_table import ClientFormat

NAME = "portico"
_LAUNCHERS = ("uvx", "uv", "pipx", "python", "python3", "py")
_PORTICO = re.compile(r"portico(?:[@=~<>!\[].*)?|.*[/\\]portico(?:\.exe)?")
_UV_CACHE = re.compile(r"[/\\](?:archive|environments|builds)-v\d+(?:[/\\]|$)")
"""A folder in the cache of uv, which removes such folders."""
_EVERYWHERE = ("/usr/local/bin", "/usr/bin", "/bin")
"""The path of applications that the desktop starts."""


def is_portico(entry: Mapping[str, Any]) -> bool:
    """True if a server's entry starts `portico serve`, in whatever way."""
    command, *args = words_of(entry) or [""]
    program = re.sub(r"\.exe$", "", re.split(r"[/\\]", command)[-1], flags=re.IGNORECASE)
    if re.sub(r"[\d.]+$", "", program) in _LAUNCHERS:
        return any(_PORTICO.fullmatch(one) and then == "serve" for one, then in pairwise(args))
    return program == NAME and args[:1] == ["serve"]


def words_of(entry: Mapping[str, Any]) -> list[str]:
    """The command line of a client's entry, in either form; empty if it has none."""
    command, args = entry.get("command"), entry.get("args")
    words = [*(command if isinstance(command, list) else [command])]
    words += args if isinstance(args, list) else []
    return words if all(isinstance(one, str) for one in words) else []


def launcher(row: ClientFormat, prefix: str = "", argv0: str = "") -> list[str]:
    """The words that start Portico from this client."""
    prefix, argv0 = prefix or sys.prefix, argv0 or sys.argv[0]
    if _UV_CACHE.search(prefix):
        return ["uvx", NAME]
    found = shutil.which(NAME)
    if found is not None and _lasts(found, prefix, row):
        return [NAME]
    script = os.path.abspath(argv0)
    if os.path.basename(script) == NAME and os.access(script, os.X_OK):
        return [script]
    beside = os.path.join(os.path.dirname(sys.executable), NAME)
    if os.access(beside, os.X_OK):
        return [beside]
    return [sys.executable, "-m", NAME]


def _lasts(found: str, prefix: str, row: ClientFormat) -> bool:
    """True if the client finds the command too: not only this shell, in its environment."""
    folder = os.path.dirname(os.path.abspath(found))
    if folder.startswith(prefix + os.sep) and prefix not in ("/usr", "/usr/local"):
        return False
    return not row.is_app or folder in _EVERYWHERE


def own_entries(
    row: ClientFormat, start: Sequence[str], servers: Sequence[str], config: str = ""
) -> dict[str, dict[str, Any]]:
    """The entries to write, by name: one for all servers, or one for each of those named."""
    assert row.write is not None
    more = [*(("--config", config) if config else ()), "--client", row.name]
    if not servers:
        return {NAME: row.write([*start, "serve", *more])}
    return {name: row.write([*start, "serve", "--server", name, *more]) for name in servers}
