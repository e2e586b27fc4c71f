"""The address of a server that cannot start because its config lacks a value."""

from msgspec import Struct

from portico.core.model.errors import TargetError
from portico.upstream.wires.wire import Outgoing, Receiver, Wire


class Unavailable(Struct, frozen=True):
    """The address of a server with an incomplete config."""

    name: str
    why: str

    def wire(self) -> "NoWire":
        """Return a wire that fails to open."""
        return NoWire(self.name, self.why)

    def older(self) -> None:
        """Return no other wire."""
        return


class NoWire(Wire):
    """A wire that fails to open, with the missing value as the reason."""

    transport = "none"

    def __init__(self, name: str, why: str) -> None:
        self._name = name
        self._why = why

    def _failure(self) -> TargetError:
        words = f"{self._name} is not started: {self._why}"
        return TargetError(words, kind="start", server=self._name)

    async def open(self, receiver: Receiver) -> None:
        """Raise the reason."""
        raise self._failure()

    async def send(self, message: Outgoing) -> None:
        """Raise the reason."""
        raise self._failure()

    async def close(self) -> None:
        """Do nothing."""
