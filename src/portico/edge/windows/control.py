"""Commands to a running Portico: one JSON object per line, over a Unix socket.

Each process has its socket in one folder, named by its pid. Folder and socket are private to the
user, so only that user can send commands.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from portico.core.model.errors import PorticoError
from portico.core.protocol.codec import encode_escaped
from portico.core.state.background import Background
from portico.core.state.files import make_private
from portico.edge.windows.control_sockets import (
    SUFFIX,
    connect,
    is_same_user,
    listen,
    pid_of,
    remove_dead_sockets,
    socket_names,
)
from portico.upstream.auth import login_news
from portico.upstream.process.family import Family, family_of

__all__ = [
    "Command",
    "Control",
    "ControlRequest",
    "HandOver",
    "send_command",
    "socket_names",
    "tell_all",
]

ControlRequest = Mapping[str, Any]
"""A command and its arguments, as sent: `{"do": "refresh", "server": "github"}`."""

MAX_LINE = 64 * 1024
_MAX_ANSWER = 16 * 1024 * 1024
_MAX_CONNECTIONS = 16
_FIRST_LINE_S, _IDLE_S = 2.0, 30.0
"""How long to wait for the first line of a connection, and for each further one."""
_TELL_S = 60.0
_OF_AGENT = "an agent of this gateway sends this command, and only a person may use it"
_SANDBOX_OFFSET = 10_000_000
"""Added to a pid in a sandbox when a process in another sandbox has the same one."""


class HandOver(Struct, frozen=True):
    """A command that takes over the connection after its reply."""

    accept: Callable[[ControlRequest, Family | None], tuple[dict[str, Any], Callable[[int], None]]]
    """Returns the reply, and the function that takes the connection's descriptor and closes it.

    It gets the family of the agent below which the client runs, if there is one. The client waits
    for the reply before it sends more.
    """


Command = Callable[[ControlRequest], Awaitable[dict[str, Any]]] | HandOver
"""Runs a command and returns the fields of its reply."""


class Control:
    """The control socket of this process."""

    def __init__(self, folder: str, commands: Mapping[str, Command]) -> None:
        """`commands` maps names to commands, which raise PorticoError on failure."""
        self._folder = folder
        self._commands = commands
        self.name = f"{os.getpid()}{SUFFIX}"
        self._server: asyncio.Server | None = None
        self._connections = Background()
        self._silent: dict[asyncio.Task[None], None] = {}
        """The connections that have sent nothing yet, the oldest first."""
        self._idle: dict[asyncio.Task[None], None] = {}
        """The others that wait for a further line, the one that waits for longest first."""

    async def open(self) -> None:
        """Start listening; raise OSError on failure."""
        make_private(self._folder)
        remove_dead_sockets(self._folder)
        taken, number = socket_names(self._folder), os.getpid()
        while f"{number}{SUFFIX}" in taken:
            number += _SANDBOX_OFFSET
        self.name = f"{number}{SUFFIX}"
        listener = listen(self._folder, self.name)
        try:
            self._server = await asyncio.start_unix_server(
                self._serve_client, sock=listener, limit=MAX_LINE
            )
        except BaseException:
            listener.close()
            raise
        login_news.use(lambda place: tell_all(self._folder, "login", place=place))

    async def close(self) -> None:
        """Stop listening."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._folder, self.name))
        await self._connections.close()

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            peer = writer.get_extra_info("socket")
            if self._server is not None and is_same_user(peer) and self._has_room():
                self._silent[task] = None
                await self._serve_requests(task, reader, writer)
        except (ConnectionError, TimeoutError, asyncio.CancelledError):
            pass  # the client disconnected or is idle, or we shut down
        finally:
            self._forget_waiting(task)
            self._connections.discard(task)
            writer.close()

    def _has_room(self) -> bool:
        """True if one more client can be served; the oldest that has sent nothing makes room, or
        else the one that has been idle for longest."""
        if len(self._connections) <= _MAX_CONNECTIONS:
            return True
        oldest = next(iter((*self._silent, *self._idle)), None)
        if oldest is None:
            return False
        self._forget_waiting(oldest)
        self._connections.discard(oldest)
        oldest.cancel()
        return True

    def _forget_waiting(self, task: "asyncio.Task[None]") -> None:
        self._silent.pop(task, None)
        self._idle.pop(task, None)

    async def _serve_requests(
        self,
        task: "asyncio.Task[None]",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        limit_s = _FIRST_LINE_S
        while True:
            try:
                async with asyncio.timeout(limit_s):
                    line = await reader.readline()
                limit_s = _IDLE_S
            except ValueError:  # asyncio's error for a line beyond its limit
                await _send_reply(writer, _failed(f"the line is longer than {MAX_LINE} bytes"))
                return
            if not line:
                return
            self._forget_waiting(task)
            request, command = self._read(line)
            try:
                family = family_of(pid_of(writer.get_extra_info("socket")))
            except PorticoError as error:
                command = _failed(f"cannot tell who sends this command: {error}")
            if isinstance(command, HandOver):
                await _hand_over(command, request, family, writer)
                return
            if not isinstance(command, dict):
                is_of_person = family is None
                command = (
                    await _run_command(command(request)) if is_of_person else _failed(_OF_AGENT)
                )
            await _send_reply(writer, command)
            self._idle[task] = None

    def _read(self, line: bytes) -> tuple[ControlRequest, Command | dict[str, Any]]:
        """Return the request and its command, or an error reply."""
        try:
            request = msgspec.json.decode(line, type=dict[str, Any])
            name = msgspec.convert(request.get("do"), str)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return {}, _failed(f'the request is not {{"do": ...}}: {error}')
        command = self._commands.get(name)
        if command is None:
            known = ", ".join(self._commands)
            return {}, _failed(f"unknown command {name[:40]!r}; commands: {known}")
        return request, command


def send_command(
    folder: str, name: str, do: str, within_s: float, **more: Any
) -> dict[str, Any] | None:
    """Return the reply of a running Portico, always with `ok`; None if that process has ended, or
    is about to."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(within_s)
        try:
            if not connect(sock, folder, name):
                return None
            sock.sendall(msgspec.json.encode({"do": do, **more}) + b"\n")
            with sock.makefile("rb") as answers:
                line = answers.readline(_MAX_ANSWER)
            if not line:
                return None  # it is ending
            return {"ok": False, **msgspec.json.decode(line, type=dict[str, Any])}
        except TimeoutError:
            return _failed(f"no response within {within_s:g} s")
        except (BrokenPipeError, ConnectionResetError):
            return None  # it is ending
        except OSError as error:
            return _failed(error.strerror or str(error))
        except msgspec.DecodeError:
            return _failed("its response cannot be read")


def tell_all(folder: str, do: str, **more: Any) -> list[str]:
    """Send a command to every running Portico; return the servers that it changed."""
    servers: list[Any] = []
    for name in socket_names(folder):
        reply = send_command(folder, name, do, _TELL_S, **more)
        if reply is not None and isinstance(reply.get("servers"), list):
            servers += reply["servers"]
    return [str(server) for server in servers]


async def _send_reply(writer: asyncio.StreamWriter, answer: dict[str, Any]) -> None:
    writer.write(encode_escaped(answer) + b"\n")
    async with asyncio.timeout(_IDLE_S):
        await writer.drain()


async def _hand_over(
    command: HandOver,
    request: ControlRequest,
    family: Family | None,
    writer: asyncio.StreamWriter,
) -> None:
    transport = cast("asyncio.Transport", writer.transport)  # uvloop's lacks the base class
    try:
        answer, take = command.accept(request, family)
    except PorticoError as error:
        # A window below an agent must not start a gateway of its own in its place.
        await _send_reply(writer, {**_failed(str(error)), "final": family is not None})
        return
    transport.pause_reading()  # further bytes belong to the new reader
    await _send_reply(writer, {"ok": True, **answer})
    descriptor = os.dup(writer.get_extra_info("socket").fileno())
    transport.close()
    take(descriptor)


async def _run_command(command: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    try:
        return {"ok": True, **await command}
    except PorticoError as error:
        return _failed(str(error))


def _failed(why: str) -> dict[str, Any]:
    return {"ok": False, "error": why}
