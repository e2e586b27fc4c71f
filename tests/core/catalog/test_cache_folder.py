"""The cache stays within its limit: the least recently used files go, files in use stay."""

import os
import time
from pathlib import Path

from portico.core.catalog.cache_folder import CacheFolder
from portico.core.catalog.catalog_store import CatalogStore
from portico.core.model.offer import Listed, Offer
from portico.core.model.version import BY_TEXT

LARGE = b'{"name":"a","description":"%s"}' % (b"x" * 300_000)


def facts(item: bytes = LARGE) -> Offer:
    """The offer of a server with one large tool."""
    tools = Listed(items=(item,), keys=("a",))
    return Offer(BY_TEXT["2025-06-18"], b"{}", {"tools": tools}, 1000.0)


def put(path: Path, size: int, age: int) -> Path:
    """A file that was last used this long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"?" * size)
    os.utime(path, (time.time() - age,) * 2)
    return path


def store(home: Path, limit_mb: int = 1) -> CatalogStore:
    """The catalogs of one process, with this limit."""
    return CatalogStore(home / "catalogs", disk_cache=CacheFolder(str(home), limit_mb))


def test_the_longest_unused_files_go_first(tmp_path: Path) -> None:
    oldest = put(tmp_path / "search" / "a.index", 400_000, 30)
    older = put(tmp_path / "catalogs" / "b.catalog", 400_000, 20)
    old = put(tmp_path / "catalogs" / "c.catalog", 400_000, 10)
    other = put(tmp_path / "catalogs" / "notes.txt", 400_000, 90)

    assert store(tmp_path).save("d", facts())

    assert not oldest.exists()
    assert not older.exists()
    assert old.exists()
    assert other.exists()
    assert store(tmp_path).load("d") == facts()


def test_what_is_in_use_stays_however_large(tmp_path: Path) -> None:
    used = store(tmp_path)
    for number in range(6):
        assert used.save(f"k{number}", facts())
    assert len(list((tmp_path / "catalogs").iterdir())) == 6

    next_process = store(tmp_path)
    assert next_process.load("k0") is not None
    assert next_process.save("k9", facts())
    left = {path.stem for path in (tmp_path / "catalogs").iterdir()}
    assert {"k0", "k9"} < left
    assert len(left) == 3


def test_a_catalog_replaces_that_of_the_same_owner(tmp_path: Path) -> None:
    catalogs = store(tmp_path)
    small = b'{"name":"a"}'
    for key in ("ann-1", "bob-1", "plain"):
        assert catalogs.save(key, facts(small))
    for number in range(300):
        assert catalogs.save(f"ann-{number}", facts(small))
    left = {path.stem for path in (tmp_path / "catalogs").iterdir()}
    assert left == {"ann-299", "bob-1", "plain"}
