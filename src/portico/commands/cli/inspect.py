"""`portico inspect`: show the chain of components, and each one's offer, imports and rights."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from portico import __version__
from portico.commands.console.client_view import show_as
from portico.commands.console.inspect_page import chain_rows, show_chain, show_clashes, show_one
from portico.commands.console.inspected import Inspected, clashes, described, inspect, to_json
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen
from portico.commands.console.target import add_options, check_options, run
from portico.core.model.errors import PorticoError
from portico.library.components.aliases import ConfigAliases
from portico.library.components.granted import granted
from portico.library.components.resolution import (
    components_of,
    default_resolvers,
    resolve_components,
)

if TYPE_CHECKING:
    from portico.library.components.classify import Component


def main(argv: list[str]) -> int:
    """Inspect components, or the configured gateway; 1 if a component fails or names clash."""
    parser = _parser()
    end = argv.index("--") if "--" in argv else len(argv)
    options = parser.parse_intermixed_args(argv[:end])
    options.component += argv[end + 1 :]
    if options.client is not None:
        if options.component:
            parser.error("--as is for the configured gateway: give no component")
        return show_as(options.client, options.config, __version__, as_json=options.json)
    if not options.component:
        from portico.commands.cli.inspect_gateway import show_gateway

        return show_gateway(options)
    resolvers = default_resolvers(ConfigAliases(options.config))
    found = components_of(asyncio.run(resolve_components(options.component, (), resolvers)))
    components = granted(found, options.grant)
    check_options(parser, options, *components)
    if options.verify and any(one.kind != "bundle" for one in components):
        parser.error("--verify is for bundles")
    if len(components) == 1 and components[0].kind == "bundle":
        from portico.commands.console.bundle_page import show_bundle

        return show_bundle(components[0].path, verify=options.verify, as_json=options.json)
    if len(components) == 1:
        return run(_inspect_one(components[0], options))
    return run(_inspect_chain(components, options))


async def _inspect_one(component: "Component", options: argparse.Namespace) -> int:
    found = await inspect(component, options)
    if options.json:
        Screen(sys.stdout).compact(to_json(found))
    else:
        show_one(Screen(sys.stdout), found)
    _report_rejected([found])
    return 0


async def _inspect_chain(components: "Sequence[Component]", options: argparse.Namespace) -> int:
    async def attempt(component: "Component") -> Inspected:
        try:
            return await inspect(component, options)
        except PorticoError as error:
            found = described(component, options.env)
            found.error = str(error)
            return found

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(attempt(one)) for one in components]
    found = [task.result() for task in tasks]
    clashing = clashes(found)
    screen, rows = Screen(sys.stdout), chain_rows(found)
    if options.json:
        data = {
            "chain": [name for name, _ in rows],
            "components": [to_json(one) for one in found],
            "clashes": clashing,
        }
        screen.compact(data)
    else:
        show_chain(screen, rows, found)
        show_clashes(screen, clashing)
    _report_rejected(found)
    return 1 if clashing or any(one.error for one in found) else 0


def _report_rejected(found: Sequence[Inspected]) -> None:
    for reason in (reason for one in found for reason in one.rejected):
        Screen(sys.stderr).print(f"portico: left out {reason}", "yellow")


def _parser() -> Parser:
    parser = Parser(
        prog="portico inspect",
        description="Show components as `portico run` would chain them: each one's version, "
        "instructions, tools, resources and prompts, its imports and its rights. A component is "
        "started only if that is needed to list its tools; middleware and definitions never are. "
        "Without a component, show the configured gateway, and start nothing.",
        epilog="example: portico inspect 'npx -y @modelcontextprotocol/server-everything'",
    )
    add = parser.add_argument
    what = "server.py, tools.json, a bundle, a URL, a quoted command or a configured server"
    add("component", nargs="*", metavar="COMPONENT", help=what)
    parser.add_flag("--static", "start nothing; show only the facts in the files")
    parser.add_flag("--verify", "compare every byte of a bundle with its digests")
    add("--as", dest="client", metavar="CLIENT", help="show what a client is shown, like claude")
    parser.add_config()
    add_options(parser)
    return parser
