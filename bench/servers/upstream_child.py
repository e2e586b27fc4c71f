"""The upstream as the floors run it: a child on two pipes, with our own request ids."""

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from itertools import count

import msgspec

Answered = Callable[[bytes], None]
"""Receives the end of an answer: its result or error, and the closing brace."""


class _Answer(msgspec.Struct):
    id: int = -1
    result: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


_decode = msgspec.json.Decoder(_Answer).decode


class Child(asyncio.Protocol):
    """A running upstream; it checks nothing."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._ids = count(1)
        self._waiting: dict[int, Answered] = {}

    async def start(self, argv: Sequence[str]) -> None:
        """Start the process and listen to it."""
        loop = asyncio.get_running_loop()
        self._popen = subprocess.Popen(  # noqa: ASYNC220  (a floor has nothing else to do)
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        await loop.connect_read_pipe(lambda: self, self._popen.stdout)
        self._in, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, self._popen.stdin)

    def ask(self, method: bytes, params: bytes, answered: Answered) -> None:
        """Send a request on."""
        id = next(self._ids)
        self._waiting[id] = answered
        head = b'{"jsonrpc":"2.0","id":%d,"method":"%s"' % (id, method)
        self._in.write(head + (b',"params":' + params if params else b"") + b"}\n")

    def tell(self, line: bytes) -> None:
        """Send a notification on."""
        self._in.write(line + b"\n")

    def data_received(self, data: bytes) -> None:
        """Pass every answer to its caller."""
        *lines, last = data.split(b"\n")
        if lines:
            lines[0] = b"".join((*self._rest, lines[0]))
            self._rest.clear()
        self._rest.append(last)
        for line in lines:
            found = _decode(line)
            what = b',"result":' + found.result if found.result else b',"error":' + found.error
            self._waiting.pop(found.id)(what + b"}")
