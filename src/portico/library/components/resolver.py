"""Resolves the components that a user names, before any of them is made.

    argument -> resolvers, until none has more to say -> components

An alias, a profile, a bundle or a reference to a registry is replaced by other entries. Finding
them may wait for a network and may fail, so it is never done in a constructor.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from portico.core.model.wording import printable
from portico.library.components.classify import Component, ComponentError, classify_name

MAX_NESTED = 8
"""How deep profiles, bundles and references may lead to each other."""
_MAX_SHOWN = 160
_REGISTRY_NAME = r"[a-z0-9][a-z0-9-]*(:[a-z0-9][a-z0-9/-]*)+(@[\w.+-]+)?"
_OCI = "oci://"


class RequestedComponent(Struct, frozen=True, kw_only=True):
    """One component as it was requested, and what is known about it so far."""

    argument: str
    """A file, URL, alias, profile, command or reference."""
    name: str = ""
    """The name that the user gives it; empty for its own."""
    via: tuple[str, ...] = ()
    """The profiles, bundles and references that led to it, outermost first."""
    origin: str = ""
    """By what an operator's approval is remembered, such as a reference without its version; empty
    for the path of the file."""
    component: Component | None = None
    """Its component, once that is known."""

    @property
    def label(self) -> str:
        """The entry for messages."""
        if self.component is not None:
            return self.component.label
        line = printable(self.argument)
        return line if len(line) <= _MAX_SHOWN else f"{line[: _MAX_SHOWN - 3]}..."

    def inner(self, argument: str, *, name: str = "") -> "RequestedComponent":
        """Return an entry that replaces this one."""
        return RequestedComponent(
            argument=argument, name=name, via=(*self.via, self.argument), origin=self.origin
        )


class Resolver(Protocol):
    """Replaces one entry by others."""

    async def resolve(self, entry: RequestedComponent) -> Sequence[RequestedComponent] | None:
        """Return the entries that replace it, in order; None if it is not for this resolver.

        It may wait; it raises ComponentError if it fails. An entry with a component is final unless
        a resolver, such as that of bundles, replaces it.
        """
        ...


async def resolve_entries(
    entries: Iterable[RequestedComponent], resolvers: Sequence[Resolver]
) -> list[RequestedComponent]:
    """Replace entries until each has its component; raises ComponentError."""
    found: list[RequestedComponent] = []
    for entry in entries:
        found += await _resolve(entry, resolvers)
    return found


async def _resolve(
    entry: RequestedComponent, resolvers: Sequence[Resolver]
) -> list[RequestedComponent]:
    _check_nesting(entry)
    for resolver in resolvers:
        inner = await resolver.resolve(entry)
        if inner is not None:
            return await resolve_entries(_named(entry, inner), resolvers)
    if entry.component is None:
        raise ComponentError(f"{entry.label}: nothing knows what this is; give a file or a URL")
    return [entry]


def _check_nesting(entry: RequestedComponent) -> None:
    """Raise ComponentError if an entry leads to itself, or is nested too deeply."""
    if entry.component is None and entry.argument in entry.via:
        path = " -> ".join((*entry.via[entry.via.index(entry.argument) :], entry.argument))
        raise ComponentError(
            f"{entry.argument} contains itself: {path}; remove it from one of them"
        )
    if len(entry.via) > MAX_NESTED:
        path = " -> ".join(entry.via)
        raise ComponentError(f"nested more than {MAX_NESTED} deep: {path}; name the inner ones")


def _named(
    entry: RequestedComponent, inner: Sequence[RequestedComponent]
) -> Sequence[RequestedComponent]:
    """Return the inner entries; the only one has the name that the user gave."""
    if not entry.name:
        return inner
    if len(inner) != 1:
        what = f"{entry.name}= names one component, and this has {len(inner)}"
        raise ComponentError(f"{entry.label}: {what}; remove {entry.name}=")
    return [replace(inner[0], name=entry.name)]


def entries_of(arguments: Iterable[str]) -> list[RequestedComponent]:
    """Return the entries of a command line, with the names in `NAME=COMPONENT`."""
    found = []
    for argument in arguments:
        name, rest = classify_name(argument)
        found.append(RequestedComponent(argument=rest, name=name))
    return found


def is_registry_reference(argument: str) -> bool:
    """True for `oci://host/name:tag` and `ns:name[@version]`, whether or not there is a file of
    that name."""
    return argument.startswith(_OCI) or re.fullmatch(_REGISTRY_NAME, argument) is not None
