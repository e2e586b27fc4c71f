"""The options of `serve`; a bridge needs nothing else of the gateway."""

import os
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from portico.core.config.paths import state_folder
from portico.core.config.schema import Config
from portico.core.model.errors import PorticoError
from portico.core.model.types import Link
from portico.core.state.files import Stamp, stamp
from portico.core.state.report import report
from portico.core.state.user_secret import user_secret

if TYPE_CHECKING:
    from portico.gateway.members.in_process_server import InProcessEntry


_FOLDERS = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CACHE_HOME": ".cache",
}
"""The folders of a user's programs, and where each is usually."""


class ServeOptions(Struct, frozen=True):
    """The config to serve, and how."""

    config: Config
    version: str
    group: str | None = None
    expose: str | None = None
    client: str = ""
    """The name of this window's client."""
    server: str = ""
    """The only server of this window; empty for all."""
    refresh: bool = True
    """Refresh all servers at the start."""
    cache: bool = True
    read: Callable[[str], Config] | None = None
    """Reads the config again when its file has changed; None never does."""
    links: tuple[Link, ...] = ()
    """The links before every endpoint."""
    local: "Mapping[str, InProcessEntry]" = {}
    """Members that run in this process."""
    stamp: Stamp | None = None
    """The stamp of the config's file when it was read."""

    def reloaded(self) -> "ServeOptions":
        """Return the options with the current config file, unless that is invalid."""
        now = stamp(self.config.path)
        if self.read is None or now == self.stamp:
            return self
        try:
            return msgspec.structs.replace(self, config=self.read(self.config.path), stamp=now)
        except PorticoError as error:
            report(f"config not reloaded; keeping the previous one:\n{error}")
            return self

    def key(self) -> str:
        """Return the id of this gateway: processes with the same one share it."""
        return key_of(self.config.path, self.group)

    def account(self) -> str:
        """Return a digest of the environment variables that the config uses, and of unusual user
        folders: another token or home is another account. Empty if it has neither."""
        taken = [(name, os.environ.get(name, "")) for name in sorted(self.config.variables)]
        taken += unusual_folders()
        return _digest(*map(repr, taken)) if taken else ""


def unusual_folders() -> list[tuple[str, str]]:
    """Return the variables of the user's folders that are not as usual: servers find their
    settings and logins there."""
    import pwd

    try:
        usual = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container's user may have no entry
        usual = ""
    home = os.path.expanduser("~")
    found = [] if home == usual else [("HOME", home)]
    for name, below in _FOLDERS.items():
        folder = os.environ.get(name) or os.path.join(home, below)
        if folder != os.path.join(home, below):
            found.append((name, folder))
    return found


def key_of(path: str, group: str | None = None) -> str:
    """Return the id of the gateway for the config at this path."""
    return _digest(path, group or "")


def restricted_to(config: Config, group: str) -> Config:
    """Return the config with only this group and its members."""
    if group not in config.groups:
        hint = f"choose from {', '.join(config.groups)}" if config.groups else "add it first"
        raise PorticoError(f"there is no group {group!r}; {hint}")
    wanted = {*config.groups[group].servers, *config.linked}
    servers = {name: entry for name, entry in config.servers.items() if name in wanted}
    components = {name: entry for name, entry in config.components.items() if name in wanted}
    groups = {group: config.groups[group]}
    return msgspec.structs.replace(config, servers=servers, components=components, groups=groups)


def _digest(*parts: str) -> str:
    secret = user_secret(state_folder())
    # Paths and variables may have bytes that are not text: Python decodes them to lone surrogates.
    text = "\0".join(parts).encode("utf-8", "surrogatepass")
    return blake2b(text, key=secret, digest_size=8).hexdigest()
