"""Reload of the config file: a valid change is applied, an invalid one is reported."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from portico.config.schema import Config
from portico.gateway.serve_options import Stamp, stamp
from portico.model.errors import PorticoError
from portico.state.background import Background

CHECK_INTERVAL_S = 1.0


class ConfigWatcher:
    """Watches a config file and applies its changes."""

    def __init__(
        self,
        path: str,
        read: Callable[[str], Config],
        apply: Callable[[Config], Coroutine[Any, Any, None]],
        report: Callable[[str], None],
        interval_s: float = CHECK_INTERVAL_S,
        known: Stamp | None = None,
    ) -> None:
        """`known` is the stamp of the file when the config in use was read."""
        self.rejected = ""
        """The problems of the current file; empty if it is in use."""
        self._path = path
        self._read = read
        self._apply = apply
        self._report = report
        self._interval_s = interval_s
        self._known = known or stamp(path)
        self._background = Background()

    def start(self) -> None:
        """Start watching."""
        self._background.start(self._watch())

    async def close(self) -> None:
        """Stop watching."""
        await self._background.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            now = stamp(self._path)
            if now == self._known:
                continue
            if now is None:
                # Editors delete and recreate a file; only a file that stays deleted is reported.
                await asyncio.sleep(self._interval_s)
                now = stamp(self._path)
            self._known = now
            await self._reload(now is not None)

    async def _reload(self, is_there: bool) -> None:
        if not is_there:
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
