"""Opens a bundle that anyone may have made: nothing of it is used before every byte is checked."""

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from portico.core.model.errors import PorticoError
from portico.core.state.files import dated, make_private
from portico.library.bundles.contents import (
    MANIFEST,
    MAX_BUNDLE,
    MAX_INNER,
    MAX_MANIFEST,
    MAX_NESTED,
    BundleContents,
    BundledFile,
    BundleError,
    decoded_contents,
    inner_wishes,
    own_wishes,
    shown,
)
from portico.library.bundles.layout import (
    LOCAL_SIZE,
    MAGIC,
    StoredFile,
    checksum,
    directory,
    directory_size,
    local_header,
    size_in,
)

_CHUNK = 1024 * 1024
_STALE_S = 3600
"""An older draft has lost its writer."""
_HEADER_SIZE = LOCAL_SIZE + len(MANIFEST)
_ZIP = "its bytes are not those that its manifest describes: it was changed or damaged"
_AGAIN = "get it again"
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
_Use = Callable[[bytes], object]


def is_bundle(head: bytes) -> bool:
    """True for the first bytes of a bundle."""
    return head.startswith(MAGIC) and head[LOCAL_SIZE:_HEADER_SIZE] == MANIFEST.encode()


class BundleReader:
    """An open bundle: a file, or a part of one, since inner bundles are stored as they are."""

    def __init__(self, handle: int, start: int, size: int, depth: int = 0) -> None:
        """Read its manifest; raises BundleError."""
        self._handle = handle
        self._start = start
        self._size = size
        self._depth = depth
        self._digest = ""
        if depth > MAX_NESTED:
            raise BundleError(f"it holds bundles more than {MAX_NESTED} deep; compose it flatter")
        self._manifest = self._read_manifest()
        self.contents: BundleContents = decoded_contents(self._manifest)
        self._check_size()

    @property
    def digest(self) -> str:
        """The digest of all its bytes."""
        if not self._digest:
            found = hashlib.sha256()
            self._read(0, self._size, found.update)
            self._digest = f"sha256:{found.hexdigest()}"
        return self._digest

    def verify(self, use: Callable[[BundledFile], _Use] | None = None) -> None:
        """Compare every byte, also of inner bundles; raises BundleError.

        `use` returns the function that gets the bytes of a file, before they are known to be right.
        """
        if self._at(0, _HEADER_SIZE) != local_header(self._stored_manifest()):
            raise BundleError(f"{_ZIP}; {_AGAIN}")
        stored = [self._stored_manifest()]
        at = _HEADER_SIZE + len(self._manifest)
        for file in self.contents.files:
            one, at = self._verify_file(file, at, use)
            stored.append(one)
        if self._at(at, self._size - at) != directory(stored):
            raise BundleError(f"{_ZIP}; {_AGAIN}")
        self._verify_inner()

    def inner(self) -> "Iterator[tuple[str, BundleReader]]":
        """Yield the name and the reader of each bundle in it."""
        offsets = self._offsets()
        for one, file in self.contents.inner():
            yield one.name, self._inner(one.name, self._start + offsets[file.path], file.size)

    def _inner(self, name: str, start: int, size: int) -> "BundleReader":
        try:
            return BundleReader(self._handle, start, size, self._depth + 1)
        except PorticoError as error:
            raise BundleError(f"{shown(name)} in it: {error}") from None

    def count_inner(self) -> int:
        """Return how many bundles are in it, however deep; raises BundleError if too many.

        Components may share a file: a few such levels would be millions of bundles.
        """
        shares: dict[str, list[str]] = {}
        for one, file in self.contents.inner():
            shares.setdefault(file.path, []).append(one.name)
        sizes = {file.path: file.size for file in self.contents.files}
        offsets = self._offsets() if shares else {}
        count = 0
        for path, names in shares.items():
            inner = self._inner(names[0], self._start + offsets[path], sizes[path])
            count += len(names) * (1 + inner.count_inner())
            if count > MAX_INNER:
                raise BundleError(f"it holds more than {MAX_INNER:,} bundles; compose it flatter")
        return count

    def _verify_inner(self) -> None:
        """Verify inner bundles; none may need more than this one names."""
        wishes = set(self.contents.wishes)
        expected = set(own_wishes(self.contents))
        verified: set[str] = set()  # components may share a file
        for (_, file), (name, inner) in zip(self.contents.inner(), self.inner(), strict=True):
            try:
                if file.path not in verified:
                    inner.verify()
                verified.add(file.path)
            except PorticoError as error:
                raise BundleError(f"{shown(name)} in it: {error}") from None
            wanted = inner_wishes(name, inner.contents)
            expected.update(wanted)
            for one in wanted:
                if one not in wishes:
                    what = f"{shown(one.path)} needs {one.kind} {shown(' '.join(one.value))}"
                    raise BundleError(f"{what}, which the bundle around it does not have; {_AGAIN}")
        if wishes - expected:
            raise BundleError("it names rights that no component of it needs; compose it again")

    def _verify_file(
        self, file: BundledFile, at: int, use: Callable[[BundledFile], _Use] | None
    ) -> tuple[StoredFile, int]:
        """Verify one file with the bytes before it; return its entry and the place after it."""
        found, crc = hashlib.sha256(), 0
        take = use(file) if use is not None else None

        def each(data: bytes) -> None:
            nonlocal crc
            found.update(data)
            crc = checksum(data, crc)
            if take is not None:
                take(data)

        header_size = LOCAL_SIZE + len(file.path.encode())
        self._read(at + header_size, file.size, each)
        if found.hexdigest() != file.sha256:
            what = f"{shown(file.path)} in it does not have its digest: it was changed or damaged"
            raise BundleError(f"{what}; {_AGAIN}")
        stored = StoredFile(file.path, file.size, crc)
        if self._at(at, header_size) != local_header(stored):
            raise BundleError(f"{_ZIP}; {_AGAIN}")
        return stored, at + header_size + file.size

    def _offsets(self) -> dict[str, int]:
        """Return where the bytes of each file begin."""
        found: dict[str, int] = {}
        at = _HEADER_SIZE + len(self._manifest)
        for file in self.contents.files:
            at += LOCAL_SIZE + len(file.path.encode())
            found[file.path] = at
            at += file.size
        return found

    def _stored_manifest(self) -> StoredFile:
        return StoredFile(MANIFEST, len(self._manifest), checksum(self._manifest))

    def _read_manifest(self) -> bytes:
        head = self._at(0, min(_HEADER_SIZE, self._size))
        if not is_bundle(head):
            how = "give a file that `portico compose` wrote"
            what = "a file of another program" if head else "empty"
            raise BundleError(f"it is {what}, not a bundle; {how}")
        size = size_in(head)
        if size > MAX_MANIFEST:
            raise BundleError(f"its {MANIFEST} is larger than {MAX_MANIFEST:,} bytes")
        return self._at(_HEADER_SIZE, size)

    def _check_size(self) -> None:
        files = self.contents.files
        names = [MANIFEST, *(file.path for file in files)]
        inside = sum(file.size for file in files) + len(self._manifest)
        headers = sum(LOCAL_SIZE + len(name.encode()) for name in names)
        expected = inside + headers + directory_size(names)
        if expected != self._size:
            what = (
                f"it has {self._size:,} bytes in place of {expected:,}: it was cut off or changed"
            )
            raise BundleError(f"{what}; {_AGAIN}")

    def _read(self, at: int, size: int, use: Callable[[bytes], object]) -> None:
        while size:
            data = self._at(at, min(size, _CHUNK))
            use(data)
            at, size = at + len(data), size - len(data)

    def _at(self, at: int, size: int) -> bytes:
        if at + size > self._size:
            raise BundleError(f"it is cut off; {_AGAIN}")
        data = os.pread(self._handle, size, self._start + at)
        if len(data) != size:
            raise BundleError(f"it is cut off; {_AGAIN}")
        return data


@contextmanager
def open_bundle_file(path: str) -> Iterator[BundleReader]:
    """Open the bundle at a path; raises BundleError with the path, also for what follows."""
    handle = -1
    try:
        handle = os.open(path, _READ)
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise BundleError("it is a folder, not a bundle; give the file of the bundle")
        if not stat.S_ISREG(status.st_mode):
            raise BundleError("it is not a regular file; give the file of the bundle")
        if status.st_size > MAX_BUNDLE:
            raise BundleError(f"it is larger than {MAX_BUNDLE // 1024 // 1024} MB, the limit")
        bundle = BundleReader(handle, 0, status.st_size)
        bundle.count_inner()
        yield bundle
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror or error}") from None
    except BundleError as error:
        raise BundleError(f"{path}: {error}") from None
    except PorticoError as error:  # such as an interface that is not known
        raise BundleError(f"{path}: {error}") from None
    finally:
        if handle >= 0:
            os.close(handle)


def unpacked(bundle: BundleReader, folder: str) -> str:
    """Return the folder with the files of a bundle, verified; below `folder`, by its digest.

    Nothing remains of a failure, and a folder that was damaged is written again.
    """
    place = os.path.join(folder, bundle.digest.partition(":")[2])
    try:
        if _is_whole(bundle, place):
            return place
        make_private(folder)
        _remove_old_drafts(folder)
        _unpack(bundle, place)
    except OSError as error:
        how = "make room, or set PORTICO_HOME to another folder"
        raise BundleError(
            f"it cannot be unpacked to {place}: {error.strerror or error}; {how}"
        ) from None
    return place


def _is_whole(bundle: BundleReader, place: str) -> bool:
    """True if every file is there as the manifest lists it."""
    if not os.path.isdir(place):
        return False
    for file in bundle.contents.files:
        try:
            with open(os.path.join(place, file.path), "rb") as found:
                if hashlib.file_digest(found, "sha256").hexdigest() != file.sha256:
                    return False
        except OSError:
            return False
    return True


def _remove_old_drafts(folder: str) -> None:
    """Remove what processes left that were killed."""
    for at, path in dated(folder, ".draft"):
        if time.time() - at > _STALE_S:
            shutil.rmtree(path, ignore_errors=True)


def _unpack(bundle: BundleReader, place: str) -> None:
    made = f"{place}.{os.urandom(4).hex()}.draft"
    try:
        os.mkdir(made, 0o700)
        with _Writing(made) as writing:
            bundle.verify(writing.file)
        _move(bundle, made, place)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _move(bundle: BundleReader, made: str, place: str) -> None:
    """Move unpacked files to their place, unless another process was faster: it uses its own."""
    try:
        os.rename(made, place)  # fails over files
    except OSError:
        if _is_whole(bundle, place):
            return
        shutil.rmtree(place, ignore_errors=True)
        os.rename(made, place)


class _Writing:
    """Writes files one after the other."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._open: int = -1

    def __enter__(self) -> "_Writing":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def file(self, file: BundledFile) -> _Use:
        """Begin a file; its path was checked."""
        self._close()
        path = os.path.join(self._folder, *file.path.split("/"))
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        self._open = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        return self._write

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._open, left) :]

    def _close(self) -> None:
        if self._open >= 0:
            os.close(self._open)
        self._open = -1
