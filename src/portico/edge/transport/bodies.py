"""Request bodies within limits of size and a shared memory budget."""

from collections.abc import Callable

from portico.core.http1.memory_budget import SMALL, Allotment, MemoryBudget
from portico.core.http1.port import CLOSE, JSON_TYPE, ResponseWriter, Scope
from portico.core.state.memory import map_large_blocks_apart
from portico.edge.transport.guard import Head
from portico.edge.transport.http_limits import HttpLimits
from portico.edge.transport.reply import RETRY_AFTER, Reply, busy, refusal, too_large

_OUT_OF_MEMORY = Reply(
    503,
    busy(b"", "the memory for request bodies is full").encode(),
    (JSON_TYPE, RETRY_AFTER, CLOSE),
    lingers=True,
)
_TOO_SLOW = refusal(408, "the body arrived too slowly: other requests needed its memory", CLOSE)


class IncomingBody:
    """A request with a body; its memory counts until `release`."""

    __slots__ = ("_allotment", "_budget", "_limits", "_serve", "_size", "data", "head", "scope",
                 "writer")  # fmt: skip

    def __init__(
        self,
        scope: Scope,
        head: Head,
        writer: ResponseWriter,
        serve: "Callable[[IncomingBody], None]",
        limits: HttpLimits,
        budget: MemoryBudget,
    ) -> None:
        """`serve` is called once the body is complete."""
        self.scope = scope
        self.head = head
        self.writer = writer
        self.data: bytes | bytearray = b""
        self._serve = serve
        self._limits = limits
        self._budget = budget
        self._allotment: Allotment | None = None  # of a body that is not small
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Take a piece, or refuse the body."""
        self._size += len(piece)
        if self._size > self._limits.body_bytes:
            self._refuse(too_large(self._limits))
        elif not self.data and self._size <= SMALL:
            self.data = piece
        elif self._has_memory(len(piece)):
            if not isinstance(self.data, bytearray):
                self.data = bytearray(self.data)
            self.data += piece
        else:
            self._refuse(_OUT_OF_MEMORY)

    def end(self) -> None:
        """Serve the request."""
        if self._allotment is not None:
            self._allotment.drop = self.writer.call = None
        try:
            self._serve(self)
        except BaseException:
            self.release()
            raise

    def take(self) -> bytes:
        """Return the body, and keep no reference to it."""
        data, self.data = self.data, b""
        return bytes(data)

    def release(self) -> None:
        """Return the memory to the budget."""
        self.data = b""
        if self._allotment is not None:
            self._budget.close(self._allotment)

    on_disconnect = release

    def _has_memory(self, size: int) -> bool:
        """Take memory for a piece of a body that is not small."""
        if self._allotment is None:
            if self._size <= SMALL:
                return True
            map_large_blocks_apart()
            self.writer.call = self
            self._allotment = self._budget.open(lambda: self._refuse(_TOO_SLOW))
            size = self._size
        return self._budget.take(self._allotment, size)

    def _refuse(self, why: Reply) -> None:
        self.release()
        self.writer.call = None
        why.send(self.writer)
