"""A configured component as a server: a command that runs it in its own process."""

import os
import sys
from contextlib import suppress

from msgspec.structs import replace

from portico.core.config.component_grants import ComponentGrants
from portico.core.config.paths import state_folder
from portico.core.config.schema import ComponentEntry, ServerEntry, Timeouts
from portico.core.documents.trust import check_code
from portico.core.model.errors import PorticoError
from portico.core.state.client_sessions import FOLDER_VARIABLE
from portico.library.components.classify import Component, ComponentError, classify
from portico.library.components.file_python import command_of, header_of
from portico.library.components.wasm_process import wasm_server
from portico.library.wasm.sidecar import ENDING

_RUN = ("-P", "-m", "portico", "run")
# -P: modules in the working directory must not be imported.


def checked(entry: ComponentEntry, *, may_be_middleware: bool = False) -> ComponentEntry:
    """Return the entry; with a problem if its file is not a component, or not only the user's.

    Middleware is not a component of a gateway, but is one of `run` and `compose`.
    """
    if entry.problem or not (entry.path or entry.oci):
        return entry
    try:
        if entry.oci:
            from portico.library.components.registry_resolver import find_pulled

            pulled = find_pulled(entry.config, entry.oci)
            if pulled.kind != "component":
                # A bundle is run by its reference, by which its approval is remembered.
                return _fitting(entry, is_wasm=False)
            entry = replace(entry, path=pulled.path, sidecar=_sidecar(entry))
        else:
            check_code(entry.files)
        found = classify(entry.path)
        is_link = found.kind == "wasm" and _is_middleware(found.binary)
        header_of(entry.path)
    except PorticoError as error:
        return replace(entry, problem=str(error))
    if is_link and not may_be_middleware:
        how = f'write links = ["{entry.name}"] in [gateway]'
        what = f"{entry.oci or entry.path}: is middleware, and offers nothing"
        return replace(entry, problem=f"{what}; {how}")
    return _fitting(entry, is_wasm=found.kind == "wasm")


def _sidecar(entry: ComponentEntry) -> str:
    """Return the file beside the config that describes a component of a registry, if there is one:
    the operator's words come before those of its author."""
    path = os.path.join(os.path.dirname(entry.config), f"{entry.name}.wasm{ENDING}")
    return path if os.path.exists(path) else ""


def _fitting(entry: ComponentEntry, *, is_wasm: bool) -> ComponentEntry:
    """Return the entry; with a problem if a key does not fit the file."""
    why = _misplaced(entry, is_wasm=is_wasm)
    return replace(entry, problem=f"{entry.oci or entry.path}: {why}") if why else entry


def _misplaced(entry: ComponentEntry, *, is_wasm: bool) -> str:
    """Return why a key does not fit the file; empty if all do."""
    if not is_wasm:
        if entry.grants == ComponentGrants() and entry.instance == "call":
            return ""
        what = "is not sandboxed, so nothing can be granted to it"
        return f"{what}; remove grants and instance: it has your rights already"
    if entry.in_process:
        return "cannot be loaded into this process; remove in_process: a worker hosts it"
    if entry.env:
        return "has no environment of its own; write env in its grants instead"
    if entry.sharing == "per-client":
        what = "has one worker for all clients, which share no instance"
        return f'{what}; replace sharing = "per-client" by instance = "session"'
    return ""


def _is_middleware(path: str) -> bool:
    from portico.library.components.wasm_link import is_middleware

    return is_middleware(path)


def as_link(entry: ComponentEntry) -> Component:
    """Return a configured component that is to be a link; raises ComponentError."""
    if not entry.enabled:
        how = "enable it, or remove it from gateway.links"
        raise ComponentError(f"{entry.name} is disabled; {how}")
    entry = checked(entry, may_be_middleware=True)
    if entry.problem:
        raise ComponentError(f"{entry.name}: {entry.problem}")
    if not entry.path:
        how = "give a Python file or a WebAssembly component"
        raise ComponentError(f"{entry.oci}: a bundle, not middleware; {how}")
    return named(entry)


def named(entry: ComponentEntry) -> Component:
    """Return the component of an entry with a file, which is described by its own content."""
    return replace(classify(entry.path), name=entry.name, entry=as_server(entry))


def as_server(entry: ComponentEntry) -> ServerEntry:
    """Return the server that runs this component, with the component's own options."""
    if entry.path and not entry.problem and classify(entry.path).kind == "wasm":
        return wasm_server(entry)
    argv, is_ours = _argv(entry)
    command, *args = argv
    env = {**_own_home(), **entry.env, FOLDER_VARIABLE: state_folder()} if is_ours else entry.env
    era = _era(entry) if is_ours else "auto"
    return entry.as_server(
        command=command, args=tuple(args), env=env, timeouts=_timeouts(entry), era=era
    )


def _era(entry: ComponentEntry) -> str:
    """Return the era to use with a server of our own library.

    Its questions work in both eras. All clients share the connection of a modern process.
    """
    return "legacy" if entry.sharing == "per-client" else "modern"


def _timeouts(entry: ComponentEntry) -> Timeouts:
    """Return the timeouts of its process; that of a bundle may take as long as what is in it."""
    times, start_s = entry.timeouts, 0.0
    with suppress(PorticoError):  # the process reports what is wrong with its bundle
        path = "" if entry.problem else _bundle_of(entry)
        if path:
            from portico.library.components.bundled import bundle_start_s

            start_s = bundle_start_s(path)
    return replace(times, init=max(times.init, start_s), list=max(times.list, start_s))


def _bundle_of(entry: ComponentEntry) -> str:
    """Return the file of a bundle; empty for another component; raises PorticoError."""
    if entry.path:
        return entry.path if classify(entry.path).kind == "bundle" else ""
    if not entry.oci:
        return ""
    from portico.library.components.registry_resolver import find_pulled

    return find_pulled(entry.config, entry.oci).path


def keeps_sessions(entry: ComponentEntry) -> bool:
    """True if its process runs a server of our own library, or a sandbox: it gets the ids of
    sessions."""
    return as_server(entry).is_sandboxed or _argv(entry)[1]


def _own_home() -> dict[str, str]:
    """Return the variable that moves Portico's folders, where the child finds what was pulled."""
    home = os.environ.get("PORTICO_HOME")
    return {"PORTICO_HOME": home} if home else {}


def _argv(entry: ComponentEntry) -> tuple[tuple[str, ...], bool]:
    """Return the command line, and whether it runs a server of our own library."""
    if entry.oci and not entry.path:
        return (sys.executable, *_RUN, entry.oci, "--config", entry.config), True
    if not entry.path:
        return (entry.command, *entry.args), False
    argv = () if entry.problem else classify(entry.path).argv
    if argv:  # a server of another library runs by itself
        return argv, False
    handlers = ("--handlers", entry.handlers) if entry.handlers else ()
    if entry.problem:
        return (sys.executable, *_RUN, entry.path), True
    return command_of(entry.path, handlers, entry.python), True
