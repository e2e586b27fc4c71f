"""Freed memory is returned to the system."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

_RUN = """
import sys
from portico.core.catalog.catalog_store import CatalogStore
from portico.core.model.offer import Offer, Listed
from portico.core.model.version import Version

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

items = tuple(b'{"name": "tool %d", "description": "%s"}' % (n, b"x" * 1000) for n in range(2000))
listed = Listed(items, tuple(f"tool {n}" for n in range(2000)))
facts = Offer(Version.V2025_11_25, b"{}", {"tools": listed}, 1.0)
before = resident()
parts = [bytes(2000) for n in range(50_000)]
last = parts.pop()  # as long as it is there, nothing before it is given back by itself
del parts
kept = CatalogStore(sys.argv[1]).save("k", facts)
print(kept, resident() - before)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"),
    reason="only glibc keeps it",
)
def test_what_is_free_goes_back_to_the_system_once_a_large_catalog_is_kept(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _RUN, tmp_path], capture_output=True, text=True, check=True
    )
    kept, more = run.stdout.split()

    assert kept == "True"
    assert int(more) < 50_000_000  # of the 100 MB that were needed for a moment
