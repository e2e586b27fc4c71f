"""Reads and unpacks an .mcpb bundle: a zip file that anyone may have made."""

import os
import stat
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

from portico.commands.published.settings import PublishedError
from portico.core.documents.problems import quoted
from portico.core.state.files import make_private

MAX_FILE = 256 * 1024 * 1024
"""The size of a bundle."""
MAX_UNPACKED = 2 * 1024 * 1024 * 1024
MAX_ENTRIES = 100_000
_MAX_MANIFEST = 1024 * 1024
_MANIFEST = "manifest.json"
_CHUNK = 1024 * 1024
_KINDS = (0, stat.S_IFREG, stat.S_IFDIR)
_ENCRYPTED = 0x1
_END, _END_SIZE, _MAX_COMMENT = b"PK\5\6", 22, 65535
_MAX_DIRECTORY = 32 * 1024 * 1024
"""The list of entries, which the zip reader holds in memory."""


class Bundle:
    """An open bundle whose entries have been checked; nothing is unpacked yet."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._entries = archive.infolist()
        self.size = sum(one.file_size for one in self._entries)
        """The size of its files, unpacked."""
        _check(self._entries, self.size)

    def manifest(self) -> bytes:
        """Return the text of its manifest."""
        found = next((one for one in self._entries if one.filename == _MANIFEST), None)
        if found is None:
            raise PublishedError(f"it has no {_MANIFEST}; it is not an .mcpb bundle")
        if found.file_size > _MAX_MANIFEST:
            raise PublishedError(f"its {_MANIFEST} is larger than 1 MB")
        with _explained():
            return self._archive.read(found)

    def unpack(self, folder: str) -> None:
        """Unpack it into a new folder, private to the user; nothing remains of a failure."""
        import shutil

        make_private(os.path.dirname(folder))
        made = f"{folder}.{os.urandom(4).hex()}.draft"
        try:
            os.mkdir(made, 0o700)
            with _explained():
                for entry in self._entries:
                    self._write(entry, os.path.join(made, *_parts(entry.filename)))
            os.rename(made, folder)
        except OSError as error:
            raise PublishedError(f"{folder}: cannot be written: {error.strerror}") from None
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def _write(self, entry: zipfile.ZipInfo, path: str) -> None:
        if entry.is_dir():
            os.makedirs(path, 0o700, exist_ok=True)
            return
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        mode = 0o700 if entry.external_attr >> 16 & stat.S_IXUSR else 0o600
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        # The archive returns no more than the size that was checked.
        with os.fdopen(handle, "wb") as file, self._archive.open(entry) as source:
            while data := source.read(_CHUNK):
                file.write(data)


@contextmanager
def open_bundle(path: str) -> Iterator[Bundle]:
    """Open the bundle at a path, and check its entries; raises PublishedError."""
    with _explained():
        _check_directory(path)
        archive = zipfile.ZipFile(path)
    with archive:
        yield Bundle(archive)


def _check_directory(path: str) -> None:
    """Reject a list of entries that is too long to read."""
    size = os.path.getsize(path)
    if size > MAX_FILE:
        raise PublishedError("it is larger than 256 MB")
    with open(path, "rb") as file:
        file.seek(max(0, size - _END_SIZE - _MAX_COMMENT))
        _, found, rest = file.read().rpartition(_END)
    if found and int.from_bytes(rest[8:12], "little") > _MAX_DIRECTORY:
        raise PublishedError("its list of files is larger than 32 MB")


def _check(entries: list[zipfile.ZipInfo], size: int) -> None:
    if len(entries) > MAX_ENTRIES:
        raise PublishedError(f"it has more than {MAX_ENTRIES:,} files")
    if size > MAX_UNPACKED:
        raise PublishedError("it would be larger than 2 GB unpacked")
    files: dict[str, str] = {}
    folders: set[str] = set()
    for one in entries:
        _check_entry(one)
        # Names that differ only by case are one file on some systems.
        folded = [unicodedata.normalize("NFC", part).casefold() for part in _parts(one.filename)]
        key = "/".join(folded)
        if key in files:
            raise PublishedError(f"it has two entries of the name {quoted(one.filename)}")
        folders.update("/".join(folded[:depth]) for depth in range(1, len(folded)))
        if one.is_dir():
            folders.add(key)
        else:
            files[key] = one.filename
    both = next((name for key, name in files.items() if key in folders), None)
    if both is not None:
        raise PublishedError(f"{quoted(both)} is both a file and a folder in it")


def _check_entry(entry: zipfile.ZipInfo) -> None:
    name = entry.orig_filename  # zipfile cuts a name at a NUL
    parts = name.removesuffix("/").split("/")
    is_outside = any(part in ("", ".", "..") for part in parts) or ":" in parts[0]
    if is_outside or "\\" in name or any(ord(c) < 32 for c in name):
        raise PublishedError(f"its entry {quoted(name)} is not a path inside of it")
    if stat.S_IFMT(entry.external_attr >> 16) not in _KINDS:
        raise PublishedError(f"its entry {quoted(name)} is a link or a device, not a file")
    if entry.flag_bits & _ENCRYPTED:
        raise PublishedError(f"its entry {quoted(name)} is encrypted")


def _parts(name: str) -> list[str]:
    return name.removesuffix("/").split("/")


@contextmanager
def _explained() -> Iterator[None]:
    """Turn every failure of the zip reader into PublishedError."""
    try:
        yield
    except OSError as error:
        raise PublishedError(f"cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise PublishedError(f"is not a valid .mcpb bundle: {error}") from None
    except RuntimeError:  # a password is needed
        raise PublishedError("is encrypted") from None
