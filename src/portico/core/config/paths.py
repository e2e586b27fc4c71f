"""The folders of config, state and cache, by XDG; `PORTICO_HOME` moves all three."""

import os
from typing import TYPE_CHECKING

from portico.core.model.errors import PorticoError

if TYPE_CHECKING:
    from pathlib import Path


BUNDLES = "bundles"
"""The folder of unpacked .mcpb bundles, in that of the state."""


def state_dir() -> "Path":
    """The folder of data that must survive a restart: tokens, tasks, the control socket."""
    from pathlib import Path  # slow to import

    return Path(state_folder())


def config_file() -> str:
    """The default config file; `PORTICO_CONFIG` is for clients that pass no options on."""
    if given := os.environ.get("PORTICO_CONFIG"):
        return _absolute("PORTICO_CONFIG", given)
    return os.path.join(_folder("config", "XDG_CONFIG_HOME", ".config"), "portico.toml")


def state_folder() -> str:
    """`state_dir` as a string, without importing pathlib."""
    return _folder("state", "XDG_STATE_HOME", ".local/state")


def control_folder() -> str:
    """The folder of the control sockets of this user's processes."""
    return os.path.join(state_folder(), "control")


def log_file() -> str:
    """The gateway's log, unless its config sets another."""
    return os.path.join(state_folder(), "logs", "serve.log")


def owner_log() -> str:
    """The stderr of the owners of gateways; its folder is created."""
    from portico.core.state.files import make_private

    folder = os.path.dirname(log_file())
    make_private(folder)
    return os.path.join(folder, "owner.log")


def cache_folder() -> str:
    """The folder of data that can be rebuilt: catalogs, downloads."""
    return _folder("cache", "XDG_CACHE_HOME", ".cache")


def working_folder() -> str:
    """Return the folder of this process; empty if it was deleted, or if its name is not text."""
    try:
        folder = os.getcwd()
        folder.encode()
    except (FileNotFoundError, UnicodeEncodeError):
        return ""
    return folder


def _folder(kind: str, variable: str, default: str) -> str:
    home = os.environ.get("PORTICO_HOME")
    if home:
        return os.path.join(_absolute("PORTICO_HOME", home), kind)
    base = os.environ.get(variable) or ""
    # "All paths must be absolute. If [one is] relative ... ignore it" (XDG Base Directory).
    if not os.path.isabs(base):
        home = os.path.expanduser("~")
        if not os.path.isabs(home):  # a user without an entry in the system's database
            raise PorticoError("no home folder: set HOME, or PORTICO_HOME for Portico alone")
        base = os.path.join(home, default)
    return os.path.join(base, "portico")


def _absolute(variable: str, path: str) -> str:
    try:
        return os.path.abspath(os.path.expanduser(path))
    except FileNotFoundError:
        raise PorticoError(
            f"{variable} is {path!r}, relative to a folder that was deleted: "
            "give an absolute path, or start Portico in another folder"
        ) from None
