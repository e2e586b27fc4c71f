"""Resolves references to registries: from the cache by their locked digest, or by a pull."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from portico.core.documents.names import valid_name
from portico.library.components.aliases import ConfigAliases
from portico.library.components.classify import ComponentError, classify
from portico.library.components.resolver import RequestedComponent, is_registry_reference

if TYPE_CHECKING:
    from portico.core.config.schema import Config
    from portico.library.distribution.pull import Pulled, Puller
    from portico.library.distribution.reference import OciReference


class RegistryResolver:
    """Replaces a reference by the file that it is pinned to."""

    def __init__(self, aliases: ConfigAliases, *, pulls: bool = False) -> None:
        """With `pulls`, ask the registry; otherwise use only what was pulled."""
        self._aliases = aliases
        self._pulls = pulls

    async def resolve(self, entry: RequestedComponent) -> Sequence[RequestedComponent] | None:
        """Return the entry with its component; raises ComponentError if it is not there."""
        if entry.component is not None or not is_registry_reference(entry.argument):
            return None
        from portico.library.distribution.distribution_error import DistributionError

        try:
            found = await self._find(entry.argument)
        except DistributionError as error:
            raise ComponentError(str(error)) from None
        name = entry.name or valid_name(found.reference.name.rpartition("/")[2])
        component = replace(classify(found.path), argument=entry.argument, name=name)
        return [replace(entry, component=component, origin=found.reference.origin)]

    async def _find(self, argument: str) -> "Pulled":
        if not self._pulls:
            return find_pulled(self._aliases.path, argument)
        config = _read(self._aliases.path)
        return await _puller(config).pull(_reference(config, argument))


def find_pulled(config_path: str, argument: str) -> "Pulled":
    """Return what a reference was pinned to; raises DistributionError if it cannot be used now."""
    config = _read(config_path)
    return _puller(config).find(_reference(config, argument))


def pull_configured(config_path: str) -> None:
    """Pull the references of the enabled components of a config; raises DistributionError."""
    import asyncio

    config = _read(config_path)
    puller = _puller(config)
    for entry in config.components.values():
        if entry.oci and entry.enabled:
            asyncio.run(puller.pull(_reference(config, entry.oci)))


def _read(path: str) -> "Config":
    import os

    from portico.core.config.read import read
    from portico.core.config.schema import Config

    return read(path, only=()) if os.path.exists(path) else Config(path=path)


def _reference(config: "Config", argument: str) -> "OciReference":
    from portico.library.distribution.reference import parse_reference

    return parse_reference(argument, config.publishing.default_place)


def _puller(config: "Config") -> "Puller":
    from portico.core.config.paths import cache_folder
    from portico.library.distribution.blob_cache import BlobCache
    from portico.library.distribution.blob_download import NoProgress
    from portico.library.distribution.lock_file import LockFile
    from portico.library.distribution.pull import Puller

    cache = BlobCache(cache_folder())
    return Puller(config.publishing, LockFile(config.path), cache, NoProgress())
