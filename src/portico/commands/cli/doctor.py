"""`portico doctor`: check the whole setup, and show a remedy for each problem."""

import argparse
import sys

from portico import __version__
from portico.commands.console.argument_types import integer, seconds, valued
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen
from portico.commands.console.target import run
from portico.core.config.paths import config_file
from portico.upstream.process.family import refuse_below_agent

_MIN_FREE_MB = 200


def main(argv: list[str]) -> int:
    """Check everything; return 1 if something is wrong."""
    options = _parser().parse_args(argv)
    if options.fix:
        refuse_below_agent("portico doctor --fix")
    return run(_diagnosed(options.config or config_file(), options))


async def _diagnosed(path: str, options: argparse.Namespace) -> int:
    from portico.commands.doctor.diagnosis import diagnose, print_diagnosis, to_json

    waiting = Screen(sys.stderr).print_waiting
    found = await diagnose(
        path,
        __version__,
        within_s=options.timeout,
        min_free_mb=options.min_free,
        progress=lambda what: waiting(f"checking {what}"),
    )
    if options.fix:
        found.fix()
    screen = Screen(sys.stdout)
    if options.json:
        screen.data(to_json(path, found))
    else:
        print_diagnosis(screen, found)
    return 1 if found.open else 0


def _parser() -> Parser:
    parser = Parser(
        prog="portico doctor",
        description="Check the config, commands, servers, protocol versions, stored lists, disk, "
        "permissions, leftover processes, other clients, gateways and agents. Every enabled "
        "server and agent is started once.",
    )
    parser.add_config()
    parser.add_json()
    add = parser.add_argument
    parser.add_flag("--fix", "fix what can be fixed safely: permissions, orphans, unfinished files")
    valued(add, "--timeout", seconds, "S", "timeout for each server (default: as configured)")
    kind = integer("a number of megabytes", 0, 999_999_999)
    what = f"report less free disk than this (default {_MIN_FREE_MB})"
    valued(add, "--min-free", kind, "MB", what, default=_MIN_FREE_MB)
    return parser
