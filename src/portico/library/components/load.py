"""Loads the files of components: the server and the links in a Python file, or definitions."""

import os
import sys
import time
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from portico.core.model.errors import PorticoError, RegistrationError
from portico.core.model.types import Link
from portico.core.model.wording import close_matches, did_you_mean
from portico.library.chain.fold import COMPONENT
from portico.library.chain.hooks import HOOKS, hooks
from portico.library.components.classify import Component, ComponentError, read_head
from portico.library.server import Server, loading

if TYPE_CHECKING:
    from portico.core.definitions.load import Definitions


_FRESH_S = 3.0
"""How long a file counts as just saved: bytecode is cached by a time in whole seconds."""


class LoadError(ComponentError):
    """A file that could not be imported; `reason` is the exception that it raised."""

    def __init__(self, message: str, reason: BaseException) -> None:
        super().__init__(message)
        self.reason = reason


class LoadedFile(Struct, frozen=True):
    """The contents of a component's file; one of them may be absent."""

    server: Server | None = None
    links: tuple[Link, ...] = ()


Imported = MutableMapping[str, ModuleType]
"""Modules that are imported already, by the paths of their files."""


def load_file(
    component: Component, handlers: ModuleType | None = None, imported: Imported | None = None
) -> LoadedFile:
    """Return the server and the links of a file; raises PorticoError.

    `handlers` has the functions for a definitions file. A file in `imported` is not imported again,
    and the others are added to it.
    """
    path, variable = component.path, component.variable
    if component.kind == "definitions":
        return LoadedFile(_from_definitions(path, handlers))
    imported = {} if imported is None else imported
    if path not in imported:
        imported[path] = import_file(path)
    found = vars(imported[path])
    if variable:
        return _named(found, path, variable)
    links = _links_in(found, path)
    return LoadedFile(_server_in(found, path, is_optional=bool(links)), links)


def load_middleware(component: Component, imported: Imported) -> LoadedFile:
    """Return the links of a file, and its server if it has one; raises PorticoError without links.

    `imported` is that of `load_file`.
    """
    if component.kind == "wasm":
        from portico.library.components.wasm_link import only_middleware

        return LoadedFile(None, only_middleware(component))
    if component.kind != "python":
        what = "not middleware; give a Python file or a WebAssembly component"
        raise ComponentError(f"{component.argument}: {what}")
    loaded = load_file(component, imported=imported)
    if not loaded.links:
        what = "contains no middleware; define `def on_call(call, next):` or give FILE.py:NAME"
        raise ComponentError(f"{component.argument}: {what}")
    return loaded


@loading()
def import_file(path: str) -> ModuleType:
    """Run a Python file as a module; by hand, because `importlib.util` is slow to import.

    Raises LoadError with the file's own line if it fails.
    """
    _check_file(path)
    file = os.path.abspath(path)
    name, taken = _stem(path), False
    while name in sys.modules or name in sys.stdlib_module_names:
        name, taken = f"{name}_", True
    loader = _FreshLoader(name, file)
    module = ModuleType(name)
    module.__file__, module.__loader__ = file, loader
    module.__spec__ = ModuleSpec(name, loader, origin=file)
    # As with `python FILE`, modules beside the file can be imported; but a file named email.py
    # must not replace the standard `email`.
    folder = os.path.dirname(file)
    sys.path[:] = [one for one in sys.path if one != folder]  # if it is imported again
    sys.path.insert(len(sys.path) if taken else 0, folder)
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        raise LoadError(_failure(path, error), error) from error
    return module


class _FreshLoader(SourceFileLoader):
    """Compiles a file that was saved just now: cached bytecode would hide a change within a second
    that keeps the file's size."""

    def path_stats(self, path: str) -> Mapping[str, Any]:
        """Raise OSError for such a file, so that no bytecode of it is read or written."""
        stats = super().path_stats(path)
        if abs(time.time() - stats["mtime"]) < _FRESH_S:
            raise OSError(path)
        return stats


def _failure(path: str, error: BaseException) -> str:
    from portico.core.state.error_location import error_location

    where = error_location(error, os.path.abspath(path)) or path
    if isinstance(error, PorticoError):
        return f"{where}: {error}"
    if isinstance(error, SystemExit):
        how = f": {error.code}" if isinstance(error.code, str) else f" with code {error.code or 0}"
        return f"{where}: the import exited{how}"
    if isinstance(error, ModuleNotFoundError):
        from portico.library.components.file_python import missing_module

        how = missing_module(str(error.name), path)
        return f"{where}: cannot import {error.name}: no such module; {how}"
    return f"{where}: {type(error).__name__}: {error}"


def _named(found: Mapping[str, Any], path: str, variable: str) -> LoadedFile:
    """Return what a variable of a file is: a server, a link, or a list of links."""
    value = found.get(variable)
    if isinstance(value, Server):
        return LoadedFile(value)
    if isinstance(value, list | tuple):
        return LoadedFile(None, _checked(value, f"{path}:{variable}"))
    if variable in found and callable(value):
        return LoadedFile(None, _checked([value], f"{path}:{variable}"))
    if variable in found:
        raise ComponentError(f"{path}: {variable!r} is {_kind(value)}, not a Server or a link")
    own = found["__name__"]
    usable = [
        name
        for name, one in found.items()
        if isinstance(one, Server) or (callable(one) and getattr(one, "__module__", "") == own)
    ]
    near = did_you_mean(close_matches(variable, usable))
    hint = near or (f"it has {', '.join(usable)}" if usable else "define it")
    raise ComponentError(f"{path}: there is no variable {variable[:80]!r}; {hint}")


def _links_in(found: Mapping[str, Any], path: str) -> tuple[Link, ...]:
    own = {name: found[name] for name in HOOKS if callable(found.get(name))}
    if own and ("link" in found or "links" in found):
        why = f"`{next(iter(own))}` and a link have no order in one file"
        raise ComponentError(f"{path}: {why}; write `links = [hooks(...), ...]`")
    if own:
        return _checked([hooks(**own)], path)
    if "link" in found:
        return _checked([found["link"]], f"{path}:link")
    if "links" not in found:
        return ()
    links = found["links"]
    if not isinstance(links, list | tuple):
        raise ComponentError(f"{path}: `links` must be a list of links, not {_kind(links)}")
    return _checked(links, f"{path}:links")


def _checked(links: Sequence[Any], where: str) -> tuple[Link, ...]:
    """Return these links; raises ComponentError for anything else."""
    from inspect import iscoroutinefunction

    for link in links:
        if isinstance(link, type):
            why = f"{link.__name__} is a class; give an instance of it"
        elif iscoroutinefunction(link):
            why = "the link is `async def`; only the handler that it returns may be"
        elif not callable(link):
            why = f"{_kind(link)} is not a link; give a function that takes the next handler"
        else:
            with suppress(AttributeError):  # an object with slots keeps the name of its class
                setattr(link, COMPONENT, _stem(where.partition(":")[0]))
            continue
        raise ComponentError(f"{where}: {why}")
    return tuple(links)


def _server_in(found: Mapping[str, Any], path: str, *, is_optional: bool) -> Server | None:
    servers = {name: value for name, value in found.items() if isinstance(value, Server)}
    if "server" in servers or len(set(map(id, servers.values()))) == 1:
        return servers.get("server") or next(iter(servers.values()))
    if not servers:
        if is_optional:
            return None
        how = f"define `server = Server(...)` or `def on_call(call, next):`, or give {path}:NAME"
        raise ComponentError(f"{path}: contains neither a Server nor a link; {how}")
    names = f" (found: {', '.join(servers)})"
    raise ComponentError(f"{path}: several servers; choose one: {path}:NAME{names}")


def _from_definitions(path: str, handlers: ModuleType | None) -> Server:
    """A server from a definitions file; each handler is the function with the tool's name."""
    _check_file(path)
    server = Server(_stem(path))
    try:
        server.load(path)
    except RegistrationError as error:
        raise _rejection(path, error) from None
    missing = []
    for kind, key, name in server.unanswered():
        function = getattr(handlers, name.replace("-", "_").replace(".", "_"), None)
        if function is None:
            missing.append(key)
        else:
            server.handler(key, function, kind=kind)
    if missing:
        hint = "" if handlers else "; give their functions with --handlers FILE.py"
        print(f"portico: no handler for {', '.join(missing)}{hint}", file=sys.stderr)  # noqa: T201
    return server


def read_definitions(path: str) -> "Definitions":
    """Return the contents of a definitions file; raises PorticoError."""
    from portico.core.definitions import load

    try:
        return load.load_file(path)
    except RegistrationError as error:
        raise _rejection(path, error) from None


def _rejection(path: str, error: RegistrationError) -> PorticoError:
    """Return the error of an invalid definitions file."""
    if not _is_config(path):
        return error
    how = f"serve it with `portico serve --config {path}`"
    return ComponentError(f"{path}: a config of servers, not a component; {how}")


def _is_config(path: str) -> bool:
    from portico.core.documents.document import open_document

    try:
        data = open_document(path).data
    except PorticoError:
        return False
    return "mcpServers" in data or isinstance(data.get("servers"), dict)


def _check_file(path: str) -> None:
    if not os.path.exists(path):
        raise ComponentError(f"{path}: no such file")
    if not os.path.isfile(path) or not os.access(path, os.R_OK):
        read_head(path)  # raises the reason


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _kind(value: object) -> str:
    return type(value).__name__
