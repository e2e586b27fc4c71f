"""The files and the manifest of a bundle, from the components that a person names."""

import os
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from msgspec.structs import replace

from portico.core.model.errors import PorticoError
from portico.core.state.files import read
from portico.core.state.report import report
from portico.library.bundles.bundle_reader import open_bundle_file
from portico.library.bundles.bundle_writer import bundle_bytes, described_files
from portico.library.bundles.contents import (
    FORMAT,
    MAX_BUNDLE,
    BundleContents,
    BundledComponent,
    BundleError,
    Wish,
    inner_wishes,
    own_wishes,
    path_in_bundle,
    program_lines,
)
from portico.library.bundles.interfaces import newest
from portico.library.components.analyze import SourceFacts, analyze, files_beside
from portico.library.components.classify import Component, ComponentError, classify
from portico.library.components.load import read_definitions
from portico.library.components.project import project_of
from portico.library.components.wasm_process import settings_of
from portico.library.wasm.handler_protocol import is_handler


class CollectedBundle:
    """Collects the files of components, and describes each."""

    def __init__(self) -> None:
        self._folders: dict[str, int] = {}
        self._files: dict[str, bytes] = {}
        self._inner: list[Wish] = []
        self._size = 0

    def compose(
        self,
        components: Sequence[Component],
        *,
        overridden: Mapping[str, str],
        grants: Mapping[str, Sequence[str]] | None = None,
        transport: str,
        name: str = "",
        prefixed: bool = False,
        shadows: Sequence[str] = (),
    ) -> bytes:
        """Return the bytes of the bundle; `overridden` has what each override replaced.

        `grants` are those that its components require, by name.
        """
        found = tuple(
            replace(
                self._described(one),
                overrides=overridden.get(one.name, ""),
                grants=tuple((grants or {}).get(one.name, ())),
            )
            for one in components
        )
        contents = BundleContents(
            program="portico",
            format=FORMAT,
            name=name,
            components=found,
            prefixed=prefixed,
            shadows=tuple(shadows),
            transport=self._transport(transport),
            files=described_files(self._files),
        )
        wishes = (*own_wishes(contents), *self._inner)
        return bundle_bytes(replace(contents, wishes=wishes), self._files)

    def _described(self, component: Component) -> BundledComponent:
        """Add the files of a component, and describe it; raises PorticoError."""
        if component.url:
            return _url(component)
        if component.kind == "bundle":
            return self._bundle(component)
        if component.kind == "python":
            return self._python(component)
        if component.kind == "definitions":
            return self._definitions(component)
        if component.kind == "wasm":
            return self._wasm(component)
        if component.entry is None and os.path.isfile(component.argument):
            return self._program(component)
        return _command(component)

    def _python(self, component: Component) -> BundledComponent:
        facts = _facts(component.path, component.variable)
        project = project_of(component.path)
        return BundledComponent(
            name=component.name,
            kind="python",
            interface=(project and project.interface) or newest("python"),
            file=self._with_modules(component.path),
            variable=component.variable,
            requires=_requires(component, facts),
            is_middleware=facts.is_middleware_only,
        )

    def _definitions(self, component: Component) -> BundledComponent:
        read_definitions(component.path)  # raises if they are not valid
        handlers = ""
        if component.handlers:
            _facts(component.handlers)
            handlers = self._with_modules(component.handlers)
        return BundledComponent(
            name=component.name,
            kind="definitions",
            interface=newest("definitions"),
            file=self._add(component.path),
            handlers=handlers,
        )

    def _wasm(self, component: Component) -> BundledComponent:
        path = component.binary
        if os.path.exists(f"{path}.toml"):  # it describes the functions
            self._add(f"{path}.toml")
        file = self._add(path)
        exports = wasm_exports(self._files[file], component.label)
        if component.entry is not None and settings_of(component.entry).granted.lines():
            report(
                f"{component.name}: its grants of the config are not in the bundle; "
                "name those that it requires with --grant"
            )
        return BundledComponent(
            name=component.name,
            kind="wasm",
            interface=wasm_interface(exports),
            file=file,
            is_middleware=any(map(is_handler, exports)),
        )

    def _program(self, component: Component) -> BundledComponent:
        """A script of another library, or any other file that runs by itself."""
        path = component.argument
        is_python = component.argv[0] == sys.executable
        file = self._with_modules(path) if is_python else self._add(path)
        argv = program_lines(file)[is_python]
        return BundledComponent(name=component.name, kind="program", file=file, argv=argv)

    def _bundle(self, component: Component) -> BundledComponent:
        with open_bundle_file(component.path) as bundle:
            bundle.verify()
            self._inner += inner_wishes(component.name, bundle.contents)
            is_middleware = bundle.contents.is_middleware
        return BundledComponent(
            name=component.name,
            kind="bundle",
            file=self._add(component.path),
            is_middleware=is_middleware,
        )

    def _transport(self, argument: str) -> str:
        scheme = argument.partition(":")[0]
        if scheme in ("stdio", "http"):
            return argument
        component = classify(argument)
        if component.kind != "python":
            raise ComponentError(f"{argument}: not a transport; give a Python file")
        _facts(component.path)
        file = self._with_modules(component.path)
        return f"{file}:{component.variable}" if component.variable else file

    def _with_modules(self, path: str) -> str:
        """Add a Python file, the modules beside it, and the files that its project names."""
        project = project_of(path)
        others = files_beside(path)[1:] + (project.data_files() if project is not None else [])
        folder = os.path.dirname(os.path.abspath(path))
        for other in others:
            self._add(other, folder)
        return self._add(path)

    def _add(self, path: str, folder: str = "") -> str:
        """Add a file, in place of its folder; return its path in the bundle."""
        whole = os.path.abspath(path)
        folder = folder or os.path.dirname(whole)
        number = self._folders.setdefault(folder, len(self._folders))
        place = path_in_bundle(number, os.path.relpath(whole, folder).replace(os.sep, "/"))
        if place not in self._files:
            self._files[place] = self._content(path)
        return place

    def _content(self, path: str) -> bytes:
        try:
            data, _ = read(path, MAX_BUNDLE - self._size, follow=True)
        except OSError as error:
            raise BundleError(f"{path}: cannot be read: {error.strerror or error}") from None
        self._size += len(data)
        return data


def wasm_exports(data: bytes, what: str) -> Sequence[str]:
    """Return the names that a WebAssembly component exports; raises ComponentError."""
    from portico.library.wasm.binary import outline

    try:
        return outline(data).exports
    except PorticoError as error:
        raise ComponentError(f"{what}: {error}") from None


def wasm_interface(exports: Sequence[str]) -> str:
    """Return the interface among these exports, with its version."""
    for export in exports:
        package, slash, rest = export.partition("/")
        version = rest.partition("@")[2]
        if slash and version and package.partition(":")[0] in ("portico", "wasmcp"):
            return f"{package}@{version}"
    return newest("component")


def _facts(path: str, variable: str = "") -> SourceFacts:
    facts = analyze(path, variable)
    if facts.problem:
        raise ComponentError(facts.problem)
    return facts


def _requires(component: Component, facts: SourceFacts) -> tuple[str, ...]:
    """Return the modules that a component imports and that are not put into the bundle."""
    for one in facts.imports:
        if one.origin == "missing":
            report(
                f"{one.by}:{one.line}: {one.name} is neither beside the file nor installed; "
                "it is not in the bundle"
            )
    return tuple(sorted({one.name for one in facts.imports if one.origin == "installed"}))


def _url(component: Component) -> BundledComponent:
    entry = component.entry
    if entry is not None and entry.headers:
        raise ComponentError(
            f"{component.label}: its headers may be secrets; "
            "give the URL itself, and let each user log in"
        )
    parts = urlsplit(component.url)
    if parts.username is not None or parts.password is not None:
        raise ComponentError(
            f"{component.label}: the URL has a secret; remove the user and the password"
        )
    return BundledComponent(name=component.name, kind="url", url=component.url)


def _command(component: Component) -> BundledComponent:
    for word in component.argv[1:]:
        if os.path.isfile(word):
            report(f"{component.name}: {word} is a file of this machine, and not in the bundle")
    entry = component.entry
    if entry is not None and entry.cwd:
        report(f"{component.name}: its folder {entry.cwd} is not part of the bundle")
    variables = () if entry is None else tuple(sorted(entry.env))
    if variables:
        names = ", ".join(variables)
        report(f"{component.name}: the values of {names} are not in the bundle; set them there")
    return BundledComponent(
        name=component.name, kind="command", argv=component.argv, variables=variables
    )
