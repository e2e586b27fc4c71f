"""Changes entries of files for a command: writes them, or shows them as a diff."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from portico.commands.console.dialog import Dialog
from portico.commands.console.secret_values import plain_secrets
from portico.commands.setup.moves import Mover
from portico.core.documents.edit import Changes, changed_entries
from portico.core.documents.save import current

_HIDDEN = "********"


class FileChanges:
    """The files that one command changes."""

    def __init__(self, dialog: Dialog, mover: Mover) -> None:
        self.dialog = dialog
        self.mover = mover

    def differs(self, path: str, changes: Changes) -> bool:
        """True if these changes would change the file; ConfigError if they cannot be made."""
        old = current(os.path.realpath(path))
        return changed_entries(path, old, changes) != old

    def apply(
        self, path: str, changes: Changes, with_secrets: Sequence[Mapping[str, Any]] = ()
    ) -> bool:
        """Change the file, or show the diff without the secrets of these entries; return False if
        nothing differs."""
        if not self.dialog.dry_run:
            return self.mover.change(path, lambda old: changed_entries(path, old, changes))
        old = current(os.path.realpath(path))
        new = changed_entries(path, old, changes)
        secrets = [value for entry in with_secrets for _, value in plain_secrets(entry)]
        for line in _diff(path, old or b"", new, secrets):
            self.dialog.out.print(line)
        return new != old


def _diff(path: str, old: bytes, new: bytes, secrets: Sequence[str]) -> Iterator[str]:
    from difflib import unified_diff

    def lines(data: bytes) -> list[str]:
        text = data.decode(errors="replace")
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        return text.splitlines()

    yield from unified_diff(lines(old), lines(new), path, path, lineterm="")
