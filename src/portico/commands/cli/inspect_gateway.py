"""`portico inspect` without a component: the chain of the configured gateway, from its files."""

import argparse
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from portico.commands.console.inspect_page import Row, chain_rows, show_chain
from portico.commands.console.inspected import Inspected, definitions, described, listing, to_json
from portico.commands.console.render import Screen
from portico.core.catalog.exposed_names import exposed_names
from portico.core.config.paths import config_file
from portico.core.config.read import read
from portico.core.config.schema import ComponentEntry, ServerEntry
from portico.core.documents.names import valid_name
from portico.core.model.wording import counted
from portico.edge.client.listing import Listing
from portico.library.components.classify import Component, ComponentError, classify
from portico.library.components.own_process import as_link, as_server, checked, named

if TYPE_CHECKING:
    from portico.core.config.schema import Config

_EXPOSURES = {
    "all": "names like SERVER__TOOL",
    "search": "the meta-tools, which find and call SERVER__TOOL",
    "auto": "the meta-tools if there are many tools, else names like SERVER__TOOL",
}


def show_gateway(options: argparse.Namespace) -> int:
    """Show the gateway of the config; nothing is started. 1 if a file cannot be used."""
    from portico import __version__
    from portico.gateway.serve.cached_catalogs import cached_offers

    config = read(options.config or config_file())
    offers = cached_offers(config, __version__)
    links = [_link(one, config) for one in config.gateway.links]
    members = [_member(one) for one in config.entries.values() if one.enabled]
    for one in members:
        cached = offers.get(one.component.name)
        if cached is not None:
            one.lists = {kind: listing(items) for kind, items in cached.items()}
        elif one.component.kind == "definitions":
            one.lists = _exposed(one.component, config.gateway.name_limit)
    _show(config, links, members, options)
    return 1 if any(one.error for one in links) else 0


def _exposed(component: Component, limit: int) -> dict[str, Listing]:
    """Return the lists of a definitions file, under the names that the gateway exposes."""
    lists = definitions(component.path)
    for kind in ("tools", "prompts"):
        names = [item["name"] for item in lists[kind].items]
        exposed = exposed_names(component.name, names, limit)
        lists[kind] = listing([{**one, "name": exposed[one["name"]]} for one in lists[kind].items])
    return lists


def _link(link: str, config: "Config") -> Inspected:
    entry = config.linked.get(link)
    try:
        found = described(classify(link) if entry is None else as_link(entry))
    except ComponentError as error:
        return _broken(link, str(error))
    found.error = found.facts.problem
    if found.component.kind != "python" and not found.is_middleware:
        label = found.component.label
        found.error = f"{label}: not middleware; give a Python file or a WebAssembly component"
    return found


def _broken(path: str, why: str, name: str = "") -> Inspected:
    name = name or valid_name(os.path.splitext(os.path.basename(path))[0])
    component = Component(name=name, kind="python", argument=path, path=path)
    return Inspected(component=component, role="a file", grants=None, error=why)


def _member(entry: "ServerEntry | ComponentEntry") -> Inspected:
    if isinstance(entry, ServerEntry):
        found = described(_component(entry.name, entry))
        found.error = entry.problem
        return found
    entry = checked(entry)
    if entry.problem:
        return _broken(entry.path or entry.command, entry.problem, entry.name)
    return described(_named(entry), own_process=not entry.in_process)


def _named(entry: "ComponentEntry") -> Component:
    """Return the component of an entry; a file is described by its own content."""
    return named(entry) if entry.path else _component(entry.name, as_server(entry))


def _component(name: str, entry: "ServerEntry") -> Component:
    return Component(
        name=name,
        kind="url" if entry.url else "command",
        argument=name,
        argv=() if entry.url else (entry.command, *entry.args),
        url=entry.url,
        entry=entry,
    )


def _show(
    config: "Config", links: list[Inspected], members: list[Inspected], options: argparse.Namespace
) -> None:
    screen = Screen(sys.stdout)
    rows = [*_rows(config, links, members)]
    found = [*links, *members]
    if options.json:
        data: dict[str, Any] = {
            "config": config.path,
            "chain": [name for name, _ in rows],
            "links": [to_json(one) for one in links],
            "components": [to_json(one) for one in members],
            "clashes": [],
            "disabled": config.disabled,
        }
        screen.compact(data)
        return
    show_chain(screen, rows, found)


def _rows(config: "Config", links: list[Inspected], members: list[Inspected]) -> Iterator[Row]:
    transport = f"HTTP at {config.gateway.http}" if config.gateway.http else "stdio, or HTTP"
    first, *rest = chain_rows([*links, *members], transport)
    yield first
    yield from rest[: len(links)]
    known = sum(one.lists is not None for one in members)
    what = f"{_EXPOSURES[config.gateway.expose]}; {counted(known, 'catalog')} on disk"
    yield "gateway", f"{what} ({config.path})"
    yield from rest[len(links) :]
