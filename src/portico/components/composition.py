"""Puts components in order: the links before all of them, and each with the links before it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import ModuleType

from msgspec import Struct
from msgspec.structs import replace

from portico.components.classify import (
    Aliases,
    Component,
    ComponentError,
    InvalidArgument,
    classify,
)
from portico.components.load import LoadedFile, LoadError, import_file, load_file
from portico.model.types import Link
from portico.model.wording import close_matches, did_you_mean
from portico.server import Server


class Part(Struct, frozen=True):
    """A component that offers something, with the links in front of it alone."""

    component: Component
    server: Server | None = None
    """The server of a file; None for a command or a URL."""
    links: tuple[Link, ...] = ()


class Composition(Struct, frozen=True):
    """Components in the order of their chain."""

    links: tuple[Link, ...]
    """The links before all parts."""
    parts: tuple[Part, ...]


def named_components(
    arguments: Sequence[str], overrides: Iterable[str] = (), aliases: Aliases | None = None
) -> list[Component]:
    """Return the components of a command line, each with a name of its own; raises ComponentError.

    An override `NAME=COMPONENT` replaces the component of that name.
    """
    found: dict[str, Component] = {}
    for argument in arguments:
        component = classify(argument, aliases)
        other = found.get(component.name)
        if other is not None:
            both = f"{other.label} and {component.label} are both named {component.name}"
            raise ComponentError(f"{both}; rename one of them: NAME={component.label}")
        found[component.name] = component
    for override in overrides:
        name, _, argument = override.partition("=")
        if not name or not argument:
            raise InvalidArgument("--override has no name or no component; write NAME=COMPONENT")
        if name not in found:
            near = did_you_mean(close_matches(name, found))
            hint = near or f"the components are {', '.join(found)}"
            raise ComponentError(f"--override: there is no component {name[:80]!r}; {hint}")
        found[name] = replace(classify(argument, aliases), name=name)
    return list(found.values())


class Composer:
    """Loads the files of components, and those that changed again."""

    def __init__(self, components: Sequence[Component], handlers: str | None = None) -> None:
        """`handlers` is the file with the functions for definitions."""
        self._components = components
        self._handlers = handlers
        self._loaded: dict[str, LoadedFile] = {}
        self._used: dict[str, set[str]] = {path: set() for path in self._paths()}
        """By path, the files that were loaded with it so far, even if that failed later."""

    def load(self) -> Composition:
        """Load all files; raises PorticoError."""
        return self._load(self._components)

    def files(self) -> list[str]:
        """Return the files to watch: the components and the modules beside them."""
        from portico.components.own_modules import files_of

        for path, used in self._used.items():
            used.update(files_of(path, self._paths()))
        return [file for used in self._used.values() for file in used]

    def reload(self, changed: Collection[str]) -> Composition:
        """Load the components of changed files again; if one fails, raises PorticoError and keeps
        all as they were."""
        from portico.components.own_modules import forget_modules

        stale = [one for one in self._components if one.is_file and self._uses(one, changed)]
        for component in stale:
            forget_modules(component.path, self._paths())
        if self._handlers is not None:
            forget_modules(self._handlers, self._paths())
        return self._load(stale)

    def _paths(self) -> list[str]:
        handlers = [] if self._handlers is None else [self._handlers]
        return [*handlers, *(one.path for one in self._components if one.is_file)]

    def _uses(self, component: Component, changed: Collection[str]) -> bool:
        used = self._used[component.path]
        if component.kind == "definitions" and self._handlers is not None:
            used = used | self._used[self._handlers]
        return any(file in changed for file in used)

    def _load(self, components: Iterable[Component]) -> Composition:
        needs_handlers = any(one.kind == "definitions" for one in components)
        handlers = import_file(self._handlers) if self._handlers and needs_handlers else None
        found = {one.name: self._load_file(one, handlers) for one in components if one.is_file}
        composition = compose(self._components, {**self._loaded, **found})
        self._loaded |= found
        return composition

    def _load_file(self, component: Component, handlers: ModuleType | None) -> LoadedFile:
        try:
            return load_file(component, handlers)
        except LoadError as error:
            from portico.state.own_line import own_files

            # A module that failed is not loaded, but saving it may fix the component.
            self._used[component.path].update(own_files(error.reason))
            raise


def compose(components: Sequence[Component], loaded: Mapping[str, LoadedFile]) -> Composition:
    """Put components and their loaded files in order; raises ComponentError."""
    before: list[Link] = []
    between: list[Link] = []
    parts: list[Part] = []
    for component in components:
        file = loaded.get(component.name, LoadedFile())
        (between if parts else before).extend(file.links)
        if file.server is not None or not component.is_file:
            parts.append(Part(component, file.server, tuple(between)))
    if not parts:
        names = ", ".join(component.label for component in components)
        what = "nothing is behind this middleware; add a server.py, a tools.json or a command"
        raise ComponentError(f"{names}: {what}")
    return Composition(tuple(before), tuple(parts))
