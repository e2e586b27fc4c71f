"""Where Portico keeps what: config, state and cache, by XDG; `PORTICO_HOME` moves all three."""

import os
from typing import TYPE_CHECKING

from portico.model.errors import PorticoError

if TYPE_CHECKING:
    from pathlib import Path


def state_dir() -> "Path":
    """What must survive a restart: tokens, tasks, the control socket."""
    from pathlib import Path  # slow to import

    return Path(state_folder())


def config_file() -> str:
    """The file that is read when no other is named."""
    return os.path.join(_folder("config", "XDG_CONFIG_HOME", ".config"), "portico.toml")


def state_folder() -> str:
    """`state_dir` for those who must start fast."""
    return _folder("state", "XDG_STATE_HOME", ".local/state")


def control_folder() -> str:
    """Where each process of this user has its control socket."""
    return os.path.join(state_folder(), "control")


def log_file() -> str:
    """Where the gateway keeps its log, unless its config says where."""
    return os.path.join(state_folder(), "logs", "serve.log")


def cache_folder() -> str:
    """What can be made again: catalogs, downloads."""
    return _folder("cache", "XDG_CACHE_HOME", ".cache")


def _folder(kind: str, variable: str, default: str) -> str:
    home = os.environ.get("PORTICO_HOME")
    if home:
        return os.path.join(_absolute(home), kind)
    base = os.environ.get(variable) or ""
    # "All paths must be absolute. If [one is] relative ... ignore it" (XDG Base Directory).
    if not os.path.isabs(base):
        home = os.path.expanduser("~")
        if not os.path.isabs(home):  # a user of whom the system knows nothing
            raise PorticoError("no home folder: set HOME, or PORTICO_HOME for Portico alone")
        base = os.path.join(home, default)
    return os.path.join(base, "portico")


def _absolute(home: str) -> str:
    try:
        return os.path.abspath(os.path.expanduser(home))
    except FileNotFoundError:
        raise PorticoError(
            f"PORTICO_HOME is {home!r}, relative to a folder that was deleted: "
            "give an absolute path, or start Portico in another folder"
        ) from None
