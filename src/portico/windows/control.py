"""How a running Portico is asked from outside: one JSON object a line, on a socket of the user's.

Each process has its socket in one folder, under its number. Whoever can open it may ask, and that
is this user alone: the folder and the socket are closed to others.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from portico.model.errors import PorticoError
from portico.protocol.codec import encode_escaped
from portico.state.background import Background
from portico.state.files import make_private
from portico.windows.control_sockets import SUFFIX, clear_away, connected, is_ours, listening, names

__all__ = ["Command", "Control", "Door", "Order", "ask", "names"]

Order = Mapping[str, Any]
"""What was asked, with all that came with it: `{"do": "refresh", "server": "github"}`."""

MAX_LINE = 64 * 1024
_MAX_ANSWER = 16 * 1024 * 1024
_MAX_TALKS = 16
_IDLE_S = 30.0
_SPAN = 10_000_000
"""Added to the number of a process in a sandbox when one in another sandbox has the same."""


class Door(Struct, frozen=True):
    """A deed that ends the talk: from its answer on, the connection is somebody else's."""

    open: Callable[[Order], tuple[dict[str, Any], Callable[[int], None]]]
    """What to answer, and who is given the connection's descriptor to keep and close.

    Whoever asks waits for the answer before it says more.
    """


Command = Callable[[Order], Awaitable[dict[str, Any]]] | Door
"""Does what was asked; what there is to say of it."""


class Control:
    """Listens for what the user wants of this process."""

    def __init__(self, folder: str, commands: Mapping[str, Command]) -> None:
        """`deeds` are what can be asked, by name; one that fails raises PorticoError."""
        self._folder = folder
        self._deeds = commands
        self.name = f"{os.getpid()}{SUFFIX}"
        self._server: asyncio.Server | None = None
        self._talks = Background()

    async def open(self) -> None:
        """Listen from now on; OSError if that is not possible here."""
        make_private(self._folder)
        clear_away(self._folder)
        taken, number = names(self._folder), os.getpid()
        while f"{number}{SUFFIX}" in taken:
            number += _SPAN
        self.name = f"{number}{SUFFIX}"
        listener = listening(self._folder, self.name)
        try:
            self._server = await asyncio.start_unix_server(
                self._talk, sock=listener, limit=MAX_LINE
            )
        except BaseException:
            listener.close()
            raise

    async def close(self) -> None:
        """Listen no longer."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._folder, self.name))
        await self._talks.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        self._talks.add(talk)
        try:
            peer = writer.get_extra_info("socket")
            if len(self._talks) <= _MAX_TALKS and self._server is not None and is_ours(peer):
                await self._answer_all(reader, writer)
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass  # the asker is gone, or has nothing to say, or we end
        finally:
            self._talks.discard(talk)
            writer.close()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                async with asyncio.timeout(_IDLE_S):
                    line = await reader.readline()
            except ValueError:  # how asyncio says that a line is longer than its limit
                await _say(writer, _failed(f"a line longer than {MAX_LINE} bytes"))
                return
            if not line:
                return
            order, deed = self._read(line)
            if isinstance(deed, Door):
                await _hand_over(deed, order, writer)
                return
            await _say(writer, deed if isinstance(deed, dict) else await _done(deed(order)))

    def _read(self, line: bytes) -> tuple[Order, Command | dict[str, Any]]:
        """What is asked and what does it, or why nothing does."""
        try:
            order = msgspec.json.decode(line, type=dict[str, Any])
            name = msgspec.convert(order.get("do"), str)
        except (msgspec.DecodeError, RecursionError) as error:
            return {}, _failed(f'not {{"do": ...}}: {error}')
        deed = self._deeds.get(name)
        if deed is None:
            return {}, _failed(f"cannot {name[:40]!r}, only {', '.join(self._deeds)}")
        return order, deed


def ask(folder: str, name: str, do: str, within_s: float, **more: Any) -> dict[str, Any] | None:
    """What a running Portico answers, always with `ok`; None if that one is dead."""
    with socket.socket(socket.AF_UNIX) as asker:
        asker.settimeout(within_s)
        try:
            if not connected(asker, folder, name):
                return None
            asker.sendall(msgspec.json.encode({"do": do, **more}) + b"\n")
            with asker.makefile("rb") as answers:
                line = answers.readline(_MAX_ANSWER)
            return {"ok": False, **msgspec.json.decode(line, type=dict[str, Any])}
        except TimeoutError:
            return _failed(f"no answer within {within_s:g} s")
        except OSError as error:
            return _failed(error.strerror or str(error))
        except msgspec.DecodeError:
            return _failed("it ended before it answered")


async def _say(writer: asyncio.StreamWriter, answer: dict[str, Any]) -> None:
    writer.write(encode_escaped(answer) + b"\n")
    async with asyncio.timeout(_IDLE_S):
        await writer.drain()


async def _hand_over(door: Door, order: Order, writer: asyncio.StreamWriter) -> None:
    transport = cast("asyncio.Transport", writer.transport)  # uvloop's is one, but does not say so
    try:
        answer, take = door.open(order)
    except PorticoError as error:
        await _say(writer, _failed(str(error)))
        return
    transport.pause_reading()  # what comes from now on is not ours
    await _say(writer, {"ok": True, **answer})
    descriptor = os.dup(writer.get_extra_info("socket").fileno())
    transport.close()
    take(descriptor)


async def _done(deed: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    try:
        return {"ok": True, **await deed}
    except PorticoError as error:
        return _failed(str(error))


def _failed(why: str) -> dict[str, Any]:
    return {"ok": False, "error": why}
