"""The cache of blobs: private, whole, and pruned by age."""

import os
import time
from pathlib import Path

import pytest

from portico.library.distribution.blob_cache import KEEP_S, BlobCache
from portico.library.distribution.distribution_error import DistributionError
from portico.library.distribution.manifest import digest_of

OLD, NEW = b"an old blob", b"a new blob"


@pytest.fixture
def cache(tmp_path: Path) -> BlobCache:
    return BlobCache(str(tmp_path))


def test_blobs_that_were_not_used_for_long_are_removed(cache: BlobCache) -> None:
    for data in (OLD, NEW):
        cache.add(digest_of(data), data)
        cache.save_note(digest_of(data), "signatures.json", data)
        cache.named(digest_of(data), "calc.wasm")
        Path(cache.partial(digest_of(data))).write_bytes(b"part")
    before = time.time() - KEEP_S - 60
    for folder, _, files in os.walk(cache.folder):
        for name in files:
            if name.startswith(digest_of(OLD)[7:]):
                os.utime(os.path.join(folder, name), (before, before))
        if digest_of(OLD)[7:] in folder:
            os.utime(folder, (before, before))
    cache.prune()
    left = [name for _, folders, files in os.walk(cache.folder) for name in (*folders, *files)]
    assert not [name for name in left if name.startswith(digest_of(OLD)[7:])]
    assert cache.read(digest_of(NEW), 100) == NEW
    assert cache.note(digest_of(NEW), "signatures.json") == NEW


def test_a_blob_that_is_used_stays(cache: BlobCache) -> None:
    cache.add(digest_of(OLD), OLD)
    path = cache.find(digest_of(OLD))
    os.utime(path, (1, 1))
    assert cache.find(digest_of(OLD)) == path
    cache.prune()
    assert cache.read(digest_of(OLD), 100) == OLD


def test_a_link_in_place_of_a_blob_is_not_followed(cache: BlobCache, tmp_path: Path) -> None:
    cache.add(digest_of(OLD), OLD)
    path = Path(cache.find(digest_of(OLD)))
    (tmp_path / "elsewhere").write_bytes(OLD)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.find(digest_of(OLD)) == ""


def test_a_cache_that_cannot_be_used_is_explained(tmp_path: Path) -> None:
    (tmp_path / "registry").write_text("a file")
    with pytest.raises(DistributionError, match=r"the cache .* cannot be used: "):
        BlobCache(str(tmp_path)).add(digest_of(OLD), OLD)
