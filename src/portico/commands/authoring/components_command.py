"""`portico components`: short names for components, in the config."""

import os
import sys
from collections.abc import Sequence

from portico.commands.authoring.names_file import NamesFile
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen
from portico.core.config.schema import ComponentEntry
from portico.library.components.resolver import is_registry_reference
from portico.upstream.process.family import refuse_below_agent

_ACTIONS = ("add", "remove", "list")


def main(argv: list[str]) -> int:
    """Add, remove or list aliases."""
    parser = _parser()
    options = parser.parse_intermixed_args(argv)
    words: Sequence[str] = options.words
    names = NamesFile(options.config)
    screen = Screen(sys.stdout)
    if options.action == "list":
        if words:
            parser.error("list takes no NAME")
        return _list(names, screen, as_json=options.json)
    refuse_below_agent(f"portico components {options.action}")
    if options.action == "remove":
        if len(words) != 1:
            parser.error("remove needs the NAME of a component")
        names.remove("components", words[0])
        screen.print(f"removed {words[0]}")
        return 0
    if len(words) != 2:
        parser.error("add needs a NAME and a COMPONENT; quote a command")
    if is_registry_reference(words[1]) and not os.path.exists(words[1]):
        shown = names.add_reference(words[0], words[1])
        screen.print(f"{words[0]} is {shown}; pull it with `portico pull {shown}`")
        return 0
    component = names.add_alias(words[0], words[1])
    screen.print(f"{words[0]} is {component.label}; try `portico run {words[0]}`")
    return 0


def _list(names: NamesFile, screen: Screen, *, as_json: bool) -> int:
    found = names.config().components
    if as_json:
        data = {name: _as_data(entry) for name, entry in found.items()}
        screen.compact(data)
        return 0
    if not found:
        screen.print("there is no component; add one with `portico components add NAME FILE`")
        return 0
    rows = [(name, _about(entry)) for name, entry in found.items()]
    screen.table(f"Components ({len(rows)})", rows)
    return 0


def _as_data(entry: ComponentEntry) -> dict[str, object]:
    if entry.oci:
        return {"oci": entry.oci}
    if entry.path:
        return {"path": entry.path}
    return {"command": entry.command, "args": list(entry.args)}


def _about(entry: ComponentEntry) -> str:
    if entry.oci:
        return entry.oci
    if not entry.path:
        return f"{entry.command} ..." if entry.args else entry.command
    file = entry.path if os.path.exists(entry.path) else entry.path.rpartition(":")[0] or entry.path
    return entry.path if os.path.exists(file) else f"{entry.path} (no such file)"


def _parser() -> Parser:
    parser = Parser(
        prog="portico components",
        usage="portico components add NAME COMPONENT [--config FILE]\n"
        "       portico components remove NAME [--config FILE]\n"
        "       portico components list [--json] [--config FILE]",
        description="Give components short names in the config. `portico run NAME` and every other "
        "command that takes a component then knows them, and `portico serve` serves them.",
        epilog="example: portico components add calc ./calc.py",
    )
    parser.add_argument("action", choices=_ACTIONS, metavar="ACTION", help="add, remove or list")
    what = "the name; for add also a file or a quoted command"
    parser.add_argument("words", nargs="*", metavar="NAME", help=what)
    parser.add_config()
    parser.add_json()
    return parser
