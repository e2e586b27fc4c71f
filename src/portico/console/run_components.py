"""The components of `portico run`: resolved, with bundles opened, ready to be loaded."""

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from portico.components.aliases import ConfigAliases
from portico.components.composition import Composer
from portico.components.cycles import enter
from portico.components.resolution import (
    components_of,
    default_resolvers,
    resolve_components,
    with_handlers,
)

if TYPE_CHECKING:
    from portico.components.bundled import BundleOpener
    from portico.components.resolver import RequestedComponent

DEFAULT_PORT = 8000


class RunOptions(Protocol):
    """The options of the command that a bundle may set."""

    component: list[str]
    override: list[str]
    config: str | None
    handlers: str | None
    pull: bool
    prefix: bool
    shadow: list[str]
    http: str | None
    transport: str | None
    stdio: bool
    name: str | None


class _Bundles:
    """Opens bundles; its imports wait for the first one, since few compositions have any."""

    def __init__(self) -> None:
        self.opener: BundleOpener | None = None

    async def expand(
        self, entries: "Sequence[RequestedComponent]", *, is_all: bool = True
    ) -> "list[RequestedComponent]":
        """Return the entries without bundles; raises PorticoError."""
        if all(one.component is None or one.component.kind != "bundle" for one in entries):
            return list(entries)
        from portico.components.bundled import BundleOpener
        from portico.console.bundle_approval import approve_bundle

        self.opener = self.opener or BundleOpener(approve_bundle)
        return await self.opener.expand(entries, is_all=is_all)


def composer_of(options: RunOptions) -> Composer:
    """Return the composer of a command line; a bundle alone sets options that are not given."""
    resolvers = default_resolvers(ConfigAliases(options.config), pulls=options.pull)
    bundles = _Bundles()
    found = asyncio.run(resolve_components(options.component, options.override, resolvers, bundles))
    components = with_handlers(components_of(found), options.handlers)
    enter(components)
    if bundles.opener is not None:
        _set_as_composed(options, bundles.opener)
    return Composer(components)


def _set_as_composed(options: RunOptions, opener: "BundleOpener") -> None:
    """Set the options of a bundle that is served alone, unless the command line has its own."""
    contents = opener.alone
    if contents is None:
        return
    options.name = options.name or contents.name or None
    options.prefix = options.prefix or contents.prefixed
    options.shadow = [*options.shadow, *contents.shadows]
    if options.stdio or options.http is not None or options.transport is not None:
        return
    scheme, _, rest = contents.transport.partition(":")
    if scheme == "http":
        options.http = rest or str(DEFAULT_PORT)
    elif scheme != "stdio":
        file = os.path.join(opener.folder, *scheme.split("/"))
        options.transport = f"{file}:{rest}" if rest else file
