"""`portico servers test`: start configured servers and show what they offer."""

import argparse
import sys
from typing import Any

from portico import __version__
from portico.commands.console.render import Screen, server_error
from portico.commands.console.server_check import KINDS, check_each
from portico.commands.console.target import run
from portico.core.config.paths import config_file
from portico.core.config.read import read
from portico.core.documents.problems import ConfigError, quoted, suggestion
from portico.core.model.wording import counted


def main(options: argparse.Namespace) -> int:
    """Test one server, or all enabled ones; return 1 if any fails."""
    path: str = options.config or config_file()
    config = read(path, only=())
    entries = config.entries
    names = [name for name, entry in entries.items() if entry.enabled]
    if options.name is not None:
        names = [n for n, entry in entries.items() if options.name in (n, entry.title)][:1]
        if not names:
            hint = suggestion(options.name, entries) or "there is none"
            raise ConfigError(f"{path}: there is no server {quoted(options.name)}; {hint}")
    elif not names:
        raise ConfigError(f"{path}: no server is enabled; `portico servers add` adds one")
    return run(_test_all(path, names, options))


async def _test_all(path: str, names: list[str], options: argparse.Namespace) -> int:
    Screen(sys.stderr).print_waiting(f"starting {', '.join(names)}")
    tell = (lambda _: None) if options.json else _print_outcome
    outcomes = await check_each(path, names, __version__, options.timeout, keeps=True, tell=tell)
    if options.json:
        Screen(sys.stdout).compact(outcomes)
    return 0 if all(outcome["ok"] for outcome in outcomes) else 1


def _print_outcome(outcome: dict[str, Any]) -> None:
    if not outcome["ok"]:
        Screen(sys.stderr).print(f"portico: {server_error(outcome['server'], outcome['error'])}")
        return
    info = outcome["info"]
    identity = f"{info.get('name', '')} {info.get('version', '')}".strip() or "no name"
    counts = [
        counted(outcome[kind], kind[:-1]) for kind in KINDS if outcome[kind] or kind != "templates"
    ]
    if outcome["hidden"]:
        counts[0] += f" ({outcome['hidden']} filtered out)"
    over = f" over {outcome['transport']}" if outcome["transport"] else ""
    protocol = f"{outcome['protocolVersion']} ({outcome['era']}){over}"
    parts = (outcome["server"], identity, protocol, ", ".join(counts), f"{outcome['ms']:,.0f} ms")
    Screen(sys.stdout).print("  ".join(parts))
    for warning in outcome["warnings"]:
        Screen(sys.stderr).print(f"portico: warning: {warning}", "yellow")
