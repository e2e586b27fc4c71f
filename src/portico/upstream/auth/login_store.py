"""Logins on disk: one private file each, sealed except for its facts, and one lock each."""

import asyncio
import errno
import fcntl
import hashlib
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from msgspec import Struct

from portico.core.state import checksummed, files
from portico.core.state.checksummed import Damaged, Newer
from portico.upstream.auth.client_identity import OwnClient
from portico.upstream.auth.flow import IssuerUnavailable, LoginError
from portico.upstream.auth.login import Login, LoginFacts
from portico.upstream.auth.login_secret import LoginSecret

_KIND, _FORMAT = "login", 1
_NEVER = 1e15
"""The seal of a stored login does not expire."""
LOCK_S = 60.0
"""How long to wait for another process that refreshes; its request has a shorter timeout."""
_POLL_S = 0.02


class _Stored(Struct):
    """The content of a file."""

    key: str
    """Where the key of its seal is."""
    sealed: str
    facts: LoginFacts | None = None


_decode = msgspec.json.Decoder(_Stored).decode


class LoginStore:
    """The logins and registered clients of one state folder."""

    def __init__(self, state_folder: str) -> None:
        self.folder = os.path.join(state_folder, "logins")
        self._secret = LoginSecret(state_folder)

    def facts(self, key: str) -> LoginFacts | None:
        """Return the part of a login that is not sealed; None if there is none that can be read."""
        try:
            found = self._read(key)
        except LoginError:
            return None
        return None if found is None else found.facts

    def load(self, key: str) -> Login | None:
        """Return a login, None if there is none; raises LoginError. It may wait for the keyring."""
        found = self._read(key)
        return None if found is None else msgspec.convert(self._open(key, found), Login)

    def save(self, key: str, login: Login, *, is_renewed: bool = False) -> None:
        """Replace a login; it is on disk when this returns. Raises LoginError. A renewed one keeps
        its key, so that a gateway does not ask the keyring for another."""
        stored = self._read(key) if is_renewed else None
        where = None if stored is None else stored.key
        self._write(key, msgspec.to_builtins(login), login.facts, where)

    def remove(self, key: str) -> None:
        """Remove a login, if there is one; raises LoginError."""
        for ending in ("", ".refreshing"):
            self._unlink(key + ending)

    def all_facts(self) -> dict[str, LoginFacts]:
        """Return the facts of all logins, by key."""
        found = {}
        with suppress(OSError):
            for key in sorted(os.listdir(self.folder)):
                facts = self.facts(key) if "." not in key else None
                if facts is not None:
                    found[key] = facts
        return found

    def check_writable(self) -> None:
        """Raise LoginError if logins cannot be stored."""
        try:
            files.make_private(self.folder)
            with files.draft(os.path.join(self.folder, "check"), b""):
                pass
        except OSError as error:
            raise self._unusable(error) from None

    # A refresh that was sent, until its answer is stored.

    def is_refreshing(self, key: str) -> bool:
        """True if an answer was never stored: its process ended, or the answer was lost."""
        return os.path.lexists(self._path(f"{key}.refreshing"))

    def mark_refreshing(self, key: str) -> None:
        """Record that a refresh is about to be sent."""
        try:
            os.close(os.open(self._path(f"{key}.refreshing"), os.O_CREAT | os.O_WRONLY, 0o600))
        except OSError as error:
            raise self._unusable(error) from None

    def clear_refreshing(self, key: str) -> None:
        """Record that the answer is stored."""
        self._unlink(f"{key}.refreshing")

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncGenerator[None, None]:
        """Hold the lock of a login, over all processes; raises LoginError."""
        try:
            files.make_private(self.folder)
            handle = os.open(self._path(f"{key}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            await self._acquire(handle)
            yield
        finally:
            os.close(handle)

    async def _acquire(self, handle: int) -> None:
        try:
            async with asyncio.timeout(LOCK_S):
                while not _try_lock(handle):  # noqa: ASYNC110  (a lock of the system has no event)
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise IssuerUnavailable(
                f"another process has been refreshing the login for {LOCK_S:g} s; try again"
            ) from None

    # Registered clients, by issuer.

    def client_at(self, issuer: str) -> OwnClient | None:
        """Return the client that is registered at an issuer; None if there is none."""
        key = _client_key(issuer)
        try:
            found = self._read(key)
            return None if found is None else msgspec.convert(self._open(key, found), OwnClient)
        except LoginError:
            return None  # it is registered again

    def save_client(self, issuer: str, client: OwnClient | None) -> None:
        """Keep a registered client; None forgets it. Raises LoginError."""
        if client is None:
            self._unlink(_client_key(issuer))
        else:
            self._write(_client_key(issuer), msgspec.to_builtins(client), None)

    def _path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def _read(self, key: str) -> _Stored | None:
        try:
            found = checksummed.read(self._path(key), _KIND, _FORMAT)
            return None if found is None else _decode(found)
        except (Damaged, msgspec.MsgspecError):
            raise LoginError("the stored login is damaged") from None
        except Newer as error:
            raise LoginError(f"the stored login cannot be used: {error}; update Portico") from None
        except OSError as error:
            raise LoginError(f"the stored login cannot be read: {error.strerror}") from None

    def _open(self, key: str, stored: _Stored) -> Any:
        from portico.core.protocol.seal import Seal, SealBroken  # slow to import

        secret = self._secret.get(stored.key)
        try:
            return Seal(secret).open(stored.sealed, binding=_binding(key, stored.facts), now=0.0)
        except SealBroken:
            raise LoginError("the stored login was changed, or sealed with another key") from None

    def _write(
        self, key: str, value: Any, facts: LoginFacts | None, where: str | None = None
    ) -> None:
        from portico.core.protocol.seal import NONCE_SIZE, Seal  # slow to import

        secret = b"" if where is None else self._secret.get(where)
        if where is None:
            where, secret = self._secret.for_new()
        sealed = Seal(secret).close(
            value, binding=_binding(key, facts), expires=_NEVER, nonce=os.urandom(NONCE_SIZE)
        )
        data = msgspec.json.encode(_Stored(where, sealed, facts))
        try:
            files.make_private(self.folder)
            checksummed.write(self._path(key), _KIND, _FORMAT, data)
            files.sync_folder(self.folder)
        except OSError as error:
            raise self._unusable(error) from None

    def _unlink(self, name: str) -> None:
        try:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(self._path(name))
        except OSError as error:
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> LoginError:
        why = error.strerror or str(error)
        return LoginError(f"logins cannot be stored in {self.folder}: {why}")


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise LoginError(f"logins cannot be locked: {error.strerror}") from None
    return True


def _binding(key: str, facts: LoginFacts | None) -> bytes:
    """The seal holds for one place and its facts: neither can be exchanged."""
    return (
        b"login\0" + key.encode() + b"\0" + (b"" if facts is None else msgspec.json.encode(facts))
    )


def _client_key(issuer: str) -> str:
    return "client-" + hashlib.blake2b(issuer.encode(), digest_size=16).hexdigest()
