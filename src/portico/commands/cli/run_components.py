"""The components of `portico run`: resolved, with bundles opened, ready to be loaded."""

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from portico.core.state.report import report
from portico.library.components.aliases import ConfigAliases
from portico.library.components.classify import classify_name, is_project
from portico.library.components.composition import Composer
from portico.library.components.cycles import enter
from portico.library.components.resolution import (
    components_of,
    default_resolvers,
    resolve_components,
    with_handlers,
)

if TYPE_CHECKING:
    from portico.commands.cli.run import RunOptions
    from portico.library.components.bundled import BundleOpener
    from portico.library.components.project import Project
    from portico.library.components.project_builds import ProjectBuilds
    from portico.library.components.resolver import RequestedComponent

DEFAULT_PORT = 8000


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
        from portico.commands.console.bundle_approval import approve_bundle
        from portico.library.components.bundled import BundleOpener

        self.opener = self.opener or BundleOpener(approve_bundle)
        return await self.opener.expand(entries, is_all=is_all)


def composer_of(options: "RunOptions") -> Composer:
    """Return the composer of a command line; a bundle alone sets options that are not given."""
    aliases = ConfigAliases(options.config)
    if options.watch:
        _build_missing(options.component, aliases)
    resolvers = default_resolvers(aliases, pulls=options.pull)
    bundles = _Bundles()
    found = asyncio.run(resolve_components(options.component, options.override, resolvers, bundles))
    components = with_handlers(components_of(found), options.handlers)
    if options.grant:
        from portico.library.components.granted import granted

        components = granted(components, options.grant)
    is_bundle = bundles.opener is not None and bundles.opener.alone is not None
    enter(components, is_bundle=is_bundle)
    if options.watch:
        options.builds = _builds(found)
    if bundles.opener is not None:
        if options.watch:
            report("--watch does not reload bundles; name the components that one is composed of")
        _set_as_composed(options, bundles.opener)
    if options.listen is not None:
        from portico.commands.console.transport_option import check_listen

        check_listen(options.listen, options.transport)
    return Composer(components)


def _build_missing(arguments: Sequence[str], aliases: ConfigAliases) -> None:
    """Build the projects named on the command line that were not built yet.

    A name of the config means what it names there, and not a folder that happens to be here.
    """
    from portico.library.components.project import project_in
    from portico.library.components.project_builds import run_build

    for argument in arguments:
        folder = classify_name(argument)[1]
        if not is_project(folder) or folder in aliases or folder in aliases.profiles:
            continue
        project = project_in(folder)
        if project is not None and project.build and not os.path.exists(project.path):
            report(f"building {argument} for the first time")
            asyncio.run(run_build(project))


def _builds(entries: "Sequence[RequestedComponent]") -> "ProjectBuilds":
    """Return the projects that the person named: no alias, profile or bundle runs a build."""
    from portico.library.components.project import project_of
    from portico.library.components.project_builds import ProjectBuilds

    found: dict[str, Project] = {}
    for entry in entries:
        component = entry.component
        file = "" if component is None else component.path or component.binary
        is_named = not entry.via and (component is not None and not component.is_alias)
        project = project_of(file) if file and is_named else None
        if project is not None and component is not None:
            found[component.name] = project
    return ProjectBuilds(found)


def _set_as_composed(options: "RunOptions", opener: "BundleOpener") -> None:
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
