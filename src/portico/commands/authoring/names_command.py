"""`portico components` and `portico profiles`: short names in the config, for one component each,
or for several. `names_file.py` decides which names are valid, and writes them."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from portico.commands.authoring.names_file import NamesFile
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen
from portico.core.config.schema import ComponentEntry
from portico.library.components.resolver import is_registry_reference
from portico.upstream.process.family import refuse_below_agent


class NamesCommand(Struct, frozen=True):
    """One of the two commands; its `kind` with an s is its name, and that of its table."""

    kind: str
    given: str
    """The words of `add` after the NAME."""
    least: str
    """The shortest words of `add`, for the hint in an empty list."""
    what: str
    description: str
    example: str
    add: Callable[[Parser, NamesFile, argparse.Namespace], str]
    """Adds a name, and returns what to tell the person about it."""
    data: Callable[[Any], object]
    shown: Callable[[Any], str]

    def main(self, argv: list[str]) -> int:
        """Add, remove or list names."""
        parser, screen = self._parser(), Screen(sys.stdout)
        options = parser.parse_intermixed_args(argv)
        names = NamesFile(options.config)
        if options.base and options.action != "add":
            parser.error("--base works only with add")
        if options.action == "list":
            if options.words:
                parser.error("list takes no NAME")
            self._list(names, screen, as_json=options.json)
            return 0
        refuse_below_agent(f"portico {self.kind}s {options.action}")
        if options.action == "add":
            screen.print(self.add(parser, names, options))
            return 0
        if len(options.words) != 1:
            parser.error(f"remove needs the NAME of a {self.kind}")
        names.remove(f"{self.kind}s", options.words[0])
        screen.print(f"removed {options.words[0]}")
        return 0

    def _list(self, names: NamesFile, screen: Screen, *, as_json: bool) -> None:
        found = getattr(names.config(), f"{self.kind}s")
        if as_json:
            screen.compact({name: self.data(one) for name, one in found.items()})
        elif not found:
            add = f"portico {self.kind}s add {self.least}"
            screen.print(f"there is no {self.kind}; add one with `{add}`")
        else:
            rows = [(name, self.shown(one)) for name, one in found.items()]
            screen.table(f"{self.kind.title()}s ({len(rows)})", rows)

    def _parser(self) -> Parser:
        name = f"portico {self.kind}s"
        parser = Parser(
            prog=name,
            usage=f"{name} add NAME {self.given} [--config FILE]\n"
            f"       {name} remove NAME [--config FILE]\n"
            f"       {name} list [--json] [--config FILE]",
            description=self.description,
            epilog=f"example: {name} add {self.example}",
        )
        add = parser.add_argument
        actions = ("add", "remove", "list")
        add("action", choices=actions, metavar="ACTION", help="add, remove or list")
        add("words", nargs="*", metavar="NAME", help=f"the name; for add also {self.what}")
        if self.kind == "profile":
            what = "with add: a profile whose components come first"
            add("--base", metavar="PROFILE", help=what)
        parser.set_defaults(base=None)
        parser.add_config()
        parser.add_json()
        return parser


def _add_component(parser: Parser, names: NamesFile, options: argparse.Namespace) -> str:
    if len(options.words) != 2:
        parser.error("add needs a NAME and a COMPONENT; quote a command")
    name, argument = options.words
    if is_registry_reference(argument) and not os.path.exists(argument):
        shown = names.add_reference(name, argument)
        return f"{name} is {shown}; pull it with `portico pull {shown}`"
    return f"{name} is {names.add_alias(name, argument).label}; try `portico run {name}`"


def _add_profile(parser: Parser, names: NamesFile, options: argparse.Namespace) -> str:
    if len(options.words) < 2:
        parser.error("add needs a NAME and the components of the profile")
    name, *members = options.words
    profile = names.add_profile(name, members, options.base or "")
    return f"{name} is {', '.join(profile.members)}; try `portico run {name}`"


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


components = NamesCommand(
    kind="component",
    given="COMPONENT",
    least="NAME FILE",
    what="a file or a quoted command",
    description="Give components short names in the config. `portico run NAME` and every other "
    "command that takes a component then knows them, and `portico serve` serves them.",
    example="calc ./calc.py",
    add=_add_component,
    data=_as_data,
    shown=_about,
)
profiles = NamesCommand(
    kind="profile",
    given="COMPONENT... [--base PROFILE]",
    least="NAME COMPONENT...",
    what="its components: aliases, files, URLs, commands, profiles",
    description="Give several components one name, in their order. `portico run NAME` serves "
    "them, and `portico compose -p NAME` writes them to a bundle.",
    example="dev log calc strings --base core",
    add=_add_profile,
    data=lambda profile: {"base": profile.base, "components": list(profile.components)},
    shown=lambda profile: ", ".join(profile.members),
)
