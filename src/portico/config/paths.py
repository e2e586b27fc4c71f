"""Where Portico keeps what: config, state and cache, by XDG; `PORTICO_HOME` moves all three."""

import os
from pathlib import Path


def config_dir() -> Path:
    """Where the user's own files are, such as portico.toml."""
    return _folder("config", "XDG_CONFIG_HOME", ".config")


def state_dir() -> Path:
    """What must survive a restart: tokens, tasks, the control socket."""
    return _folder("state", "XDG_STATE_HOME", ".local/state")


def cache_dir() -> Path:
    """What can be made again: catalogs, downloads."""
    return _folder("cache", "XDG_CACHE_HOME", ".cache")


def _folder(kind: str, variable: str, default: str) -> Path:
    home = os.environ.get("PORTICO_HOME")
    if home:
        return Path(home).expanduser().absolute() / kind
    base = Path(os.environ.get(variable) or "")
    # "All paths must be absolute. If [one is] relative ... ignore it" (XDG Base Directory).
    return (base if base.is_absolute() else Path.home() / default) / "portico"
