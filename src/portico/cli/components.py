"""From a component on the command line to a `Server`: a Python file or a definitions file."""

import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType

from portico.model.errors import RegistrationError
from portico.server import Server


def load_component(component: str, handlers: str | None = None) -> Server:
    """The server that a component is, or RegistrationError that says why it is none."""
    path, _, variable = component.partition(":") if ".py:" in component else (component, "", "")
    if not os.path.isfile(path):
        raise RegistrationError(f"{path}: no such file")
    if path.endswith(".py"):
        return _server_in(_import(path), path, variable)
    if path.endswith(".json"):
        return _from_definitions(path, handlers)
    raise RegistrationError(f"{path}: not a component; give a .py or a .json file")


def _server_in(module: ModuleType, path: str, variable: str) -> Server:
    found = {name: value for name, value in vars(module).items() if isinstance(value, Server)}
    if variable:
        if variable not in found:
            raise RegistrationError(f"{path}: {variable!r} is no Server there{_among(found)}")
        return found[variable]
    if "server" in found or len(set(map(id, found.values()))) == 1:
        return found.get("server") or next(iter(found.values()))
    if not found:
        raise RegistrationError(f"{path}: no Server in it; make one: server = Server(...)")
    raise RegistrationError(f"{path}: several servers; say which: {path}:NAME{_among(found)}")


def _from_definitions(path: str, handlers: str | None) -> Server:
    """A server of a definitions file; each handler is the function with the tool's name."""
    server = Server(_stem(path))
    server.load(path)
    module = None
    if handlers is not None:
        if not os.path.isfile(handlers):
            raise RegistrationError(f"{handlers}: no such file")
        module = _import(handlers)
    missing = [
        key
        for kind, key, name in server.unanswered()
        if not _give_handler(server, module, kind, key, name)
    ]
    if missing:
        hint = "" if handlers else "; give their functions with --handlers FILE.py"
        print(f"portico: no handler for {', '.join(missing)}{hint}", file=sys.stderr)
    return server


def _give_handler(
    server: Server, module: ModuleType | None, kind: str, key: str, name: str
) -> bool:
    function = getattr(module, name.replace("-", "_").replace(".", "_"), None)
    if function is None:
        return False
    server.handler(key, function, kind=kind)
    return True


def _import(path: str) -> ModuleType:
    """Run a Python file as a module; by hand, because `importlib.util` is slow to import."""
    name, file = _stem(path), os.path.abspath(path)
    loader = SourceFileLoader(name, file)
    module = ModuleType(name)
    module.__file__, module.__loader__ = file, loader
    module.__spec__ = ModuleSpec(name, loader, origin=file)
    # As `python FILE` has it: what lies beside the file can be imported.
    sys.path.insert(0, os.path.dirname(file))
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def _stem(path: str) -> str:
    return os.path.splitext(os.path.basename(path))[0]


def _among(found: dict[str, Server]) -> str:
    return f" (there are: {', '.join(found)})" if found else ""
