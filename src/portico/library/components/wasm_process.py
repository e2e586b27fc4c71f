"""A WebAssembly component as a server: the command of the worker that hosts it."""

import os
import sys
from collections.abc import Iterable
from typing import cast

from msgspec.structs import replace

from portico.core.config.component_grants import add_grants
from portico.core.config.expand import Sources
from portico.core.config.paths import cache_folder, state_folder
from portico.core.config.schema import ComponentEntry, ServerEntry
from portico.core.model.errors import PorticoError
from portico.library.wasm.binary import NotAComponent, check_head
from portico.library.wasm.settings import VARIABLE, HostSettings, Instance, decode_settings
from portico.library.wasm.sidecar import ENDING

_WORKER = ("-P", "-m", "portico.library.wasm.worker")
# -P: modules in the working directory must not be imported.
COMPILE_S = 150.0
"""The lists of a component that is not compiled yet wait for that."""


def check_wasm(path: str, head: bytes) -> None:
    """Raise PorticoError unless a file is a component, and can be run here."""
    if sys.platform == "win32":
        raise NotAComponent("WebAssembly components run on Linux and macOS only")
    check_head(head)
    from importlib.util import find_spec  # slow to import

    if find_spec("wasmtime") is None:
        what = "WebAssembly components need wasmtime, which is not installed"
        raise PorticoError(f"{what}; run `pip install 'portico[wasm]'`")


def wasm_server(entry: ComponentEntry) -> ServerEntry:
    """Return the server that hosts a component: a worker without an environment."""
    path = os.path.abspath(entry.path)
    settings = HostSettings(
        file=path,
        name=entry.name,
        cache=os.path.join(cache_folder(), "wasm"),
        state=state_folder(),
        sidecar=entry.sidecar,
        stamp=f"{_stamp(path)} {_stamp(entry.sidecar or path + ENDING)}".strip(),
        granted=entry.grants,
        instance=cast(Instance, entry.instance),
    )
    return entry.as_server(
        command=sys.executable,
        args=_WORKER,
        env={VARIABLE: settings.encode()},
        cwd=os.sep,
        folder="any",
        timeouts=replace(entry.timeouts, list=max(entry.timeouts.list, COMPILE_S)),
        sharing="auto",
        # A worker may replace itself: a connection of the legacy era would have a state.
        era="modern",
        is_sandboxed=True,
    )


def with_grants(server: ServerEntry, lines: Iterable[str]) -> ServerEntry:
    """Return the server of a component that is granted more; raises InvalidGrant, Unresolved."""
    settings = settings_of(server)
    sources = Sources(os.environ, os.getcwd())
    granted = add_grants(lines, sources, settings.granted)
    return replace(server, env={VARIABLE: replace(settings, granted=granted).encode()})


def restamped(server: ServerEntry) -> ServerEntry:
    """Return the server of a component whose file has changed, with its other options."""
    settings = settings_of(server)
    stamp = _stamp(settings.file)
    return replace(server, env={VARIABLE: replace(settings, stamp=stamp).encode()})


def settings_of(server: ServerEntry) -> HostSettings:
    """Return the settings of the worker that a sandboxed server is."""
    return decode_settings(server.env[VARIABLE])


def _stamp(path: str) -> str:
    try:
        status = os.stat(path)
    except OSError:  # there need be no sidecar; a missing component is reported when it is started
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"
