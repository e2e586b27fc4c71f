"""Reload of the config file: a valid change is applied, an invalid one is reported."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from portico.core.config.schema import Config
from portico.core.model.errors import PorticoError
from portico.core.state.background import Background
from portico.core.state.file_watcher import CHECK_INTERVAL_S, FileWatcher
from portico.core.state.files import Stamp, stamp

_APPLY_S = 30.0
"""How long a command waits for a changed config: new servers may take long to start."""

FilesChanged = Callable[[frozenset[str]], Coroutine[Any, Any, None]]


def _no_files() -> Iterable[str]:
    return ()


class ConfigWatcher:
    """Watches a config file and applies its changes; also watches the files that it names."""

    def __init__(
        self,
        path: str,
        read: Callable[[str], Config],
        apply: Callable[[Config], Coroutine[Any, Any, None]],
        report: Callable[[str], None],
        interval_s: float = CHECK_INTERVAL_S,
        known: Stamp | None = None,
        files: Callable[[], Iterable[str]] = _no_files,
        files_changed: FilesChanged | None = None,
    ) -> None:
        """`known` is the stamp of the file when the config in use was read; `files_changed` is
        called with those of `files` that changed."""
        self.rejected = ""
        """The problems of the current file; empty if it is in use."""
        self._path = path
        self._read = read
        self._apply = apply
        self._report = report
        self._files_changed = files_changed
        stamps = {} if known is None else {path: known}
        self._watcher = FileWatcher(lambda: (path, *files()), self._changed, interval_s, stamps)
        self._background = Background()

    def start(self) -> None:
        """Start watching."""
        self._watcher.start()

    async def close(self) -> None:
        """Stop watching."""
        await self._watcher.close()
        await self._background.close()

    async def catch_up(self) -> None:
        """Look for changes now, and wait until they are applied."""
        await self._watcher.look()
        await self._background.wait(_APPLY_S)

    async def _changed(self, paths: frozenset[str]) -> None:
        if self._path in paths:
            await self.reload()
        others = paths - {self._path}
        if others and self._files_changed is not None:
            # The watch continues while components start.
            self._background.start(self._files_changed(others))

    async def reload(self) -> None:
        """Read the config file and apply it."""
        if stamp(self._path) is None:
            self.rejected = f"{self._path}: the file was deleted"
            self._report(f"{self._path} was deleted; keeping the previous config")
            return
        try:
            config = await asyncio.to_thread(self._read, self._path)
        except PorticoError as error:
            self.rejected = str(error)
            self._report(f"config not reloaded; keeping the previous one:\n{error}")
            return
        self.rejected = ""
        self._report(f"{self._path} changed; config reloaded")
        # The watch continues while new servers start.
        self._background.start(self._apply(config))
