"""The rights of a component: its process, its environment variables, files and the network."""

import os
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from portico.library.components.classify import Component
from portico.upstream.process.environment import ENDPOINT_TOKEN, clean, looks_secret, meaningful

Process = Literal["none", "portico", "own", "sandbox", "remote"]


class Grants(Struct, frozen=True):
    """Everything that a component may use."""

    process: Process
    """Portico's process, its own one, a sandbox, one that Portico does not start, or none: it is
    data."""
    folder: str = ""
    """Its working folder."""
    variables: tuple[str, ...] = ()
    """The names of its environment variables."""
    is_reduced: bool = False
    """True if it gets a part of your environment only."""
    added: tuple[str, ...] = ()
    """The variables that are set for it; for a URL, the headers that are sent to it."""
    is_sandboxed: bool = False
    """True if files and network are restricted."""
    granted: tuple[str, ...] = ()
    """All that a sandboxed component is granted, as `--grant` takes it, without the values of
    secrets."""

    @property
    def secrets(self) -> list[str]:
        """The variables whose names suggest a secret."""
        seen = meaningful(dict.fromkeys(self.variables, ""))
        return [name for name in seen if looks_secret(name)]


def grants_of(
    component: Component, added: Mapping[str, str] | None = None, *, own_process: bool = False
) -> Grants:
    """Return the rights of a component of `run`; `added` are variables that the user gives.

    A file is loaded into Portico's process, unless it has an `own_process`.
    """
    entry = component.entry
    if component.url:
        return Grants("remote", added=tuple(entry.headers) if entry is not None else ())
    if component.kind == "wasm":
        return Grants("sandbox", is_sandboxed=True, granted=_lines(component))
    if component.kind == "definitions" and not own_process:
        return Grants("none")
    folder = os.getcwd()
    if component.is_file and component.kind != "bundle" and not own_process:
        return Grants("portico", folder, tuple(sorted(os.environ)))
    given = dict(added or {}) if entry is None else dict(entry.env)
    passed = dict(os.environ) if entry is None else clean(os.environ)
    passed.pop(ENDPOINT_TOKEN, None)
    return Grants(
        "own",
        folder if entry is None else entry.placed_in(folder).cwd or folder,
        tuple(sorted({*passed, *given})),
        is_reduced=entry is not None,
        added=tuple(given),
    )


def _lines(component: Component) -> tuple[str, ...]:
    from portico.library.components.wasm_process import settings_of

    assert component.entry is not None
    return settings_of(component.entry).granted.lines()
