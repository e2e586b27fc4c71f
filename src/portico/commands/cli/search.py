"""`portico search`: find tools of all configured servers."""

import argparse
import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

from portico.commands.cli.gateway import (
    add_options,
    address_of,
    fetch_missing_lists,
    for_people,
    query,
)
from portico.commands.console.argument_types import integer
from portico.commands.console.parser import Parser
from portico.commands.console.render import Screen
from portico.commands.console.target import open_client, run

if TYPE_CHECKING:
    from portico.edge.client.client import Client
    from portico.upstream.wires.wire import Address

_VECTORS_S = 5.0
"""How long to wait for vectors: loading takes a second, embedding thousands of tools minutes."""
_POLL_S = 0.05


def main(argv: list[str]) -> int:
    """Search once; return 1 if nothing was found."""
    parser = _parser()
    options = parser.parse_intermixed_args(argv)
    if not " ".join(options.query).strip():
        parser.error("QUERY is empty; describe in plain words what you need")
    return run(_search(address_of(options), options))


async def _search(address: "Address", options: argparse.Namespace) -> int:
    arguments: dict[str, Any] = {"query": " ".join(options.query)}
    if options.limit is not None:
        arguments["limit"] = options.limit
    if options.server is not None:
        arguments["server"] = options.server
    async with await open_client(address, options) as client:
        await fetch_missing_lists(client, *([options.server] if options.server else ()))
        result = await query(client, "search_tools", **arguments)
        if await _wait_for_vectors(client):
            result = await query(client, "search_tools", **arguments)
        found = result.get("structuredContent") or {}
        tools = [tool for one in found.get("results", ()) for tool in one.get("tools", ())]
        if options.json:
            Screen(sys.stdout).compact(tools)
        elif tools:
            _show(Screen(sys.stdout), tools)
        else:
            Screen(sys.stderr).print(f"portico: {for_people(result['content'][0]['text'])}")
        if coming := found.get("indexing"):
            done = f"{coming['indexed']} of {coming['tools']} tools"
            Screen(sys.stderr).print(f"portico: only {done} are indexed; search again", "yellow")
        sys.stdout.flush()  # the gateway may take a while to exit
    return 0 if tools else 1


async def _wait_for_vectors(client: "Client") -> bool:
    """Wait for configured vectors that the first search did not use; True if they are ready now.
    A gateway started only for this command would otherwise exit before it uses them."""
    err = Screen(sys.stderr)
    vectors = await _vectors(client)
    if vectors.get("ready", True):
        return False
    deadline = time.monotonic() + _VECTORS_S
    while not vectors["ready"] and not vectors.get("failed") and time.monotonic() < deadline:
        await asyncio.sleep(_POLL_S)
        vectors = await _vectors(client)
    if vectors.get("failed"):
        err.print(f"portico: searched without vectors: {vectors['failed']}", "yellow")
    elif not vectors["ready"]:
        made = f"{vectors['made']} of {vectors['of']} vectors are ready"
        err.print(f"portico: searched by words only: {made}; search again later", "yellow")
    return bool(vectors["ready"])


async def _vectors(client: "Client") -> dict[str, Any]:
    """The status of the vectors; empty if they are disabled."""
    result = await query(client, "gateway_status", detail="full")
    search = result["structuredContent"]["gateway"]["search"]
    vectors: dict[str, Any] = search.get("vectors") or {}
    return vectors


def _show(screen: Screen, tools: list[dict[str, Any]]) -> None:
    for tool in tools:
        screen.print(tool["name"], "bold cyan")
        for key, style in (("description", ""), ("parameters", "dim"), ("warning", "yellow")):
            if tool.get(key):
                screen.print(f"  {tool[key]}", style)


def _parser() -> Parser:
    parser = Parser(
        prog="portico search",
        description="Find tools of all configured servers by what they do.",
        epilog="example: portico search create an issue",
    )
    add = parser.add_argument
    add("query", nargs="+", metavar="QUERY", help="description of what you need, in plain words")
    limit = integer("a number from 1 to 50", 1, 50)
    what = "show at most N tools (default: search.default_limit of the config, or 5)"
    add("--limit", type=limit, metavar="N", help=what)
    add("--server", metavar="NAME", help="only tools of this server")
    add_options(parser)
    return parser
