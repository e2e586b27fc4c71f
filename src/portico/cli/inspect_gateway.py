"""`portico inspect` without a component: the chain of the configured gateway, from its files."""

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from portico.cli.inspect_page import Row, chain_rows, show_chain
from portico.cli.inspected import Inspected, as_data, described, listing
from portico.cli.render import Screen
from portico.components.classify import Component
from portico.config.paths import config_file
from portico.config.read import read
from portico.model.wording import counted

if TYPE_CHECKING:
    from portico.config.schema import Config, ServerEntry

_EXPOSURES = {
    "all": "names like SERVER__TOOL",
    "search": "the meta-tools, which find and call SERVER__TOOL",
    "auto": "the meta-tools if there are many tools, else names like SERVER__TOOL",
}


def show_gateway(options: argparse.Namespace) -> int:
    """Show the gateway of the config; nothing is started."""
    from portico import __version__
    from portico.gateway.cached_catalogs import cached_offers

    config = read(options.config or config_file())
    offers = cached_offers(config, __version__)
    members = [_member(one) for one in config.servers.values() if one.enabled]
    for one in members:
        cached = offers.get(one.component.name)
        if cached is not None:
            one.lists = {kind: listing(items) for kind, items in cached.items()}
    _show(config, members, options)
    return 0


def _member(entry: "ServerEntry") -> Inspected:
    argv = () if entry.url else (entry.command, *entry.args)
    component = Component(
        name=entry.name,
        kind="url" if entry.url else "command",
        argument=entry.name,
        argv=argv,
        url=entry.url,
        entry=entry,
    )
    found = described(component)
    found.error = entry.problem
    return found


def _show(config: "Config", members: list[Inspected], options: argparse.Namespace) -> None:
    screen = Screen(sys.stdout)
    rows = [*_rows(config, members)]
    if options.json:
        data: dict[str, Any] = {
            "config": config.path,
            "chain": [name for name, _ in rows],
            "components": [as_data(one) for one in members],
            "disabled": config.disabled,
        }
        screen.json(msgspec.json.encode(data))
        return
    show_chain(screen, rows, members)


def _rows(config: "Config", members: list[Inspected]) -> Iterator[Row]:
    transport = f"HTTP at {config.gateway.http}" if config.gateway.http else "stdio, or HTTP"
    first, *rest = chain_rows(members, transport)
    yield first
    known = sum(one.lists is not None for one in members)
    what = f"{_EXPOSURES[config.gateway.expose]}; {counted(known, 'catalog')} on disk"
    yield "gateway", f"{what} ({config.path})"
    yield from rest
