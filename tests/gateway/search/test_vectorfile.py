"""Vectors survive on disk, whatever happens to the file."""

import json
import os
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

import pytest

from portico.core.state.checksummed import pack
from portico.gateway.search import vectorfile
from portico.gateway.search.vectorfile import VectorFile, key_of

A, B, C = (key_of(text) for text in "abc")
V, W = b"\1\2\3\4", b"\5\6\7\x08"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def file(tmp_path: Path, said: list[str]) -> VectorFile:
    return VectorFile(str(tmp_path / "search"), "m", said.append)


def path(tmp_path: Path) -> Path:
    return tmp_path / "search" / "m.vectors"


def test_what_was_added_is_there_again(file: VectorFile, said: list[str]) -> None:
    assert file.load() == {}
    assert file.add({A: V}, [A])
    assert file.add({B: W}, [B])
    assert file.load() == {A: V, B: W}
    assert said == []


def test_it_is_for_the_user_alone(file: VectorFile, tmp_path: Path) -> None:
    file.add({A: V}, [])
    assert path(tmp_path).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("cut", [0, 5, 60, -1])
def test_a_damaged_file_is_set_aside_and_begun_anew(
    file: VectorFile, tmp_path: Path, said: list[str], cut: int
) -> None:
    file.add({A: V}, [])
    whole = path(tmp_path).read_bytes()
    path(tmp_path).write_bytes(whole[:cut])
    assert file.load() == {}
    assert "moved to" in said[0]
    assert file.add({B: W}, [])
    assert file.load() == {B: W}
    assert path(tmp_path).with_name("m.vectors.corrupt").exists()


def test_a_flipped_bit_anywhere_is_damage(
    file: VectorFile, tmp_path: Path, said: list[str]
) -> None:
    file.add({A: V}, [])
    whole = path(tmp_path).read_bytes()
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= 1 << place % 8
        path(tmp_path).write_bytes(data)
        assert file.load() == {}, place
        assert "damaged" in said.pop(), place


def test_vectors_whose_digest_does_not_cover_the_header_are_kept(
    file: VectorFile, tmp_path: Path
) -> None:
    file.add({A: V}, [])
    rest = path(tmp_path).read_bytes().partition(b"\n")[2]
    old = {"portico": "vectors", "format": 1, "digest": blake2b(rest).hexdigest()}
    path(tmp_path).write_bytes(json.dumps({**old, "length": len(rest)}).encode() + b"\n" + rest)
    assert file.load() == {A: V}


def test_a_file_of_a_newer_portico_is_neither_used_nor_changed(
    file: VectorFile, tmp_path: Path, said: list[str]
) -> None:
    file.add({A: V}, [])
    newer = pack("vectors", vectorfile.FORMAT + 1, b"whatever")
    path(tmp_path).write_bytes(newer)
    assert file.load() == {}
    assert not file.add({B: W}, [])
    assert path(tmp_path).read_bytes() == newer
    assert "newer" in said[0]


def test_it_is_bounded_and_what_is_used_stays(
    file: VectorFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectorfile, "MAX_VECTORS", 2)
    file.add({A: V, B: V}, [])
    file.add({C: W}, [A])
    assert file.load() == {A: V, C: W}


def test_a_disk_that_cannot_be_written_loses_nothing(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "search").write_text("a file where the folder should be")
    file = VectorFile(str(tmp_path / "search"), "m", said.append)
    assert file.load() == {}
    assert not file.add({A: V}, [])
    assert "cannot be written" in said[0]


def test_processes_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    folder = str(tmp_path / "search")
    code = (
        "import sys; from portico.gateway.search.vectorfile import VectorFile, key_of\n"
        "file = VectorFile(sys.argv[1], 'm', print)\n"
        "for n in range(20): file.add({key_of(sys.argv[2] + str(n)): b'1234'}, [])\n"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, folder, who]) for who in "xy"]
    assert [process.wait(60) for process in both] == [0, 0]
    assert len(VectorFile(folder, "m", print).load()) == 40
    assert not [name for name in os.listdir(folder) if name.endswith(".draft")]
