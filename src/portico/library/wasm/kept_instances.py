"""The instances that outlive a call: one for all clients, or one for each session."""

import asyncio
from typing import TYPE_CHECKING

from portico.library.wasm.settings import Instance

if TYPE_CHECKING:
    from portico.library.wasm.exports import EnteredInstance
    from portico.library.wasm.running_call import RunningCall

MAX_SESSIONS = 64
"""The sessions whose instances are kept; the one used least recently loses its instance first."""


class KeptInstance:
    """One instance, which one call at a time may enter."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.entered: EnteredInstance | None = None
        """None before its first call, and after a trap."""
        self.call: RunningCall | None = None
        """The call that entered it last."""

    def on_stderr(self, data: bytes) -> None:
        """Keep what the guest writes to its stderr with its call; threads of wasmtime call this."""
        if self.call is not None:
            self.call.on_stderr(data)


class KeptInstances:
    """The instances of one component."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._kept: dict[str, KeptInstance] = {}

    def of(self, session: str) -> KeptInstance | None:
        """Return the instance for a call; None if it gets a fresh one.

        Without a session nothing is kept: the next call without one may be another client's.
        """
        if self._instance == "call" or (self._instance == "session" and not session):
            return None
        key = session if self._instance == "session" else ""
        found = self._kept.pop(key) if key in self._kept else KeptInstance()
        self._kept[key] = found
        if len(self._kept) > MAX_SESSIONS:
            idle = (key for key, one in self._kept.items() if not one.turn.locked())
            del self._kept[next(idle)]
        return found
