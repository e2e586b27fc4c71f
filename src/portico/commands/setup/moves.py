"""The changes that commands make to files: shown as a diff, and kept so that each can be undone."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec
from msgspec import Struct

from portico.commands.console.dialog import Dialog
from portico.commands.console.render import Screen
from portico.commands.console.secret_values import plain_secrets
from portico.core.config.paths import state_folder
from portico.core.documents.document import Document, as_text, parse
from portico.core.documents.edit import Changes, EntryChange, changed_entries
from portico.core.documents.problems import ConfigError, Path, dotted
from portico.core.documents.save import current, rewrite
from portico.core.documents.sections import sections
from portico.core.state.files import dated, keep_newest, make_private, read, replace

_HIDDEN = "********"
_MAX_SIZE = 64 * 1024 * 1024
_KEPT = 100
"""Moves that can be undone."""
_SUFFIX, _BACKUP = ".json", ".before"


class FileMove(Struct, frozen=True):
    """One file that a command changed."""

    path: str
    backup: str
    """A copy from before; empty if there was no file."""
    after: bytes

    @property
    def before(self) -> bytes | None:
        """The content from before; ConfigError if the backup was deleted."""
        return _content(self.backup) if self.backup else None


class _Move(Struct):
    command: str
    target: str
    files: list[FileMove] = []


class Mover:
    """Changes files for one command; each change can be undone from the moment it is made."""

    def __init__(self, command: str, target: str) -> None:
        self._move = _Move(command, target)
        self._folder = _folder()
        self._record = os.path.join(self._folder, f"{time.time_ns():020}{_SUFFIX}")

    @property
    def backups(self) -> list[str]:
        """The copies of the changed files."""
        return [file.backup for file in self._move.files if file.backup]

    def change(self, path: str, change: Callable[[bytes | None], bytes]) -> bool:
        """Change a file's content; return False if it stays the same."""
        files = self._move.files
        made: list[FileMove] = []

        def recorded(old: bytes | None) -> bytes:
            new = change(old)
            made[:] = [] if new == old else [self._backed_up(path, old, new, len(files))]
            self._save([*files, *made])
            return new

        try:
            rewrite(path, recorded)
        except BaseException:
            self._save(files)
            raise
        files += made
        return bool(made)

    def _backed_up(self, path: str, old: bytes | None, new: bytes, number: int) -> FileMove:
        if old is None:
            return FileMove(path, "", new)
        stem = self._record.removesuffix(_SUFFIX)
        copy = f"{stem}.{number}.{os.path.basename(path)}{_BACKUP}"
        with self._writing():
            replace(copy, old)
        return FileMove(path, copy, new)

    def _save(self, files: list[FileMove]) -> None:
        if not files:
            with suppress(OSError):
                os.unlink(self._record)
            return
        with self._writing():
            move = _Move(self._move.command, self._move.target, files)
            replace(self._record, msgspec.json.encode(move))
            keep_newest(_KEPT, self._folder, _SUFFIX)
            keep_newest(2 * _KEPT, self._folder, _BACKUP)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            make_private(self._folder)
            yield
        except OSError as error:
            raise ConfigError(
                f"{self._folder}: no backup can be written: {error.strerror or error}; "
                "nothing was changed"
            ) from None


def undo(command: str, *targets: str) -> int:
    """Undo the last move of a command for each target, and print a line about each file; return
    the exit code."""
    for target in targets:
        for line in _undo(command, target):
            Screen(sys.stdout).print(line)
    return 0


def _undo(command: str, target: str) -> Iterator[str]:
    for record in sorted((path for _, path in dated(_folder(), _SUFFIX)), reverse=True):
        try:
            move = msgspec.json.decode(_content(record), type=_Move)
        except msgspec.MsgspecError:
            continue  # damaged, or of another version
        if (move.command, move.target) == (command, target):
            for file in reversed(move.files):
                yield from _undone(file)
            os.unlink(record)
            return
    raise ConfigError(f"`portico {command} {target}` has changed nothing that can be undone")


def _undone(file: FileMove) -> Iterator[str]:
    if not os.path.exists(file.path):
        yield f"{file.path}: was removed since, and is not restored"
        return
    before = file.before
    if before is None and _content(file.path) == file.after:
        os.unlink(file.path)
        yield f"{file.path}: removed, as there was none before"
        return
    told: list[str] = []

    def change(old: bytes | None) -> bytes:
        told.clear()
        if old == file.after and before is not None:
            told.append(f"{file.path}: restored")
            return before
        told.append(f"{file.path}: was edited since; only Portico's changes are taken back")
        return changed_entries(file.path, old, lambda now: _taken_back(file, now, told))

    rewrite(file.path, change)
    yield from told


def _taken_back(file: FileMove, now: Document, told: list[str]) -> Iterator[EntryChange]:
    """The changes that take back single entries, except those that were edited since."""
    empty = b"{}" if now.kind == "json" else b""
    before = _entries(_parsed(file.path, file.before or empty))
    after, there = _entries(_parsed(file.path, file.after)), _entries(now)
    for at in dict.fromkeys((*after, *before)):
        if after.get(at) == before.get(at) or there.get(at) == before.get(at):
            continue
        if there.get(at) == after.get(at):
            yield EntryChange(at, before.get(at))
        else:
            told.append(f"{file.path}: {dotted(at)} was edited since, and stays")


def _parsed(path: str, data: bytes) -> Document:
    return parse(path, as_text(path, data))


def _entries(document: Document) -> dict[Path, Any]:
    """Everything that a command may change: the servers, and the other tables of a config."""
    found: dict[Path, Any] = {}
    tables = {section.path for section in sections(document)}
    for section in sections(document):
        if isinstance(section.table, dict):
            found |= {(*section.path, key): one for key, one in section.table.items()}
    if document.kind == "toml":
        found |= {(key,): one for key, one in document.data.items() if (key,) not in tables}
    return found


def _folder() -> str:
    return os.path.join(state_folder(), "moves")


def _content(path: str) -> bytes:
    try:
        return read(path, _MAX_SIZE, follow=True)[0]
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None


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
