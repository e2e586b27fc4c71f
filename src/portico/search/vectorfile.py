"""Vectors kept on disk under a digest of model and text: one file a model, shared by processes."""

import os
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress

import msgspec

from portico.catalog.cache_folder import CacheFolder
from portico.model.digest import blake2b
from portico.state import checksummed, files

FORMAT = 2
KEY = 16
"""Bytes of a key."""
MOST = 50_000
"""Vectors that are kept: some 40 MB, and eight times what a large gateway has."""
_ENDING = ".vectors"
_MODELS_KEPT = 2


class _File(msgspec.Struct, array_like=True):
    width: int
    """Bytes of a vector; two a number."""
    keys: bytes
    vectors: bytes


def key_of(text: str) -> bytes:
    """Under which the vector of a text is kept; the model is in the name of the file."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=KEY).digest()


class VectorFile:
    """Vectors as bytes. Nothing here raises: what cannot be kept is made again."""

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
        self._said: set[str] = set()

    def load(self) -> dict[bytes, bytes]:
        """All that is there, the longest unused first."""
        return self._known() or {}

    def add(self, vectors: dict[bytes, bytes], used: Iterable[bytes]) -> bool:
        """Keep these too; what is used stays when the oldest must go. True if it is on disk."""
        try:
            with _alone(self._folder):
                known = self._known()
                if known is None:
                    return False
                known.update(vectors)
                for key in used:
                    if key in known:
                        known[key] = known.pop(key)
                for key in [*known][: max(0, len(known) - MOST)]:
                    del known[key]
                width = len(next(iter(known.values()), b""))
                file = _File(width, b"".join(known), b"".join(known.values()))
                data = msgspec.msgpack.encode(file)
                checksummed.write(self._path, "vectors", FORMAT, data)
        except OSError as error:
            self._say(f"{self._path} cannot be written: {error.strerror}")
            return False
        files.keep_newest(_MODELS_KEPT, self._folder, _ENDING)
        if self._disk_cache is not None:
            self._disk_cache.add(self._path, len(data))
        return True

    def _known(self) -> dict[bytes, bytes] | None:
        """What is there; None if it is to stay as it is."""
        try:
            data = checksummed.read(self._path, "vectors", FORMAT, checksummed.PLAIN)
            return {} if data is None else _opened(data)
        except checksummed.Newer as error:
            self._say(f"{self._path} is neither used nor changed: {error}; update Portico")
        except checksummed.Damaged as error:
            self._set_aside(str(error))
            return {}
        except OSError as error:
            self._say(f"{self._path} is not used: {error.strerror}")
        return None

    def _set_aside(self, why: str) -> None:
        aside = f"{self._path}.corrupt"
        try:
            os.replace(self._path, aside)
            self._report(f"{self._path} is damaged ({why}); it was set aside as {aside}")
        except FileNotFoundError:
            pass  # another process was faster
        except OSError as error:
            self._say(f"{self._path} is damaged and cannot be set aside: {error.strerror}")

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._report(text)


def _opened(data: memoryview) -> dict[bytes, bytes]:
    try:
        file = msgspec.msgpack.decode(data, type=_File)
    except (msgspec.MsgspecError, ValueError):
        raise checksummed.Damaged("it has another shape") from None
    count, width = len(file.keys) // KEY, file.width
    if len(file.keys) != count * KEY or width < 0 or len(file.vectors) != count * width:
        raise checksummed.Damaged("its parts do not fit together")
    return {
        file.keys[at * KEY : (at + 1) * KEY]: file.vectors[at * width : (at + 1) * width]
        for at in range(count)
    }


@contextmanager
def _alone(folder: str) -> Generator[None]:
    """Two that add at once would lose what one of them had: they wait for each other."""
    files.make_private(folder)
    handle = os.open(os.path.join(folder, "vectors.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with suppress(ImportError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
