"""Watches files by their stamps, and reports those that changed."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from portico.core.state.background import Background
from portico.core.state.files import Stamp, stamp

CHECK_INTERVAL_S = 1.0


class FileWatcher:
    """Watches files, and calls a function with the paths of those that changed."""

    def __init__(
        self,
        paths: Callable[[], Iterable[str]],
        changed: Callable[[frozenset[str]], Coroutine[Any, Any, None]],
        interval_s: float = CHECK_INTERVAL_S,
        known: Mapping[str, Stamp | None] | None = None,
        *,
        supersedes: bool = False,
    ) -> None:
        """`paths` returns the files to watch now; `known` has the stamps of those that were read
        before. No change is checked for while `changed` runs, unless a newer one `supersedes` it:
        then `changed` is cancelled, and called with all these files."""
        self._paths = paths
        self._changed = changed
        self._interval_s = interval_s
        self._stamps = {**self._now(), **(known or {})}
        self._background = Background()
        self._supersedes = supersedes
        self._running: asyncio.Task[None] | None = None
        self._unfinished: frozenset[str] = frozenset()
        self._looking = asyncio.Lock()

    def start(self) -> None:
        """Start watching."""
        self._background.start(self._watch())

    async def close(self) -> None:
        """Stop watching."""
        await self._background.close()

    def _now(self) -> dict[str, Stamp | None]:
        return {path: stamp(path) for path in self._paths()}

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            now = self._now()
            if any(now[path] is None for path in self._differing(now)):
                # Editors delete and recreate a file; only a file that stays deleted is reported.
                await asyncio.sleep(self._interval_s)
                now = self._now()
            if self._supersedes:
                changed = self._differing(now)
                self._stamps = {**self._stamps, **now}
                if changed:
                    await self._supersede(changed)
            else:
                await self._look()

    async def look(self) -> None:
        """Look for changes now; returns once `changed` has run for them. A deleted file is left to
        the watch."""
        now = self._now()
        if all(now[path] is not None for path in self._differing(now)):
            await self._look()

    async def _look(self) -> None:
        async with self._looking:
            now = self._now()
            changed = self._differing(now)
            self._stamps = now
            if changed:
                await self._changed(changed)
                self._stamps = {**self._now(), **now}  # with those that were first read just now

    async def _supersede(self, changed: frozenset[str]) -> None:
        """Start `changed`, in place of an earlier one that still runs."""
        if self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait([self._running])
            changed |= self._unfinished
        self._unfinished = changed
        self._running = self._background.start(self._changed(changed))

    def _differing(self, now: Mapping[str, Stamp | None]) -> frozenset[str]:
        """Return the changed files; a file that was not watched before has not changed."""
        known = self._stamps
        return frozenset(path for path in now if path in known and known[path] != now[path])
