"""How a running Portico is asked from outside: one JSON object a line, on a socket of the user's.

Each process has its socket in one folder, under its number. Whoever can open it may ask, and that
is this user alone: the folder and the socket are closed to others.
"""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from portico.catalog.disk import make_private
from portico.model.errors import PorticoError

Deed = Callable[[], Awaitable[dict[str, Any]]]
"""Does what was asked; what there is to say of it."""

MAX_LINE = 64 * 1024
_MAX_ANSWER = 16 * 1024 * 1024
_MOST_TALKS = 16
_IDLE_S = 30.0
_MAX_PATH = 100
"""A socket's address holds 108 bytes, on some systems 104."""
_SUFFIX = ".sock"


class _Order(Struct):
    do: str


class Control:
    """Listens for what the user wants of this process."""

    def __init__(self, folder: str, deeds: Mapping[str, Deed]) -> None:
        """`deeds` are what can be asked, by name; one that fails raises PorticoError."""
        self._folder = folder
        self._deeds = deeds
        self._name = f"{os.getpid()}{_SUFFIX}"
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen from now on; OSError if that is not possible here."""
        make_private(self._folder)
        for name in names(self._folder):
            _is_alive(self._folder, name)
        listener = self._bound()
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
        self._server.close()
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._folder, self._name))
        for talk in self._talks:
            talk.cancel()
        if self._talks:
            await asyncio.wait(self._talks)

    def _bound(self) -> socket.socket:
        # It gets its name when it listens: one that does not is taken for a dead process's.
        draft = f"{self._name}.new"
        listener = socket.socket(socket.AF_UNIX)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._folder, draft))
            with _short(self._folder, draft) as path:
                listener.bind(path)
            path = os.path.join(self._folder, draft)
            os.chmod(path, 0o600)
            listener.listen()
            os.replace(path, os.path.join(self._folder, self._name))
        except BaseException:
            listener.close()
            raise
        listener.setblocking(False)
        return listener

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        self._talks.add(talk)
        try:
            if len(self._talks) <= _MOST_TALKS and _is_ours(writer):
                await self._answer_all(reader, writer)
        except (ConnectionError, TimeoutError):
            pass  # the asker is gone, or has nothing to say
        finally:
            self._talks.discard(talk)
            writer.close()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                async with asyncio.timeout(_IDLE_S):
                    line = await reader.readline()
            except ValueError:  # how asyncio says that a line is longer than its limit
                line, answer = b"", _failed(f"a line longer than {MAX_LINE} bytes")
            else:
                if not line:
                    return
                answer = await self._answer(line)
            writer.write(msgspec.json.encode(answer) + b"\n")
            async with asyncio.timeout(_IDLE_S):
                await writer.drain()
            if not line:
                return

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            order = msgspec.json.decode(line, type=_Order)
        except (msgspec.DecodeError, RecursionError) as error:
            return _failed(f'not {{"do": ...}}: {error}')
        deed = self._deeds.get(order.do)
        if deed is None:
            return _failed(f"cannot {order.do[:40]!r}, only {', '.join(self._deeds)}")
        try:
            return {"ok": True, **await deed()}
        except PorticoError as error:
            return _failed(str(error))


def names(folder: str) -> list[str]:
    """The sockets in the folder; some may be of dead processes."""
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIX))
    except (FileNotFoundError, NotADirectoryError):
        return []


def ask(folder: str, name: str, do: str, within_s: float) -> dict[str, Any] | None:
    """What a running Portico answers, always with `ok`; None if that one is dead."""
    with socket.socket(socket.AF_UNIX) as asker:
        asker.settimeout(within_s)
        try:
            if not _connected(asker, folder, name):
                return None
            asker.sendall(msgspec.json.encode(_Order(do)) + b"\n")
            with asker.makefile("rb") as answers:
                line = answers.readline(_MAX_ANSWER)
            answer: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        except TimeoutError:
            return _failed(f"no answer within {within_s:g} s")
        except OSError as error:
            return _failed(error.strerror or str(error))
        except msgspec.DecodeError:
            return _failed("it ended before it answered")
    return {"ok": False, **answer}


def _failed(why: str) -> dict[str, Any]:
    return {"ok": False, "error": why}


def _is_alive(folder: str, name: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            return _connected(probe, folder, name)
        except OSError:
            return True  # too busy to let us in, or not ours to judge


def _connected(asker: socket.socket, folder: str, name: str) -> bool:
    """False if nobody listens any more; the socket is removed then."""
    try:
        with _short(folder, name) as path:
            asker.connect(path)
    except FileNotFoundError:
        return False
    except ConnectionRefusedError:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))
        return False
    return True


@contextlib.contextmanager
def _short(folder: str, name: str) -> Iterator[str]:
    """A path that fits into a socket's address, however deep the folder is."""
    path = os.path.join(folder, name)
    if len(os.fsencode(path)) <= _MAX_PATH:
        yield path
        return
    if not sys.platform.startswith("linux"):
        raise OSError(f"{folder} is too long a path for a socket")
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)


def _is_ours(writer: asyncio.StreamWriter) -> bool:
    """The folder keeps others out; where the kernel says who asks, it is looked at too."""
    option: int | None = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    peer = writer.get_extra_info("socket")
    # struct ucred: pid, uid and gid, four bytes each.
    said: bytes = peer.getsockopt(socket.SOL_SOCKET, option, 12)
    return int.from_bytes(said[4:8], sys.byteorder) == os.geteuid()
