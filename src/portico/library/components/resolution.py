"""The resolvers of the command line: profiles and aliases of the config, files, programs."""

import os
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec.structs import replace

from portico.core.documents.names import is_valid_name
from portico.core.model.wording import close_matches, did_you_mean
from portico.core.state.report import report
from portico.library.components.aliases import ConfigAliases
from portico.library.components.classify import (
    Component,
    ComponentError,
    InvalidArgument,
    UnknownComponent,
    classify,
    is_project,
)
from portico.library.components.registry_resolver import RegistryResolver
from portico.library.components.resolver import (
    RequestedComponent,
    Resolver,
    entries_of,
    is_registry_reference,
    resolve_entries,
)


class ProfileResolver:
    """Replaces the name of a profile by its components."""

    def __init__(self, aliases: ConfigAliases) -> None:
        self._aliases = aliases

    async def resolve(self, entry: RequestedComponent) -> Sequence[RequestedComponent] | None:
        """Return the components of a profile, those of its base first."""
        name = entry.argument
        if entry.component is not None or not is_valid_name(name):
            return None
        if _is_hidden_by_file(name, entry):
            return None
        profile = self._aliases.profiles.get(name)
        if profile is None:
            return None
        _report_project(name, "the profile of the config")
        if not profile.members:
            how = f"add some to profiles.{name} in the config"
            raise ComponentError(f"the profile {name} has no components; {how}")
        return [_inner(entry, one) for one in profile.members]


class NameResolver:
    """Classifies an argument: a URL, a file, an alias or a program."""

    def __init__(self, aliases: ConfigAliases, *, as_files: bool = False) -> None:
        """With `as_files`, the alias of a file is that file, without the options of its entry."""
        self._aliases = aliases
        self._as_files = as_files

    async def resolve(self, entry: RequestedComponent) -> Sequence[RequestedComponent] | None:
        """Return the entry with its component; None for a reference to a registry."""
        if entry.component is not None:
            return None
        try:
            component = classify(entry.argument, self._aliases)
        except UnknownComponent:
            if is_registry_reference(entry.argument):
                return None
            raise
        self._report_hidden(entry.argument, component)
        component = self._alias_as_file(component)
        if entry.name:
            component = replace(component, name=entry.name)
        return [replace(entry, component=component)]

    def _report_hidden(self, argument: str, component: Component) -> None:
        """Report a project that an alias hides, and a program that a project hides."""
        if not is_valid_name(argument) or not os.path.isdir(argument):
            return
        if argument in self._aliases:
            _report_project(argument, "the alias of the config")
        elif component.kind != "command":
            import shutil

            hidden = shutil.which(argument)
            if hidden is not None:
                report(f"{argument} is the project in this folder, and not the program {hidden}")

    def _alias_as_file(self, component: Component) -> Component:
        """Return the file of an alias that cannot run as a process of its own: middleware, and a
        bundle, which is served as it was composed."""
        path = "" if component.entry is None else self._aliases.file(component.argument)
        if not path or (component.entry is not None and component.entry.problem):
            return component
        found = replace(classify(path), name=component.name)
        if found.kind == "wasm":  # it may be middleware, and has the grants of its entry
            return replace(component, kind="wasm", binary=found.binary)
        is_file = self._as_files or found.kind == "bundle" or _is_middleware(found)
        return found if is_file else component


class AliasPuller:
    """Pulls the references of aliases before they are looked up; it replaces nothing."""

    def __init__(self, aliases: ConfigAliases) -> None:
        self._aliases = aliases

    async def resolve(self, entry: RequestedComponent) -> Sequence[RequestedComponent] | None:
        """Pull the component of an alias; raises ComponentError."""
        if entry.component is None and is_valid_name(entry.argument):
            reference = self._aliases.reference(entry.argument)
            if reference:
                puller = RegistryResolver(self._aliases, pulls=True)
                await puller.resolve(replace(entry, argument=reference))
        return None


def default_resolvers(
    aliases: ConfigAliases, *, as_files: bool = False, pulls: bool = False
) -> list[Resolver]:
    """Return the resolvers of every command, in their order; `pulls` allows pulls."""
    before: list[Resolver] = [AliasPuller(aliases)] if pulls else []
    names = NameResolver(aliases, as_files=as_files)
    registries = RegistryResolver(aliases, pulls=pulls)
    return [*before, ProfileResolver(aliases), names, registries]


class OpenBundles(Protocol):
    """Replaces the bundles among entries by their components."""

    async def expand(
        self, entries: Sequence[RequestedComponent], *, is_all: bool = True
    ) -> list[RequestedComponent]:
        """Return the entries without bundles; raises PorticoError."""
        ...


async def resolve_components(
    arguments: Sequence[str],
    overrides: Iterable[str],
    resolvers: Sequence[Resolver],
    bundles: OpenBundles | None = None,
) -> list[RequestedComponent]:
    """Return the entries of a command line, each with a name of its own; raises ComponentError.

    An override `NAME=COMPONENT` replaces the component of that name. Without `bundles`, a bundle is
    one component.
    """
    found: dict[str, RequestedComponent] = {}
    entries = await resolve_entries(entries_of(arguments), resolvers)
    if bundles is not None:
        entries = await bundles.expand(entries)
    for entry in entries:
        component = _component(entry)
        other = found.get(component.name)
        if other is not None:
            both = f"{other.label} and {entry.label} are both named {component.name}"
            raise ComponentError(f"{both}; rename one of them: NAME={entry.label}")
        found[component.name] = entry
    for override in overrides:
        name, _, argument = override.partition("=")
        if not name or not argument:
            raise InvalidArgument("--override has no name or no component; write NAME=COMPONENT")
        if name not in found:
            near = did_you_mean(close_matches(name, found))
            hint = near or f"the components are {', '.join(found)}"
            raise ComponentError(f"--override: there is no component {name[:80]!r}; {hint}")
        requested = RequestedComponent(argument=argument, name=name)
        entries = await resolve_entries([requested], resolvers)
        if bundles is not None:
            entries = await bundles.expand(entries, is_all=False)
        if len(entries) != 1:
            raise ComponentError(f"--override: {argument} has {len(entries)} components; give one")
        found[name] = entries[0]
    return list(found.values())


def components_of(entries: Iterable[RequestedComponent]) -> list[Component]:
    """Return the components of resolved entries."""
    return [_component(entry) for entry in entries]


def with_handlers(components: Sequence[Component], path: str | None) -> list[Component]:
    """Return the components; definitions get the functions of this file, if they have none."""
    if path is None:
        return list(components)
    if all(one.kind != "definitions" for one in components):
        how = "add one or remove the option"
        raise InvalidArgument(f"--handlers needs a definitions file (.json); {how}")
    return [
        replace(one, handlers=path) if one.kind == "definitions" and not one.handlers else one
        for one in components
    ]


def _component(entry: RequestedComponent) -> Component:
    assert entry.component is not None, "it is resolved"
    return entry.component


def _inner(entry: RequestedComponent, argument: str) -> RequestedComponent:
    [named] = entries_of([argument])
    return entry.inner(named.argument, name=named.name)


def _is_middleware(component: Component) -> bool:
    from portico.library.components.analyze import analyze

    if component.kind != "python":
        return False
    return analyze(component.path, component.variable).is_middleware_only


def _report_project(name: str, used: str) -> None:
    """Report the project in this folder that a name of the config hides."""
    if is_project(name):
        what = f"{name} is {used}, and not the project in this folder"
        report(f"{what}; rename one of them, or write ./{name} for the project")


def _is_hidden_by_file(name: str, entry: RequestedComponent) -> bool:
    """True if a file has this name; reports what it hides in the config, which may be broken."""
    if not os.path.isfile(name):
        return False
    hidden = ConfigAliases(quiet=True)
    kind = "profile" if name in hidden.profiles else "alias" if name in hidden else ""
    if kind and not entry.via:
        what = f"{name} is a file in this folder, so the {kind} {name} of the config is not used"
        report(f"{what}; rename one of them, or write ./{name} for the file")
    return True
