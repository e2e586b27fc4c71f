"""The links that a config names, and the servers in their files."""

from collections.abc import Iterable, Mapping
from functools import partial

from msgspec import Struct

from portico.core.config.schema import Config, Timeouts, file_of
from portico.core.documents.trust import check_code
from portico.core.model.errors import PorticoError
from portico.core.model.types import Link
from portico.gateway.members.in_process_server import InProcessEntry, in_process_entries
from portico.library.components.classify import Component, ComponentError, classify
from portico.library.components.import_in_thread import load_in_thread
from portico.library.components.load import Imported, load_middleware
from portico.library.components.own_modules import forget_modules
from portico.library.components.own_process import as_link
from portico.library.server import Server

_IMPORT_S = Timeouts().init


class ConfiguredLinks(Struct, frozen=True):
    """The links of a config, the outermost first, and the servers in the same files."""

    links: tuple[Link, ...] = ()
    local: Mapping[str, InProcessEntry] = {}


async def load_configured(config: Config, others: Iterable[str] = ()) -> ConfiguredLinks:
    """Import the links of a config, each in a thread; raises PorticoError for the first that fails.

    `others` are the names of members that are not in the config.
    """
    if not config.gateway.links:
        return ConfiguredLinks()
    for file in config.link_files:
        forget_modules(file)
    links: list[Link] = []
    servers: dict[str, Server] = {}
    imported: Imported = {}
    for number, link in enumerate(config.gateway.links):
        load = partial(_load, link, config, links, servers, imported)
        try:
            await load_in_thread(load, link, _IMPORT_S)
        except PorticoError as error:
            raise ComponentError(f"{config.path}: gateway.links[{number}]: {error}") from error
    clash = next((name for name in servers if name in set(others)), None)
    if clash is not None:
        raise ComponentError(f"{clash} is a member and a file of gateway.links; rename one")
    return ConfiguredLinks(tuple(links), in_process_entries(servers, config))


def _load(
    link: str, config: Config, links: list[Link], servers: dict[str, Server], imported: Imported
) -> None:
    component = _component(link, config)
    loaded = load_middleware(component, imported)
    links += loaded.links
    if loaded.server is not None:
        if component.name in servers:
            raise ComponentError(f"{link}: another file of gateway.links is named {component.name}")
        servers[component.name] = loaded.server


def _component(link: str, config: Config) -> Component:
    """Return the component that a link names, or that is in its file."""
    entry = config.linked.get(link)
    if entry is not None:
        return as_link(entry)
    check_code([file_of(link)])
    return classify(link)
