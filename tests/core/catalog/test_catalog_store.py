"""Catalogs on disk: written atomically, whatever happens to disk, file or writer."""

import errno
import json
import os
import random
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from portico.core.catalog.catalog_file import FORMAT
from portico.core.catalog.catalog_store import CatalogStore
from portico.core.catalog.fingerprint import fingerprint
from portico.core.model.offer import KINDS, Listed, Offer
from portico.core.model.version import Version

KEY = "k"
FILE = "k.catalog"


def facts_of(*items: bytes, kind: str = "tools", taken: float = 1.5) -> Offer:
    listed = Listed(items, tuple(f"name {n}" for n in range(len(items))), b'{"ttlMs": 5}', 2)
    return Offer(Version.V2025_06_18, b'{ "capabilities":{} }', {kind: listed}, taken)


OLD = facts_of(*(b'{"name": "tool %d", "description": "%s"}' % (n, b"x" * 40) for n in range(30)))
NEW = facts_of(b'{"name":"new"}')


class Shop:
    """A store with its reports and a settable clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / FILE
        self.now = 1000.0
        self.reports: list[str] = []
        self.store = CatalogStore(folder, clock=lambda: self.now, report=self.reports.append)

    def put(self, data: bytes) -> None:
        self.file.write_bytes(data)
        self.file.chmod(0o600)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "cache" / "catalogs")


def packed(rest: bytes, **header: Any) -> bytes:
    """A file as another version of Portico could have written it."""
    format = header.get("format", FORMAT)
    digest = blake2b(rest, key=f"catalog {format}".encode()).hexdigest()
    first = {"portico": "catalog", "format": format, "digest": digest, "length": len(rest)}
    return json.dumps({**first, **header}).encode() + b"\n" + rest


def test_nothing_is_known_of_a_new_upstream_and_nothing_is_said_of_it(shop: Shop) -> None:
    assert shop.store.load(KEY) is None
    assert not shop.folder.exists()
    assert shop.reports == []


def test_it_is_kept_for_the_user_alone(shop: Shop) -> None:
    shop.folder.mkdir(parents=True)
    shop.folder.chmod(0o775)
    old = os.umask(0)
    try:
        assert shop.store.save(KEY, OLD)
    finally:
        os.umask(old)

    assert shop.names() == [FILE]
    assert stat.S_IMODE(shop.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(shop.folder.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "item",
    [
        b'{ "name" :  "a",\n\t"x": [ 1 ,2 ] }',
        b'{"name":"\\u00e9\\ud83d\\ude00\\/"}',
        '{"name":"é😀"}'.encode(),
        b'{"n":1e400,"m":-0.0,"big":123456789012345678901234567890,"e":1E+2}',
        b'{"name":"a","name":"b"}',
        b"null",
    ],
)
def test_every_definition_comes_back_byte_for_byte(shop: Shop, item: bytes) -> None:
    facts = Offer(
        Version.V2026_07_28, item, {kind: Listed((item,), ("a",), item) for kind in KINDS}, 1e9
    )

    assert shop.store.save(KEY, facts)
    assert CatalogStore(shop.folder).load(KEY) == facts
    assert shop.reports == []


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
_spelled = st.builds(
    lambda value, ascii, indent: json.dumps(value, ensure_ascii=ascii, indent=indent).encode(),
    _json.filter(lambda value: "Infinity" not in json.dumps(value)),
    st.booleans(),
    st.sampled_from([None, 0, 2]),
)


@given(st.lists(_spelled, max_size=5), st.sampled_from(KINDS), st.sampled_from(Version))
def test_any_json_comes_back(
    tmp_path_factory: pytest.TempPathFactory, items: list[bytes], kind: str, version: Version
) -> None:
    store = CatalogStore(tmp_path_factory.getbasetemp() / "any")
    facts = Offer(version, b"{}", facts_of(*items, kind=kind).lists, 0.1)

    assert store.save(KEY, facts)
    assert store.load(KEY) == facts


def test_what_a_server_asked_for_is_kept_and_a_file_without_it_is_read(shop: Shop) -> None:
    shop.store.save(KEY, NEW)
    assert b"asks" not in shop.file.read_bytes()  # as an earlier Portico wrote it
    assert shop.store.load(KEY) == NEW
    asking = replace(NEW, asks=frozenset({"roots", "start"}))
    shop.store.save(KEY, asking)
    assert shop.store.load(KEY) == asking


@pytest.mark.parametrize("item", [b"", b"{", b"1],[2", b' {"outer":"space"}', b"[" * 5000])
def test_what_would_not_come_back_is_not_kept(shop: Shop, item: bytes) -> None:
    shop.store.save(KEY, OLD)

    assert not shop.store.save(KEY, facts_of(item))
    assert shop.store.load(KEY) == OLD
    assert len(shop.reports) == 1


def test_a_large_catalog_is_kept_in_little_more_memory_than_its_file_needs(shop: Shop) -> None:
    text = b"x" * 10_000
    large = facts_of(*(b'{"name": "tool %d", "description": "%s"}' % (n, text) for n in range(300)))
    for _ in range(2):  # also when there is an older one to compare it with
        tracemalloc.start()
        try:
            assert shop.store.save(KEY, large)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

        assert peak < 3 * shop.file.stat().st_size


def test_a_fingerprint_tells_apart_what_readers_may_tell_apart() -> None:
    assert fingerprint(b'{"b":[1, 2],"a":0}') == fingerprint(b'{ "a": 0, "b": [1,2] }')
    assert len(fingerprint(b"{}")) == 32
    different = (b'{"a":1}', b'{"a":0,"a":1}', b'{"a":1e400}', b'{"a":1e500}', b'{"a":"1"}')
    assert len({fingerprint(item) for item in different}) == len(different)


def test_a_file_cut_anywhere_is_set_aside_and_made_anew(shop: Shop) -> None:
    shop.store.save(KEY, OLD)
    whole = shop.file.read_bytes()

    for end in range(0, len(whole), 64):
        shop.now += 1
        shop.reports.clear()
        shop.put(whole[:end])

        assert shop.store.load(KEY) is None, end
        assert not shop.file.exists()
        assert len(shop.reports) == 1
        assert any(whole[:end] == path.read_bytes() for path in shop.folder.glob("*.corrupt-*"))
        assert shop.store.save(KEY, OLD)
        assert shop.store.load(KEY) == OLD
        assert len(shop.reports) == 1

    assert len(shop.names()) == 1 + 3


def test_a_flipped_bit_anywhere_is_noticed(shop: Shop) -> None:
    shop.store.save(KEY, OLD)
    whole = shop.file.read_bytes()
    header = whole.index(b"\n") + 1

    for place in (*range(header), *range(header, len(whole), 13)):
        for bit in range(8) if place < header else (place % 8,):
            bent = bytearray(whole)
            bent[place] ^= 1 << bit
            shop.put(bytes(bent))

            assert shop.store.load(KEY) is None, (place, bit)
            assert not shop.file.exists(), (place, bit)
            assert "damaged" in shop.reports[-1], (place, bit)


def test_a_file_whose_digest_does_not_cover_its_header_is_still_opened(shop: Shop) -> None:
    shop.store.save(KEY, OLD)
    rest = shop.file.read_bytes().partition(b"\n")[2]
    old = {"portico": "catalog", "format": 1, "digest": blake2b(rest).hexdigest()}
    before = json.dumps({**old, "length": len(rest)}, separators=(",", ":")).encode() + b"\n" + rest
    shop.put(before)
    assert shop.store.load(KEY) == OLD

    shop.put(before.replace(b'"format":1', b'"format":3', 1))
    assert shop.store.load(KEY) is None
    assert "damaged" in shop.reports[0]


_DOCUMENT = b'{"version":"2025-06-18","taken":1.0,"introduction":{},"lists":%s}'
_ENTRY = b'{"key":"a","digest":"","first_seen":1,"last_seen":1,"definition":{}}'


@pytest.mark.parametrize(
    "content",
    [
        packed(b"{}"),
        packed(b"[1"),
        packed(_DOCUMENT % b"[]"),
        packed(_DOCUMENT % b'{"spoons":{"entries":[],"more":{},"page_size":0}}'),
        packed(
            _DOCUMENT % b'{"tools":{"entries":[%s,%s],"more":{},"page_size":0}}' % (_ENTRY, _ENTRY)
        ),
        packed(_DOCUMENT % b"{}", format=0),
        packed(_DOCUMENT % b"{}", portico="token"),
        packed(_DOCUMENT % b"{}") + b" ",
        b"\0" * 4096,
        b"\xff\n",
        b"[" * 100_000,
    ],
)
def test_a_file_of_another_shape_is_set_aside(shop: Shop, content: bytes) -> None:
    shop.folder.mkdir(parents=True)
    shop.put(content)

    assert shop.store.load(KEY) is None
    assert shop.names() == [f"{FILE}.corrupt-19700101T001640Z"]
    assert "damaged" in shop.reports[0]


@pytest.mark.parametrize(
    "content",
    [
        packed(b"whatever", format=3),
        packed(b"{}", format=99, more=[1]),
        packed(_DOCUMENT.replace(b"2025-06-18", b"2031-01-01") % b"{}"),
    ],
)
def test_a_newer_format_is_neither_used_nor_changed(shop: Shop, content: bytes) -> None:
    shop.folder.mkdir(parents=True)
    shop.put(content)

    assert shop.store.load(KEY) is None
    assert not shop.store.save(KEY, NEW)
    assert shop.file.read_bytes() == content
    assert shop.names() == [FILE]
    assert len(shop.reports) == 1
    assert "newer Portico" in shop.reports[0]


def test_a_file_that_others_may_write_to_is_not_believed(shop: Shop) -> None:
    shop.store.save(KEY, OLD)
    shop.file.chmod(0o666)
    assert shop.store.load(KEY) is None

    elsewhere = shop.folder / "elsewhere"
    shop.file.rename(elsewhere)
    elsewhere.chmod(0o600)
    shop.file.symlink_to(elsewhere)
    assert shop.store.load(KEY) is None

    shop.file.unlink()
    os.mkfifo(shop.file)
    assert shop.store.load(KEY) is None
    assert len(shop.reports) == 3
    assert shop.store.save(KEY, NEW)
    assert shop.store.load(KEY) == NEW


@pytest.mark.parametrize("path", ["", "deeper/down"])
def test_a_folder_that_cannot_be_made_is_said_once(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("")
    shop = Shop(tmp_path / "file" / path)

    for _ in range(3):
        assert shop.store.load(KEY) is None
        assert not shop.store.save(KEY, NEW)

    assert len(shop.reports) == 1
    assert "cannot be written" in shop.reports[0]


@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.ENOSPC])
def test_an_error_of_the_disk_leaves_the_old_file(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    shop.store.save(KEY, OLD)
    real: Callable[..., Any] = getattr(os, call)

    def fail(*args: Any, **more: Any) -> Any:
        if call == "open" and not args[1] & os.O_CREAT:
            return real(*args, **more)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    assert [shop.store.save(KEY, NEW) for _ in range(3)] == [False] * 3
    monkeypatch.undo()

    assert shop.store.load(KEY) == OLD
    assert shop.names() == [FILE]
    assert len(shop.reports) == 1
    assert os.strerror(code) in shop.reports[0]
    assert shop.store.save(KEY, NEW)


def test_a_file_that_cannot_be_read_stays_where_it_is(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.store.save(KEY, OLD)

    def fail(*_: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fstat", fail)
    assert shop.store.load(KEY) is None
    monkeypatch.undo()

    assert len(shop.reports) == 1
    assert shop.store.load(KEY) == OLD


_WRITER = """
import resource, sys
from portico.core.catalog.catalog_store import CatalogStore
from portico.core.model.offer import Offer, Listed
from portico.core.model.version import Version

folder, name, times, limit = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = CatalogStore(folder)
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
print("ready", flush=True)
for n in range(times):
    stamp = f"{name} {n}"
    items = tuple(b'{"stamp":"%s"}' % stamp.encode() for _ in range(50 + n % 50))
    keys = tuple(f"{stamp} {i}" for i in range(len(items)))
    facts = Offer(Version.V2025_06_18, b'"%s"' % stamp.encode(), {"tools": Listed(items, keys)}, n)
    print(store.save("k", facts), flush=True)
"""


def _writer(folder: Path, name: str, times: int, limit: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _WRITER, str(folder), name, str(times), str(limit)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
    )


def _stamp_of(facts: Offer | None) -> str:
    """Return the number of the write, which must be complete."""
    assert facts is not None
    stamp = facts.introduction.strip(b'"')
    tools = facts.lists["tools"]
    assert set(tools.items) == {b'{"stamp":"%s"}' % stamp}
    assert len(tools.items) == len(tools.keys) == 50 + int(facts.taken) % 50
    assert stamp.endswith(b" %d" % facts.taken)
    return stamp.decode()


def test_a_full_disk_leaves_the_old_file(shop: Shop) -> None:
    shop.store.save(KEY, OLD)

    with _writer(shop.folder, "a", times=3, limit=1000) as writer:
        out, err = writer.communicate()

    assert out.split() == ["ready", "False", "False", "False"]
    assert err.count("cannot be written: File too large") == 1
    assert shop.names() == [FILE]
    assert shop.store.load(KEY) == OLD


@pytest.mark.slow
def test_many_writers_at_once_never_show_half_a_file(shop: Shop) -> None:
    with _writer(shop.folder, "zero", times=1) as first:
        first.communicate()
    writers = [_writer(shop.folder, name, times=500) for name in ("one", "two")]
    answers: list[str] = []
    waiters = [
        threading.Thread(target=lambda w=writer: answers.extend(w.communicate()))
        for writer in writers
    ]
    for waiter in waiters:
        waiter.start()
    stamps = set()
    while any(waiter.is_alive() for waiter in waiters):
        stamps.add(_stamp_of(shop.store.load(KEY)))

    assert sum(answer.count("True") for answer in answers) == 1000, answers
    assert len(stamps) > 10
    assert _stamp_of(shop.store.load(KEY)) in {"one 499", "two 499"}
    assert shop.names() == [FILE]
    assert shop.reports == []


def test_threads_share_a_store(shop: Shop) -> None:
    both = (OLD, NEW)
    shop.store.save(KEY, OLD)
    results: set[tuple[bool, bool]] = set()

    def work(mine: Offer) -> None:
        for _ in range(30):
            results.add((shop.store.save(KEY, mine), shop.store.load(KEY) in both))

    threads = [threading.Thread(target=work, args=(facts,)) for facts in both * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == {(True, True)}
    assert shop.reports == []
    assert shop.names() == [FILE]


@pytest.mark.slow
def test_a_killed_writer_leaves_the_old_file_or_the_new_one(shop: Shop) -> None:
    with _writer(shop.folder, "zero", times=1) as first:
        first.communicate()

    last = "zero 0"
    for n in range(30):
        with _writer(shop.folder, f"killed {n}", times=1_000_000) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(random.random() / 50)
            writer.kill()
            saved = writer.stdout.read().count("True")
        stamp = _stamp_of(shop.store.load(KEY))
        # The last one that it reported as saved, or the next, which it could not report any more.
        before = f"killed {n} {saved - 1}" if saved else last
        assert stamp in {before, f"killed {n} {saved}"}
        last = stamp
    assert shop.reports == []


def test_drafts_of_dead_writers_go_after_an_hour(shop: Shop) -> None:
    shop.folder.mkdir(parents=True)
    for name, age in ((".k.dead.draft", 3601), (".k.busy.draft", 60), ("k.draft", 3601)):
        (shop.folder / name).touch()
        os.utime(shop.folder / name, (10_000 - age,) * 2)
    shop.now = 10_000.0

    assert shop.store.save(KEY, NEW)
    assert shop.names() == [".k.busy.draft", FILE, "k.draft"]


def test_a_catalog_that_nobody_has_used_for_three_months_goes(shop: Shop) -> None:
    day = 86_400.0
    begun = time.time()
    shop.now = begun
    for key in ("forgotten", "used", "damaged"):
        assert shop.store.save(key, NEW)
    (shop.folder / "damaged.catalog").write_bytes(b"no catalog")
    shop.now = begun + 60 * day
    assert shop.store.load("used") == NEW
    assert shop.store.load("damaged") is None

    shop.now = begun + 91 * day
    assert CatalogStore(shop.folder, clock=lambda: shop.now, report=shop.reports.append).save(
        KEY, NEW
    )
    assert shop.names() == [FILE, "used.catalog"]
    assert shop.store.load("used") == NEW
