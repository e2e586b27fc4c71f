"""Loads a component named on the command line, a Python or definitions file, as a `Server`."""

import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType

from portico.model.errors import RegistrationError
from portico.server import Server


def load_component(component: str, handlers: ModuleType | None = None) -> Server:
    """Return the component's server; raise RegistrationError if it cannot be loaded."""
    path, mark, variable = component.rpartition(".py:")  # server.py:NAME names one of several
    path, variable = (f"{path}.py", variable) if mark else (component, "")
    if path.endswith(".py"):
        return _server_in(import_file(path), path, variable)
    _check_file(path)
    if path.endswith(".json"):
        return _from_definitions(path, handlers)
    raise RegistrationError(f"{path}: not a component; give a .py or a .json file")


def import_file(path: str) -> ModuleType:
    """Run a Python file as a module; by hand, because `importlib.util` is slow to import."""
    _check_file(path)
    file = os.path.abspath(path)
    name, taken = _stem(path), False
    while name in sys.modules or name in sys.stdlib_module_names:
        name, taken = f"{name}_", True
    loader = SourceFileLoader(name, file)
    module = ModuleType(name)
    module.__file__, module.__loader__ = file, loader
    module.__spec__ = ModuleSpec(name, loader, origin=file)
    # As with `python FILE`, modules beside the file can be imported; but a file named email.py
    # must not replace the standard `email`.
    sys.path.insert(len(sys.path) if taken else 0, os.path.dirname(file))
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except RegistrationError as error:
        raise RegistrationError(f"{path}{_line_in(file, error)}: {error}") from error
    return module


def _server_in(module: ModuleType, path: str, variable: str) -> Server:
    found = {name: value for name, value in vars(module).items() if isinstance(value, Server)}
    if variable:
        if variable not in found:
            raise RegistrationError(f"{path}: {variable!r} is not a Server{_among(found)}")
        return found[variable]
    if "server" in found or len(set(map(id, found.values()))) == 1:
        return found.get("server") or next(iter(found.values()))
    if not found:
        raise RegistrationError(f"{path}: contains no Server; create one: server = Server(...)")
    raise RegistrationError(f"{path}: several servers; choose one: {path}:NAME{_among(found)}")


def _from_definitions(path: str, handlers: ModuleType | None) -> Server:
    """A server from a definitions file; each handler is the function with the tool's name."""
    server = Server(_stem(path))
    server.load(path)
    missing = []
    for kind, key, name in server.unanswered():
        function = getattr(handlers, name.replace("-", "_").replace(".", "_"), None)
        if function is None:
            missing.append(key)
        else:
            server.handler(key, function, kind=kind)
    if missing:
        hint = "" if handlers else "; give their functions with --handlers FILE.py"
        print(f"portico: no handler for {', '.join(missing)}{hint}", file=sys.stderr)
    return server


def _check_file(path: str) -> None:
    if not os.path.isfile(path):
        what = "a folder, not a file" if os.path.isdir(path) else "no such file"
        raise RegistrationError(f"{path}: {what}")


def _line_in(file: str, error: Exception) -> str:
    """`:12`, the line of the file that raised the error; empty if none did."""
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == file:
            line = trace.tb_lineno
        trace = trace.tb_next
    return f":{line}" if line else ""


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _among(found: dict[str, Server]) -> str:
    return f" (found: {', '.join(found)})" if found else ""
