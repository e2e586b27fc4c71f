"""`portico profiles`: several components under one name, in the config."""

import sys
from collections.abc import Sequence

from portico.commands.authoring.names_file import NamesFile
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen
from portico.upstream.process.family import refuse_below_agent

_ACTIONS = ("add", "remove", "list")


def main(argv: list[str]) -> int:
    """Add, remove or list profiles."""
    parser = _parser()
    options = parser.parse_intermixed_args(argv)
    words: Sequence[str] = options.words
    names = NamesFile(options.config)
    screen = Screen(sys.stdout)
    if options.base and options.action != "add":
        parser.error("--base works only with add")
    if options.action == "list":
        if words:
            parser.error("list takes no NAME")
        return _list(names, screen, as_json=options.json)
    refuse_below_agent(f"portico profiles {options.action}")
    if options.action == "remove":
        if len(words) != 1:
            parser.error("remove needs the NAME of a profile")
        names.remove("profiles", words[0])
        screen.print(f"removed {words[0]}")
        return 0
    if len(words) < 2:
        parser.error("add needs a NAME and the components of the profile")
    name, *members = words
    profile = names.add_profile(name, members, options.base or "")
    screen.print(f"{name} is {', '.join(profile.members)}; try `portico run {name}`")
    return 0


def _list(names: NamesFile, screen: Screen, *, as_json: bool) -> int:
    found = names.config().profiles
    if as_json:
        data = {
            name: {"base": one.base, "components": list(one.components)}
            for name, one in found.items()
        }
        screen.compact(data)
        return 0
    if not found:
        screen.print("there is no profile; add one with `portico profiles add NAME COMPONENT...`")
        return 0
    screen.table(
        f"Profiles ({len(found)})",
        [(name, ", ".join(one.members)) for name, one in found.items()],
    )
    return 0


def _parser() -> Parser:
    parser = Parser(
        prog="portico profiles",
        usage="portico profiles add NAME COMPONENT... [--base PROFILE] [--config FILE]\n"
        "       portico profiles remove NAME [--config FILE]\n"
        "       portico profiles list [--json] [--config FILE]",
        description="Give several components one name, in their order. `portico run NAME` serves "
        "them, and `portico compose -p NAME` writes them to a bundle.",
        epilog="example: portico profiles add dev log calc strings --base core",
    )
    parser.add_argument("action", choices=_ACTIONS, metavar="ACTION", help="add, remove or list")
    what = "the name; for add also its components: aliases, files, URLs, commands, profiles"
    parser.add_argument("words", nargs="*", metavar="NAME", help=what)
    what = "with add: a profile whose components come first"
    parser.add_argument("--base", metavar="PROFILE", help=what)
    parser.add_config()
    parser.add_json()
    return parser
