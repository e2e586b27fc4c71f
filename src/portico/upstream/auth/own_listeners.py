"""The HTTP listeners of this user's Porticos: only these get a token without `--token`.

On one machine anyone may take a free port, so an address alone proves nothing. Each listener has a
record, a file that its process keeps locked. The kernel releases the lock when the process ends,
however it ends, so a record without a lock is stale.
"""

import contextlib
import fcntl
import ipaddress
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from portico.core.state.files import READ, draft, make_private

_FOLDER, _SUFFIX = "listeners", ".json"
_MAX_SIZE = 16 * 1024
_LOCALHOST = ("127.0.0.1", "::1")
_NETWORK = "/proc/self/ns/net"


class _Listening(Struct):
    addresses: list[tuple[str, int]]
    network: int
    """The addresses of another network namespace, such as a container's, are not ours."""


class ListenerRecord:
    """The record of one listener, until it is removed or this process ends."""

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd

    @classmethod
    def write(cls, state_dir: Path, addresses: Sequence[tuple[str, int]]) -> Self:
        """Record that this process listens at these addresses; raise OSError on failure."""
        folder = os.path.join(state_dir, _FOLDER)
        make_private(folder)
        for _ in _live_records(folder):  # removes those of dead processes
            pass
        path = os.path.join(folder, f"{os.urandom(8).hex()}{_SUFFIX}")
        record = _Listening(list(addresses), _network())
        with draft(path, msgspec.json.encode(record)) as made:
            fd = os.open(made, READ | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.rename(made, path)
            except BaseException:
                os.close(fd)
                raise
        return cls(path, fd)

    def remove(self) -> None:
        """Remove the record; call this before the listener closes its port."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            os.close(self._fd)
            self._fd = -1


def own_listener(state_dir: Path, url: str) -> str:
    """Return the URL of this user's listener that a URL leads to, with its exact address; empty if
    none of this user's Porticos listens there."""
    try:
        parts = urlsplit(url)
        port = parts.port or 80
        host = parts.hostname or ""
        hosts = _LOCALHOST if host == "localhost" else (str(ipaddress.ip_address(host)),)
    except ValueError:
        return ""
    if parts.scheme != "http":
        return ""  # Portico's listeners have no certificates
    found = {
        tuple(each)
        for record in _live_records(os.path.join(state_dir, _FOLDER))
        for each in record.addresses
    }
    for address in hosts:
        if (address, port) in found and ipaddress.ip_address(address).is_loopback:
            shown = f"[{address}]" if ":" in address else address
            # `localhost` has two addresses, and a stranger may listen at the other one.
            return parts._replace(netloc=f"{shown}:{port}").geturl()
    return ""


def _live_records(folder: str) -> Iterator[_Listening]:
    """Yield the records of running listeners; remove those of dead ones."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(_SUFFIX))
    except (FileNotFoundError, NotADirectoryError):
        return
    network = _network()
    for name in names:
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError, msgspec.DecodeError):
            fd = os.open(path, READ | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                os.unlink(path)  # its process has ended
            except BlockingIOError:
                record = msgspec.json.decode(os.read(fd, _MAX_SIZE), type=_Listening)
                if record.network == network:
                    yield record
            finally:
                os.close(fd)


def _network() -> int:
    """Return the number of our network namespace; 0 where there are none."""
    try:
        return os.stat(_NETWORK).st_ino
    except OSError:
        return 0
