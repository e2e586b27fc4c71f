"""Puts components in order: the links before all of them, and each with the links before it."""

from collections.abc import Iterable, Mapping, Sequence
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
from portico.components.load import LoadedFile, load_file
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
            raise ComponentError(f"{both}; give one another name: NAME={component.label}")
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


def compose(components: Sequence[Component], handlers: ModuleType | None = None) -> Composition:
    """Load the files among these components, and put all in order; raises PorticoError."""
    before: list[Link] = []
    between: list[Link] = []
    parts: list[Part] = []
    for component in components:
        loaded = load_file(component, handlers) if component.is_file else LoadedFile()
        (between if parts else before).extend(loaded.links)
        if loaded.server is not None or not component.is_file:
            parts.append(Part(component, loaded.server, tuple(between)))
    if not parts:
        names = ", ".join(component.label for component in components)
        what = "nothing is behind this middleware; add a server.py, a tools.json or a command"
        raise ComponentError(f"{names}: {what}")
    return Composition(tuple(before), tuple(parts))


def by_name(parts: Iterable[Part]) -> Mapping[str, Part]:
    """Return the parts by the names of their components."""
    return {part.component.name: part for part in parts}
