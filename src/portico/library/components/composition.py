"""Puts components in order: the links before all of them, and each with the links before it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import ModuleType

from msgspec import Struct

from portico.core.model.types import Link
from portico.library.components.classify import Component, ComponentError
from portico.library.components.load import LoadedFile, LoadError, import_file, load_file
from portico.library.server import Server


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


class Composer:
    """Loads the files of components, and those that changed again."""

    def __init__(self, components: Sequence[Component]) -> None:
        self._components = components
        self._loaded: dict[str, LoadedFile] = {}
        self._used: dict[str, set[str]] = {path: set() for path in self._paths()}
        """By path, the files that were loaded with it so far, even if that failed later."""
        self._sandboxed: dict[str, tuple[Link, ...]] = {}
        """By component, the links of a WebAssembly component; none if it is not middleware."""
        self._generation = 0
        """Counts loads: of two at the same time, only the later one counts."""

    def load(self) -> Composition:
        """Load all files; raises PorticoError."""
        return self._load(self._components, self._generation)

    def files(self) -> list[str]:
        """Return the files to watch: the components and the modules beside them."""
        from portico.library.components.own_modules import files_of

        for path, used in self._used.items():
            used.update(files_of(path, self._paths()))
        files = [file for used in self._used.values() for file in used]
        return [*files, *(one.binary for one in self._components if self._sandboxed.get(one.name))]

    def reload(self, changed: Collection[str]) -> Composition:
        """Load the components of changed files again; if one fails, raises PorticoError and keeps
        all as they were."""
        from portico.library.components.own_modules import forget_modules

        self._generation += 1
        generation = self._generation
        stale = [one for one in self._components if one.is_file and self._uses(one, changed)]
        for path in {path for one in stale for path in _files_of(one)}:
            forget_modules(path, self._paths())
        return self._load(stale, generation, changed)

    def _paths(self) -> list[str]:
        return [path for one in self._components for path in _files_of(one)]

    def _uses(self, component: Component, changed: Collection[str]) -> bool:
        used = set[str]().union(*(self._used[path] for path in _files_of(component)))
        return any(file in changed for file in used)

    def _load(
        self, components: Iterable[Component], generation: int, changed: Collection[str] = ()
    ) -> Composition:
        handlers: dict[str, ModuleType] = {}
        for path in dict.fromkeys(one.handlers for one in components if one.handlers):
            handlers[path] = import_file(path)
        found = {
            one.name: self._load_file(one, handlers.get(one.handlers))
            for one in components
            if one.is_file
        }
        sandboxed = self._sandboxed | self._links_of_binaries(changed)
        links = {name: LoadedFile(None, links) for name, links in sandboxed.items()}
        composition = compose(self._components, {**self._loaded, **found, **links})
        if generation != self._generation:
            raise ComponentError("a newer change was loaded meanwhile")
        self._loaded |= found
        self._sandboxed = sandboxed
        return composition

    def _links_of_binaries(self, changed: Collection[str]) -> dict[str, tuple[Link, ...]]:
        """Return the links of WebAssembly components that are new, or have changed; others keep
        theirs, with their workers."""
        found: dict[str, tuple[Link, ...]] = {}
        for one in self._components:
            known = self._sandboxed.get(one.name)
            if one.kind != "wasm" or (known is not None and one.binary not in changed):
                continue
            from portico.library.components.wasm_link import middleware_of

            found[one.name] = middleware_of(one)
            if known is not None and bool(known) != bool(found[one.name]):
                now = "offers tools now" if known else "is middleware now"
                raise ComponentError(f"{one.label} {now}; restart Portico to use it")
        return found

    def _load_file(self, component: Component, handlers: ModuleType | None) -> LoadedFile:
        try:
            return load_file(component, handlers)
        except LoadError as error:
            from portico.core.state.error_location import own_files

            # A module that failed is not loaded, but saving it may fix the component.
            self._used[component.path].update(own_files(error.reason))
            raise


def _files_of(component: Component) -> list[str]:
    """Return the files of a component that are loaded: its functions, and its own."""
    return [path for path in (component.handlers, component.path) if path]


def compose(components: Sequence[Component], loaded: Mapping[str, LoadedFile]) -> Composition:
    """Put components and their loaded files in order; raises ComponentError."""
    before: list[Link] = []
    between: list[Link] = []
    parts: list[Part] = []
    for component in components:
        file = loaded.get(component.name, LoadedFile())
        (between if parts else before).extend(file.links)
        if file.server is not None or not (component.is_file or file.links):
            parts.append(Part(component, file.server, tuple(between)))
    if not parts:
        names = ", ".join(component.label for component in components)
        what = "nothing is behind this middleware; add a server.py, a tools.json or a command"
        raise ComponentError(f"{names}: {what}")
    return Composition(tuple(before), tuple(parts))
