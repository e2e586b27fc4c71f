"""`portico describe`: the full definitions of tools of the configured servers."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from portico.commands.cli.gateway import add_options, address_of, definition, query, refresh_unknown
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen
from portico.commands.console.target import open_client, run
from portico.core.catalog.parameter_summary import parameters
from portico.core.model.errors import PorticoError

if TYPE_CHECKING:
    from portico.upstream.wires.wire import Address

_BATCH = 20
"""Tools that the gateway describes per request."""


def main(argv: list[str]) -> int:
    """Describe some tools; return 1 if one of them does not exist."""
    options = _parser().parse_intermixed_args(argv)
    return run(_describe(address_of(options), options))


async def _describe(address: "Address", options: argparse.Namespace) -> int:
    async with await open_client(address, options) as client:
        await refresh_unknown(client, *options.name)
        try:
            starts = range(0, len(options.name), _BATCH)
            batches = [options.name[start : start + _BATCH] for start in starts]
            results = [await query(client, "describe_tool", names=names) for names in batches]
        except PorticoError:
            await definition(client, options.name[0])
            raise
        tools = [tool for result in results for tool in result["structuredContent"]["tools"]]
        if options.json:
            Screen(sys.stdout).compact(tools)
        else:
            for tool in tools:
                _show(Screen(sys.stdout), tool)
        missing = set(options.name) - {tool["name"] for tool in tools}
        for name in sorted(missing):
            Screen(sys.stderr).print(
                f"portico: there is no tool {name!r}; find tools with `portico search`"
            )
        sys.stdout.flush()  # the gateway may take a while to exit
    return 1 if missing else 0


def _show(screen: Screen, tool: dict[str, Any]) -> None:
    definition = dict(tool["definition"])
    screen.print(f"{tool['name']}  ({tool['tool']} of {tool['server']})", "bold cyan")
    if "warning" in tool:
        screen.print(tool["warning"], "yellow")
    for key in ("title", "description"):
        words = definition.pop(key, None)
        if isinstance(words, str) and words.strip():
            screen.print(words.strip())
    takes = parameters(definition.get("inputSchema"), nulls=True) or "no arguments"
    screen.print(f"takes {takes}", "bold")
    screen.data(definition)


def _parser() -> Parser:
    parser = Parser(
        prog="portico describe",
        description="Show the full definitions of configured servers' tools.",
        epilog="example: portico describe github__create_issue",
    )
    add = parser.add_argument
    add("name", nargs="+", metavar="NAME", help="a tool's name, as shown by `portico search`")
    add_options(parser)
    return parser
