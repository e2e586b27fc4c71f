"""Secrets that `portico servers add --env` was given: kept in a file or the keyring, never in the
config."""

import os
from collections.abc import Callable, Mapping
from hashlib import blake2b

from portico.commands.console.dialog import Dialog
from portico.commands.console.secret_values import KEYRING, NO_KEYRING, VARIABLE, keyring_store
from portico.core.config.paths import config_file
from portico.core.model.errors import PorticoError
from portico.core.state.files import make_private, replace

FILE = "file"
_PLACES = {"f": FILE, "k": KEYRING, "v": VARIABLE}


class GivenSecrets:
    """The secrets of a new server, and the place where they go."""

    def __init__(self, config: str, server: str, values: Mapping[str, str], place: str) -> None:
        """`place` is `file`, `keyring` or `env`; without a place, a terminal shows a choice."""
        self._folder, self._owner = _place_of(config, server)
        self._server, self._values = server, values
        self._keyring = keyring_store() if values else None
        self.place = place or (self._asked() if values else VARIABLE)
        if values and self.place == KEYRING and self._keyring is None:
            raise PorticoError(NO_KEYRING.replace("--secrets env", "--secrets file"))

    def _asked(self) -> str:
        dialog = Dialog(yes=False)
        if not dialog.can_ask:
            return VARIABLE
        names = ", ".join(self._values)
        keyring = ", the [k]eyring" if self._keyring is not None else ""
        question = f"{self._server}: keep {names} in a [f]ile of yours{keyring} or a [v]ariable? "
        return _PLACES[dialog.choose(question, "fkv" if self._keyring is not None else "fv")]

    def references(self) -> dict[str, str]:
        """Return what the config contains in place of each secret."""
        made: Mapping[str, Callable[[str], str]] = {
            FILE: lambda key: f"file:{self._path(key)}",
            KEYRING: lambda key: f"keyring:{self._name(key)}",
            VARIABLE: lambda key: f"${{{key}}}",
        }
        return {key: made[self.place](key) for key in self._values}

    def store(self) -> list[str]:
        """Keep the secrets; return notes for the person. Raises PorticoError."""
        if self.place == VARIABLE:
            return []
        notes = []
        for key, value in self._values.items():
            if self.place == KEYRING:
                assert self._keyring is not None
                self._keyring(self._name(key), value)
                notes.append(f"{key} is in the keyring; the config refers to it")
                continue
            try:
                make_private(self._folder)
                replace(self._path(key), value.encode())
            except OSError as error:
                why = error.strerror or error
                raise PorticoError(f"cannot keep {key} in {self._path(key)}: {why}") from None
            notes.append(f"{key} is in {self._path(key)}, which only you can read")
        return notes

    def _path(self, key: str) -> str:
        return os.path.join(self._folder, self._name(key))

    def _name(self, key: str) -> str:
        return f"{self._owner}.{key}"


def secret_files(config: str, server: str) -> list[str]:
    """Return the files with secrets that a server of this config was given."""
    folder, owner = _place_of(config, server)
    found = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in found if name.startswith(f"{owner}.")]


def _place_of(config: str, server: str) -> tuple[str, str]:
    """Return the folder of the secrets, and the name of a server there."""
    own = os.path.abspath(config_file())
    # The folder of another config may be shared, or a repository.
    folder = os.path.join(os.path.dirname(own), "secrets")
    path = os.path.realpath(config)
    digest = blake2b(path.encode(errors="surrogateescape"), digest_size=4).hexdigest()
    return folder, server if path == os.path.realpath(own) else f"{server}-{digest}"
