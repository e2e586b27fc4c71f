"""Follows the config file: a good change is applied, of a broken one the operator is told."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from portico.config.schema import Config
from portico.gateway.serve_options import Stamp, stamp
from portico.model.errors import PorticoError
from portico.state.background import Background

CHECK_INTERVAL_S = 1.0


class ConfigWatcher:
    """A config file under watch."""

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
        """The problems for which the file as it is now is not in use; empty if it is."""
        self._path = path
        self._read = read
        self._apply = apply
        self._report = report
        self._interval_s = interval_s
        self._known = known or stamp(path)
        self._background = Background()

    def start(self) -> None:
        """Look at the file from now on."""
        self._background.start(self._watch())

    async def close(self) -> None:
        """Look no longer."""
        await self._background.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            now = stamp(self._path)
            if now == self._known:
                continue
            if now is None:
                # Editors replace a file by another; one that is gone for good is told of.
                await asyncio.sleep(self._interval_s)
                now = stamp(self._path)
            self._known = now
            await self._reload(now is not None)

    async def _reload(self, is_there: bool) -> None:
        if not is_there:
            self.rejected = f"{self._path}: the file is gone"
            self._report(f"{self._path} is gone; going on with what it said")
            return
        try:
            config = await asyncio.to_thread(self._read, self._path)
        except PorticoError as error:
            self.rejected = str(error)
            self._report(f"config not reloaded; keeping the previous one:\n{error}")
            return
        self.rejected = ""
        self._report(f"{self._path} has changed and is taken over")
        # The file is looked at again while a new server takes its time to start.
        self._background.start(self._apply(config))
