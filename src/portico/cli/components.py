"""From a component on the command line to a `Server`: a Python file or a definitions file."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from portico.model.errors import RegistrationError
from portico.server import Server


def load_component(component: str, handlers: str | None = None) -> Server:
    """The server that a component is, or RegistrationError that says why it is none."""
    path, _, variable = component.partition(":") if ".py:" in component else (component, "", "")
    file = Path(path)
    if not file.is_file():
        raise RegistrationError(f"{path}: no such file")
    if file.suffix == ".py":
        return _server_in(_import(file), path, variable)
    if file.suffix == ".json":
        return _from_definitions(file, handlers)
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


def _from_definitions(file: Path, handlers: str | None) -> Server:
    """A server of a definitions file; each handler is the function with the tool's name."""
    server = Server(file.stem)
    server.load(file)
    module = None
    if handlers is not None:
        if not Path(handlers).is_file():
            raise RegistrationError(f"{handlers}: no such file")
        module = _import(Path(handlers))
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


def _import(file: Path) -> ModuleType:
    spec = spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    # As `python FILE` has it: what lies beside the file can be imported.
    sys.path.insert(0, str(file.resolve().parent))
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return module


def _among(found: dict[str, Server]) -> str:
    return f" (there are: {', '.join(found)})" if found else ""
