"""`portico inspect`: show the version, instructions, tools, resources and prompts of a server."""

import argparse
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from portico.catalog.parameter_summary import parameters
from portico.cli.render import Screen, first_line, size
from portico.cli.target import add_options, address_of, component_of, open_client, run
from portico.cli.usage import Parser

if TYPE_CHECKING:
    from portico.upstream.client import Client
    from portico.upstream.listing import Listing
    from portico.wires.wire import Address

_BYTES_PER_TOKEN = 4


def main(argv: list[str]) -> int:
    """Inspect one server."""
    parser = _parser()
    options = parser.parse_args(argv)
    return run(_inspect(address_of(component_of(parser, options), options), options))


async def _inspect(address: "Address", options: argparse.Namespace) -> int:
    started = time.perf_counter()
    async with await open_client(address, options) as client:
        opened = time.perf_counter()
        lists = {kind: await client.listing(kind) for kind in _TABLES}
        listed = time.perf_counter()
        elapsed = {"start": opened - started, "lists": listed - opened}
        if options.json:
            Screen(sys.stdout).json(msgspec.json.encode(_as_data(client, lists, elapsed)))
        else:
            _show(Screen(sys.stdout), client, lists, elapsed)
    for reason in (reason for listing in lists.values() for reason in listing.rejected):
        Screen(sys.stderr).print(f"portico: left out {reason}", "yellow")
    return 0


def _as_data(
    client: "Client", lists: dict[str, "Listing"], elapsed: dict[str, float]
) -> dict[str, Any]:
    server = client.server
    return {
        "server": server.info,
        "protocolVersion": server.version.text,
        "era": _era(client),
        "transport": client.transport,
        "capabilities": server.capabilities,
        "instructions": server.instructions,
        **{"resourceTemplates" if k == "templates" else k: lists[k].items for k in _TABLES},
        "toolBytes": lists["tools"].size,
        "toolTokens": lists["tools"].size // _BYTES_PER_TOKEN,
        "startMs": round(elapsed["start"] * 1000, 1),
        "listsMs": round(elapsed["lists"] * 1000, 1),
        "leftOut": [reason for listing in lists.values() for reason in listing.rejected],
    }


def _show(
    screen: Screen, client: "Client", lists: dict[str, "Listing"], elapsed: dict[str, float]
) -> None:
    server = client.server
    title = server.info.get("title")
    name = f"{server.info.get('name', client.name)} {server.info.get('version', '')}".rstrip()
    screen.print(f"{name} · {title}" if isinstance(title, str) else name, "bold")
    screen.print(f"  protocol  {server.version.text} ({_era(client)}) over {client.transport}")
    screen.print(f"  offers    {_capabilities(server.capabilities)}")
    screen.print(f"  took      {_ms(elapsed['start'])} to start, {_ms(elapsed['lists'])} to list")
    if server.instructions:
        screen.print("")
        screen.print("Instructions", "bold")
        for line in server.instructions.strip().splitlines():
            screen.print(f"  {line}")
    for kind, (heading, key, more) in _TABLES.items():
        found = lists[kind]
        if found.items:
            rows = [(item[key], more(item), _about(item)) for item in found.items]
            tokens = f"{size(found.size)}, about {found.size // _BYTES_PER_TOKEN:,} tokens"
            weight = f": {tokens}" if kind == "tools" else ""
            screen.table(f"{heading} ({len(rows)}{weight})", rows)
    if not any(listing.items for listing in lists.values()):
        screen.print("\nThe server lists no tools, resources or prompts.")


def _arguments(prompt: dict[str, Any]) -> str:
    given = prompt.get("arguments")
    known = [a for a in given if isinstance(a, dict)] if isinstance(given, list) else []
    return ", ".join(f"{a.get('name')}{'*' if a.get('required') is True else ''}" for a in known)


def _mime(resource: dict[str, Any]) -> str:
    return str(resource.get("mimeType") or "")


_TABLES: dict[str, tuple[str, str, Callable[[dict[str, Any]], str]]] = {
    "tools": ("Tools", "name", lambda tool: parameters(tool.get("inputSchema"), nulls=True)),
    "resources": ("Resources", "uri", _mime),
    "templates": ("Resource templates", "uriTemplate", _mime),
    "prompts": ("Prompts", "name", _arguments),
}
"""The title of each kind's table, the key of its first column, and its second column."""


def _about(item: dict[str, Any]) -> str:
    return first_line(item.get("description")) or first_line(item.get("title"))


def _capabilities(capabilities: dict[str, Any]) -> str:
    parts = []
    for name, detail in capabilities.items():
        options = ", ".join(detail) if isinstance(detail, dict) else ""
        parts.append(f"{name} ({options})" if options else name)
    return ", ".join(parts) or "nothing"


def _era(client: "Client") -> str:
    return "modern" if client.modern else "legacy"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds < 10 else f"{seconds:,.1f} s"


def _parser() -> Parser:
    parser = Parser(
        prog="portico inspect",
        description="Show an MCP server's version, instructions, tools, resources and prompts.",
        epilog="example: portico inspect 'npx -y @modelcontextprotocol/server-everything'",
    )
    parser.add_argument(
        "target", metavar="TARGET", help="a URL, server.py, tools.json or a quoted command"
    )
    parser.add_config()
    add_options(parser)
    return parser
