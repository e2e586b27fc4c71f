"""The address of a server that cannot be started, because its config lacks a value."""

from msgspec import Struct

from portico.model.errors import TargetError
from portico.wires.wire import Outgoing, Receiver, Wire


class Unavailable(Struct, frozen=True):
    """A server that nobody can reach until its config is complete."""

    name: str
    why: str

    def wire(self) -> "NoWire":
        """A connection that does not open."""
        return NoWire(self.name, self.why)

    def older(self) -> None:
        """There is no other way."""
        return


class NoWire(Wire):
    """Fails to open, and says what is missing."""

    transport = "none"

    def __init__(self, name: str, why: str) -> None:
        self._name = name
        self._why = why

    def _failure(self) -> TargetError:
        words = f"{self._name} is not started: {self._why}"
        return TargetError(words, kind="start", server=self._name)

    async def open(self, receiver: Receiver) -> None:
        """Say why not."""
        raise self._failure()

    async def send(self, message: Outgoing) -> None:
        """Never: it was not opened."""
        raise self._failure()

    async def close(self) -> None:
        """Nothing was started."""
