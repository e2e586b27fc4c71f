"""Keyrings of the package `keyring`, as bad as real ones; chosen by PYTHON_KEYRING_BACKEND."""

import json
import os
import threading
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked


class FileKeyring(KeyringBackend):
    """Keeps passwords in the file that TEST_KEYRING names."""

    priority = -1.0  # never chosen by itself

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def _all(self) -> dict[str, str]:
        path = Path(os.environ["TEST_KEYRING"])
        found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def get_password(self, service: str, username: str) -> str | None:
        return self._all().get(f"{service} {username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        found = {**self._all(), f"{service} {username}": password}
        Path(os.environ["TEST_KEYRING"]).write_text(json.dumps(found))


class LockedKeyring(FileKeyring):
    """Needs a person who is not there."""

    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("locked")


class ForgetfulKeyring(FileKeyring):
    """Accepts a password, and keeps nothing."""

    def set_password(self, service: str, username: str, password: str) -> None:
        return


class HangingKeyring(FileKeyring):
    """Waits for a person who is not there."""

    def get_password(self, service: str, username: str) -> str | None:
        threading.Event().wait()
        return None
