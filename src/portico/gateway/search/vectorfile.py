"""Vectors on disk by digest of their text: one file per model, shared by processes."""

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from hashlib import blake2b

import msgspec

from portico.core.catalog.cache_folder import CacheFolder
from portico.core.state import checksummed, files

FORMAT = 2
KEY = 16
"""Bytes of a key."""
MAX_VECTORS = 50_000
"""Vectors that are kept: some 40 MB, and eight times those of a large gateway."""
_ENDING = ".vectors"
_MODELS_KEPT = 2


class _File(msgspec.Struct, array_like=True):
    width: int
    """Bytes of a vector; two per number."""
    keys: bytes
    vectors: bytes


def key_of(text: str) -> bytes:
    """Return the key of a text; the model is in the name of the file."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY).digest()


class VectorFile:
    """Vectors as bytes. Errors are reported, not raised: vectors can be computed again."""

    def __init__(
        self,
        folder: str,
        model: str,
        report: Callable[[str], None],
        disk_cache: CacheFolder | None = None,
    ) -> None:
        self._disk_cache = disk_cache
        self._path = os.path.join(folder, f"{model}{_ENDING}")
        self._folder = folder
        self._report = report
        self._reported: set[str] = set()

    def load(self) -> dict[bytes, bytes]:
        """Return all vectors, least recently used first."""
        return self._known() or {}

    def add(self, vectors: dict[bytes, bytes], used: Iterable[bytes]) -> bool:
        """Add vectors, and drop the least recently used above the limit; True if saved."""
        try:
            with _locked(self._folder):
                known = self._known()
                if known is None:
                    return False
                known.update(vectors)
                for key in used:
                    if key in known:
                        known[key] = known.pop(key)
                for key in [*known][: max(0, len(known) - MAX_VECTORS)]:
                    del known[key]
                width = len(next(iter(known.values()), b""))
                file = _File(width, b"".join(known), b"".join(known.values()))
                data = msgspec.msgpack.encode(file)
                checksummed.write(self._path, "vectors", FORMAT, data)
        except OSError as error:
            self._report_once(f"{self._path} cannot be written: {error.strerror}")
            return False
        files.keep_newest(_MODELS_KEPT, self._folder, _ENDING)
        if self._disk_cache is not None:
            self._disk_cache.add(self._path, len(data))
        return True

    def _known(self) -> dict[bytes, bytes] | None:
        """Return the saved vectors; None if the file must not be changed."""
        try:
            data = checksummed.read(self._path, "vectors", FORMAT, checksummed.PLAIN)
            return {} if data is None else _decoded(data)
        except checksummed.Newer as error:
            self._report_once(f"{self._path} is ignored and left as it is: {error}; update Portico")
        except checksummed.Damaged as error:
            self._set_aside(str(error))
            return {}
        except OSError as error:
            self._report_once(f"{self._path} cannot be read: {error.strerror}")
        return None

    def _set_aside(self, why: str) -> None:
        aside = f"{self._path}.corrupt"
        try:
            os.replace(self._path, aside)
            self._report(f"{self._path} is damaged ({why}); it was moved to {aside}")
        except FileNotFoundError:
            pass  # a faster process moved it
        except OSError as error:
            self._report_once(f"{self._path} is damaged and cannot be moved away: {error.strerror}")

    def _report_once(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._report(text)


def _decoded(data: memoryview) -> dict[bytes, bytes]:
    try:
        file = msgspec.msgpack.decode(data, type=_File)
    except (msgspec.MsgspecError, ValueError):
        raise checksummed.Damaged("its structure is not valid") from None
    count, width = len(file.keys) // KEY, file.width
    if len(file.keys) != count * KEY or width < 0 or len(file.vectors) != count * width:
        raise checksummed.Damaged("its sizes do not match")
    return {
        file.keys[at * KEY : (at + 1) * KEY]: file.vectors[at * width : (at + 1) * width]
        for at in range(count)
    }


@contextmanager
def _locked(folder: str) -> Generator[None]:
    """Lock the folder: two processes that add at once would lose vectors."""
    files.make_private(folder)
    handle = os.open(os.path.join(folder, "vectors.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with suppress(ImportError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
