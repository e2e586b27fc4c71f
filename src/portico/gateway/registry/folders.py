"""The folders of windows, other than the gateway's own: each has a registry while it is in use."""

import asyncio
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING

from portico.core.model.errors import McpError
from portico.core.state.background import Background
from portico.upstream.connections.upstream import Upstream

if TYPE_CHECKING:
    from portico.gateway.registry.folder_registry import FolderRegistry
    from portico.gateway.registry.registry import Registry
    from portico.library.tasks.mcp.lazy_tasks import LazyEntrance

MAX_FOLDERS = 64
"""The limit of folders with servers of their own; each may have a process of every server."""
FOLDER_LINGER_S = 30.0
"""How often unused folders are looked for: one without a window is kept for this long, at most
twice."""


class Folders:
    """The registries of these folders, by folder."""

    def __init__(
        self,
        gateway: "Registry",
        own: str,
        forget: "Callable[[str], Iterable[LazyEntrance]] | None",
    ) -> None:
        """`own` is the folder of the gateway. `forget` returns the links for tasks of a folder that
        is closed; None without tasks."""
        self.in_use: Callable[[], Collection[str]] = tuple
        """Returns the folders of windows and agents."""
        self._gateway = gateway
        self._own = own
        self._forget = forget
        self._registries: dict[str, FolderRegistry] = {}
        self._left: set[str] = set()
        """Folders that were not in use at the last look."""
        self._timer: asyncio.TimerHandle | None = None
        self._closing = Background()

    def __iter__(self) -> "Iterator[FolderRegistry]":
        return iter(self._registries.values())

    def registry(self, folder: str) -> "Registry":
        """Return the registry for clients in a folder; raises McpError if there are too many."""
        if not folder:
            return self._gateway
        place = os.path.realpath(folder)
        if place == self._own:
            return self._gateway
        found = self._registries.get(place)
        if found is None:
            from portico.gateway.registry.folder_registry import FolderRegistry

            if len(self._registries) >= MAX_FOLDERS:
                why = f"servers are in use in too many folders ({MAX_FOLDERS}); close some windows"
                raise McpError(why)
            found = self._registries[place] = FolderRegistry(self._gateway, place)
            found.start()
            self._sweep_later()
        return found

    def _sweep_later(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(FOLDER_LINGER_S, self._sweep)

    def _sweep(self) -> None:
        """Close the registries of folders that were not in use for a while, and stop the idle
        processes of the gateway's own folder if all windows are in others."""
        self._timer = None
        used = {os.path.realpath(folder) for folder in self.in_use()}
        unused = {place: one for place, one in self._registries.items() if place not in used}
        now = {place for place, one in unused.items() if not one.is_busy}
        for place in now & self._left:
            ended = [] if self._forget is None else self._forget(place)
            self._closing.start(_close(self._registries.pop(place), ended))
        self._left = now
        if used and self._own not in used:
            for member in self._gateway.members.values():
                if member.is_per_folder and isinstance(member.provider, Upstream):
                    member.provider.stop_idle()
        if self._registries:
            self._sweep_later()

    def keep(self) -> None:
        """Look for unused folders no more: all of them will be closed."""
        if self._timer is not None:
            self._timer.cancel()

    async def close(self) -> None:
        """Close all registries."""
        registries, self._registries = self._registries, {}
        closing = (registry.close() for registry in registries.values())
        await asyncio.gather(self._closing.wait(), *closing)


async def _close(registry: "FolderRegistry", ended: "Iterable[LazyEntrance]") -> None:
    for link in ended:
        await link.close()
    await registry.close()
