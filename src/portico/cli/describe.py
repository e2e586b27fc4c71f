"""`portico describe`: all there is to know of tools of the configured servers."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from portico.catalog.parameter_summary import parameters
from portico.cli.gateway import add_options, address_of, ask, check_name, know
from portico.cli.render import Screen
from portico.cli.target import open_client, run
from portico.cli.usage import Parser
from portico.model.errors import PorticoError

if TYPE_CHECKING:
    from portico.wires.wire import Address

_MOST = 20
"""That the gateway describes at once."""


def main(argv: list[str]) -> int:
    """Describe some tools; 1 if one of them is not there."""
    options = _parser().parse_intermixed_args(argv)
    return run(_describe(address_of(options), options))


async def _describe(address: "Address", options: argparse.Namespace) -> int:
    async with await open_client(address, options) as client:
        await know(client, *options.name)
        try:
            several = [options.name[at : at + _MOST] for at in range(0, len(options.name), _MOST)]
            results = [await ask(client, "describe_tool", names=names) for names in several]
        except PorticoError:
            await check_name(client, options.name[0])
            raise
        tools = [tool for result in results for tool in result["structuredContent"]["tools"]]
        if options.json:
            Screen(sys.stdout).json(msgspec.json.encode(tools))
        else:
            for tool in tools:
                _show(Screen(sys.stdout), tool)
        missing = set(options.name) - {tool["name"] for tool in tools}
        for name in sorted(missing):
            Screen(sys.stderr).say(
                f"portico: there is no tool {name!r}; `portico search` finds some"
            )
        sys.stdout.flush()  # the gateway may take its time to leave
    return 1 if missing else 0


def _show(screen: Screen, tool: dict[str, Any]) -> None:
    definition = dict(tool["definition"])
    screen.say(f"{tool['name']}  ({tool['tool']} of {tool['server']})", "bold cyan")
    if "warning" in tool:
        screen.say(tool["warning"], "yellow")
    for key in ("title", "description"):
        words = definition.pop(key, None)
        if isinstance(words, str) and words.strip():
            screen.say(words.strip())
    takes = parameters(definition.get("inputSchema"), nulls=True) or "no arguments"
    screen.say(f"takes {takes}", "bold")
    screen.data(definition)


def _parser() -> Parser:
    parser = Parser(
        prog="portico describe",
        description="Show the full definitions of tools of the configured servers.",
        epilog="example: portico describe github__create_issue",
    )
    add = parser.add_argument
    add("name", nargs="+", metavar="NAME", help="a tool, as `portico search` calls it")
    add_options(parser)
    return parser
