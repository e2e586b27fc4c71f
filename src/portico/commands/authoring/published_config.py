"""The part of a config that push, pull and key need; a missing default config is empty."""

import os

from portico.core.config.paths import cache_folder, config_file
from portico.core.config.schema import Config
from portico.library.distribution.blob_cache import BlobCache
from portico.library.distribution.lock_file import LockFile
from portico.library.distribution.reference import OciReference, parse_reference


class PublishedConfig:
    """A config with its lock file and cache."""

    def __init__(self, path: str | None) -> None:
        """Read the config, or the default one; raises ConfigError."""
        from portico.core.config.read import read

        self.path = path or config_file()
        is_there = path is not None or os.path.exists(self.path)
        self.config = read(self.path, only=()) if is_there else Config(path=self.path)
        self.publishing = self.config.publishing
        self.lock = LockFile(self.path)
        self.cache = BlobCache(cache_folder())

    def reference(self, text: str) -> OciReference:
        """Read a reference, with the default registry; raises InvalidReference."""
        return parse_reference(text, self.publishing.default_place)
