"""The key that seals stored logins: in the system's keyring if one works, else in a private file.

The keyring holds the key and not the tokens: tokens are replaced every few minutes by any process,
which has to be atomic and must not wait for a person who unlocks a keyring.
"""

import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

from portico.core.state import files
from portico.core.state.report import report
from portico.upstream.auth.flow import LoginError

KEYRING, FILE = "keyring", "file"
ASK_S = 3.0
"""How long a keyring may take: it may wait for a person who is not there."""
FILE_NAME = "login-secret"
_SERVICE = "portico"
_SIZE = 32


class LoginSecret:
    """The key of one state folder. A process reads each place at most once."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, FILE_NAME)
        self._entry = f"logins of {os.path.realpath(folder)}"
        self._known: dict[str, bytes] = {}
        self._problem = ""
        """The reason for which the keyring is not used any more."""
        self._lock = threading.Lock()

    def for_new(self) -> tuple[str, bytes]:
        """Return where the key for a new login is, and the key; created on first use."""
        with self._lock:
            if key := self._from_keyring(creates=True):
                return KEYRING, key
            return FILE, self._from_file(creates=True)

    def get(self, where: str) -> bytes:
        """Return the key at one of the places; raises LoginError."""
        with self._lock:
            if where == FILE:
                return self._from_file(creates=False)
            if key := self._from_keyring(creates=False):
                return key
        raise LoginError(f"the key of the login is in the keyring, but {self._problem}")

    def _from_keyring(self, *, creates: bool) -> bytes | None:
        if KEYRING not in self._known and not self._problem:
            try:
                found = _within(ASK_S, lambda: _ask(self._entry, creates))
            except TimeoutError:
                self._problem = f"the keyring did not answer within {ASK_S:g} s; unlock it"
                report(f"{self._problem}; this process does not use it again")
            except ImportError:
                self._problem = "the package keyring is not installed"
            except Exception as error:  # noqa: BLE001  (a backend may raise anything)
                self._problem = f"the keyring failed ({type(error).__name__}); unlock it"
            else:
                if found is None or len(found) != _SIZE:
                    self._problem = "the keyring does not have it; log in again"
                else:
                    self._known[KEYRING] = found
        return self._known.get(KEYRING)

    def _from_file(self, *, creates: bool) -> bytes:
        if FILE not in self._known:
            try:
                self._known[FILE] = self._read(creates)
            except OSError as error:
                why = error.strerror or str(error)
                raise LoginError(f"{self._path} cannot be used: {why}") from None
        return self._known[FILE]

    def _read(self, creates: bool) -> bytes:
        if creates and not os.path.lexists(self._path):
            files.make_private(os.path.dirname(self._path))
            with suppress(FileExistsError):  # a faster process created it
                files.create(self._path, os.urandom(_SIZE))
        data, status = files.read(self._path, _SIZE)
        is_private = os.name != "posix" or (
            status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077
        )
        if not is_private:
            raise OSError(0, "others can read it; delete it, and log in again")
        if len(data) != _SIZE:
            raise OSError(0, "it is damaged; delete it, and log in again")
        return data


def _ask(entry: str, creates: bool) -> bytes | None:
    keyring: Any = import_module("keyring")
    found = keyring.get_password(_SERVICE, entry)
    if found is None and creates:
        keyring.set_password(_SERVICE, entry, os.urandom(_SIZE).hex())
        found = keyring.get_password(_SERVICE, entry)  # a keyring may accept and keep nothing
    return None if found is None else bytes.fromhex(found)


def _within(seconds: float, ask: Callable[[], bytes | None]) -> bytes | None:
    """Run in a thread of its own, which is left behind if it hangs."""
    outcome: list[bytes | BaseException | None] = []

    def run() -> None:
        try:
            outcome.append(ask())
        except BaseException as error:  # noqa: BLE001  (raised again by the caller)
            outcome.append(error)

    thread = threading.Thread(target=run, name="portico-keyring", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimeoutError
    found = outcome[0]
    if isinstance(found, BaseException):
        raise found
    return found
