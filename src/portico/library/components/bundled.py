"""Opens the bundles among components: verified, approved and unpacked before anything runs.

A bundle alone is served as it was composed. Beside other components it is one component in its own
process, unless it is middleware: then its components are put in the chain.
"""

import os
import sys
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from portico.core.config.paths import cache_folder
from portico.core.config.schema import ServerEntry, Timeouts
from portico.core.documents.names import valid_name
from portico.core.state.report import report
from portico.library.bundles.bundle_reader import BundleReader, open_bundle_file, unpacked
from portico.library.bundles.contents import BundleContents, BundledComponent, BundleError
from portico.library.components.classify import Component, classify
from portico.library.components.resolver import RequestedComponent
from portico.library.components.wasm_process import COMPILE_S

_RUN = ("-P", "-m", "portico", "run")
_UNPACKED = "components"
_START_S = 30.0
"""How long a bundle takes itself, until it starts the components in it."""
_SERVER_START_S = Timeouts().init + Timeouts().list


Approve = Callable[[BundleReader, str, str], None]
"""Raises BundleError unless the operator approves the rights of a bundle, which is in the file of
this path and comes from this origin."""


class _Opened(Struct, frozen=True):
    """A bundle that is unpacked."""

    contents: BundleContents
    folder: str
    """The folder with its files."""
    start_s: float
    """How long it may take to list its tools."""


class BundleOpener:
    """Replaces bundles by their components."""

    def __init__(self, approve: Approve) -> None:
        self._approve = approve
        self.alone: BundleContents | None = None
        """The contents of a bundle that is served alone, as it was composed."""
        self.folder = ""
        """The folder with the files of that bundle."""

    async def expand(
        self, entries: Sequence[RequestedComponent], *, is_all: bool = True
    ) -> list[RequestedComponent]:
        """Return the entries, without bundles; raises BundleError.

        With `is_all`, there are no other components.
        """
        if is_all and len(entries) == 1 and is_bundle_entry(entries[0]):
            return self._open_alone(entries[0])
        return [one for entry in entries for one in self._open_beside(entry)]

    def _open_alone(self, entry: RequestedComponent) -> list[RequestedComponent]:
        opened = self._open(entry)
        self.alone, self.folder = opened.contents, opened.folder
        found = [_inner(entry, one, self.folder) for one in self.alone.components]
        if len(found) == 1 and is_bundle_entry(found[0]) and _is_plain(self.alone):
            return self._open_alone(found[0])
        return [one for inner in found for one in self._open_beside(inner)]

    def _open_beside(self, entry: RequestedComponent) -> list[RequestedComponent]:
        """Return the components of middleware, or a command that runs the bundle."""
        if not is_bundle_entry(entry):
            return [entry]
        opened = self._open(entry)
        component = entry.component
        assert component is not None, "it is resolved"
        if not opened.contents.is_middleware:
            return [replace(entry, component=_process(component, opened.start_s))]
        found = []
        for one in opened.contents.components:
            inner = _inner(entry, one, opened.folder)
            found += self._open_beside(_renamed(inner, f"{component.name}-{one.name}"))
        return found

    def _open(self, entry: RequestedComponent) -> _Opened:
        """Verify, approve and unpack a bundle."""
        assert entry.component is not None, "it is resolved"
        path = entry.component.path
        with open_bundle_file(path) as bundle:
            bundle.verify()
            self._approve(bundle, path, entry.origin or os.path.realpath(path))
            place = unpacked(bundle, os.path.join(cache_folder(), _UNPACKED))
            return _Opened(bundle.contents, place, _start_s(bundle))


def bundle_start_s(path: str) -> float:
    """Return how long the process of this bundle may take to list its tools; raises BundleError."""
    with open_bundle_file(path) as bundle:
        return _start_s(bundle)


def _start_s(bundle: BundleReader) -> float:
    """Return a time that is longer than everything in the bundle may take.

    A shorter one would end its process, and its tools would be missing, although they come late.
    """
    kinds = {one.kind for one in bundle.contents.components}
    longest = [COMPILE_S] if "wasm" in kinds else [_SERVER_START_S]
    longest += [_start_s(inner) for _, inner in bundle.inner()]
    return _START_S + max(longest)


def _process(bundle: Component, start_s: float) -> Component:
    """Return the command that serves a bundle in a process of its own."""
    argv = (sys.executable, *_RUN, bundle.path)
    return replace(bundle, kind="command", path="", argv=argv, start_s=start_s)


def is_bundle_entry(entry: RequestedComponent) -> bool:
    """True for a bundle that is not opened yet."""
    return entry.component is not None and entry.component.kind == "bundle"


def _is_plain(contents: BundleContents) -> bool:
    """True if a bundle adds nothing to the only component in it."""
    return not contents.prefixed and contents.transport == "stdio"


def _renamed(entry: RequestedComponent, name: str) -> RequestedComponent:
    assert entry.component is not None, "it is resolved"
    return replace(entry, component=replace(entry.component, name=valid_name(name)))


def _inner(entry: RequestedComponent, one: BundledComponent, folder: str) -> RequestedComponent:
    component = component_of(one, folder)
    if component.is_file:  # in messages, as people know it
        component = replace(component, argument=f"{one.name} of {entry.argument}")
    return replace(entry, component=component, via=(*entry.via, entry.argument))


def component_of(one: BundledComponent, folder: str) -> Component:
    """Return a component of a bundle that is unpacked to a folder."""

    def placed(path: str) -> str:
        return os.path.join(folder, *path.split("/")) if path else ""

    if one.kind == "url":
        return Component(name=one.name, kind="url", argument=one.url, url=one.url)
    if one.kind in ("command", "program"):
        return _command(one, folder)
    path = placed(one.file)
    if one.kind == "wasm":
        return _wasm(one, path)
    return Component(
        name=one.name,
        kind=one.kind,  # type: ignore[arg-type]  # those of files are left
        argument=path,
        path=path,
        variable=one.variable,
        handlers=placed(one.handlers),
    )


def _wasm(one: BundledComponent, path: str) -> Component:
    """Return a sandboxed component with the grants that it requires, which were approved."""
    found = classify(path)
    if found.kind != "wasm":  # code of any other kind would run without a sandbox
        what = "its file is not a WebAssembly component, as its bundle claims"
        raise BundleError(f"{one.name}: {what}; get the bundle again")
    component = replace(found, name=one.name)
    if not one.grants:
        return component
    from portico.library.components.granted import granted

    lines = [f"{one.name}:{line}" for line in one.grants]
    return granted([component], lines, "the required grant")[0]


def _command(one: BundledComponent, folder: str) -> Component:
    """Return a server's command, which gets the small environment and the variables it needs."""
    if one.kind == "program":
        os.chmod(os.path.join(folder, *one.file.split("/")), 0o700)
    known = {"{python}": sys.executable}
    argv = tuple(known.get(word, word.replace("{bundle}", folder)) for word in one.argv)
    if one.kind == "command":
        argv = one.argv
    missing = [name for name in one.variables if name not in os.environ]
    if missing:
        report(f"{one.name}: set {', '.join(missing)} in the environment; its server needs it")
    env = {name: os.environ[name] for name in one.variables if name in os.environ}
    entry = ServerEntry(name=one.name, command=argv[0], args=argv[1:], env=env)
    return Component(name=one.name, kind="command", argument=one.name, argv=argv, entry=entry)
