"""Aliases: the servers and components of the config, by name."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from portico.core.model.errors import PorticoError

if TYPE_CHECKING:
    from portico.core.config.schema import Config, Profile, ServerEntry


class ConfigAliases(Mapping[str, "ServerEntry"]):
    """The aliases of a config, which is read with the first lookup: most components are files.

    A default config that is broken is reported and has no aliases; a broken config of the user's
    choice raises ConfigError.
    """

    def __init__(self, path: str | None = None, *, quiet: bool = False) -> None:
        """With `quiet`, a broken config has no aliases, and is not reported."""
        self._path = path
        self._quiet = quiet

    def __getitem__(self, name: str) -> "ServerEntry":
        from portico.core.config.read import read

        if name not in self._names:
            raise KeyError(name)
        # Read again with its variables and secrets, which the others do not need.
        config = read(self.path, only={name})
        if name in config.servers:
            return config.servers[name]
        from portico.library.components.own_process import as_server, checked

        return as_server(checked(config.components[name], may_be_middleware=True))

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @cached_property
    def path(self) -> str:
        """The path of the config, which may not exist."""
        from portico.core.config.paths import config_file

        return self._path or config_file()

    @property
    def profiles(self) -> "Mapping[str, Profile]":
        """The profiles by name."""
        return {} if self._config is None else self._config.profiles

    def file(self, name: str) -> str:
        """Return the file of a configured component; empty for a command, and for a server."""
        found = None if self._config is None else self._config.components.get(name)
        return "" if found is None or found.problem else found.path

    def reference(self, name: str) -> str:
        """Return the reference of a configured component; empty if it has none."""
        found = None if self._config is None else self._config.components.get(name)
        return "" if found is None else found.oci

    def written(self, name: str) -> Sequence[str]:
        """Return the command line or the URL of a name as it is in the config: with references in
        place of values, which may be secrets."""
        if self._config is None or name not in self._names:
            return ()
        server = self._config.servers.get(name)
        if server is not None:
            return (server.command, *server.args, server.url)
        component = self._config.components[name]
        return (component.command, *component.args)

    @cached_property
    def _names(self) -> "Mapping[str, object]":
        return {} if self._config is None else self._config.aliases

    @cached_property
    def _config(self) -> "Config | None":
        import os

        from portico.core.config.read import read

        try:
            if self._path is None and not os.path.exists(self.path):
                return None
            return read(self.path, only=())
        except PorticoError as error:
            if self._quiet:
                return None
            if self._path is not None:
                raise
            from portico.core.state.report import report

            report(f"the names in the config cannot be used:\n{error}")
            return None
