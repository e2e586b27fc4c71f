"""A bundle is unpacked as it was packed, or not at all: it may come from anyone."""

import os
import stat
import zipfile
from pathlib import Path

import pytest

from portico.commands.published.bundle import open_bundle
from portico.commands.published.settings import PublishedError

Entry = tuple[str, bytes, int]


def packed(path: Path, *entries: Entry) -> str:
    """A zip file with these names, contents and modes, whatever they are."""
    file = path / "x.mcpb"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, mode in (("manifest.json", b"{}", 0), *entries):
            about = zipfile.ZipInfo()
            about.filename = name  # the constructor would correct it
            about.external_attr = mode << 16
            about.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(about, data)
    return str(file)


def unpacked(file: str, folder: Path) -> Path:
    with open_bundle(file) as bundle:
        bundle.unpack(str(folder / "into" / "it"))
    return folder / "into" / "it"


def test_files_are_private_and_programs_stay_executable(tmp_path: Path) -> None:
    regular = stat.S_IFREG
    file = packed(
        tmp_path,
        ("server/", b"", stat.S_IFDIR | 0o777),
        ("server/run", b"#!", regular | 0o4755),
        ("server/data.txt", b"data", regular | 0o666),
    )
    found = unpacked(file, tmp_path)
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in (found / "server").iterdir()}
    assert modes == {"run": 0o700, "data.txt": 0o600}
    assert stat.S_IMODE(found.stat().st_mode) == 0o700
    assert (found / "server" / "data.txt").read_bytes() == b"data"


@pytest.mark.parametrize(
    "name",
    [
        *("../evil", "server/../../evil", "/evil", "//evil", "a//b", "./a", "", "..", "C:/evil"),
        *("..\\evil", "a\\..\\..\\b", "evil\x00.txt", "evil\n.txt"),
    ],
)
def test_no_entry_leaves_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(PublishedError, match="is not a path inside of it"):
        unpacked(packed(tmp_path, (name, b"x", 0)), tmp_path)
    assert [one.name for one in tmp_path.rglob("*")] == ["x.mcpb"]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_links_and_devices_are_refused(tmp_path: Path, kind: int) -> None:
    with pytest.raises(PublishedError, match="is a link or a device"):
        unpacked(packed(tmp_path, ("server", b"/etc/passwd", kind | 0o777)), tmp_path)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("a", "a"), "two entries of the name"),
        (("a/Index.js", "a/index.js"), "two entries of the name"),
        (("e\u0301", "\u00e9"), "two entries of the name"),
        (("manifest.json",), "two entries of the name"),
        (("a", "a/b"), "both a file and a folder"),
        (("a/b", "a"), "both a file and a folder"),
        (("A/", "a"), "both a file and a folder"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_no_name_is_used_twice(tmp_path: Path, names: tuple[str, ...], said: str) -> None:
    with pytest.raises(PublishedError, match=said):
        unpacked(packed(tmp_path, *((name, b"x", 0) for name in names)), tmp_path)


def patched(file: str, old: bytes, new: bytes) -> str:
    data = Path(file).read_bytes()
    assert old in data
    Path(file).write_bytes(data.replace(old, new))
    return file


def test_a_bomb_is_refused_by_the_sizes_that_it_names(tmp_path: Path) -> None:
    size, claimed = (4321).to_bytes(4, "little"), (3 * 10**9).to_bytes(4, "little")
    file = patched(packed(tmp_path, ("big", bytes(4321), 0)), size, claimed)
    with pytest.raises(PublishedError, match="larger than 2 GB unpacked"):
        unpacked(file, tmp_path)


def test_a_bomb_that_names_a_smaller_size_writes_no_more_than_that(tmp_path: Path) -> None:
    size, claimed = (5_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little")
    file = patched(packed(tmp_path, ("big", bytes(5_000_000), 0)), size, claimed)
    with pytest.raises(PublishedError, match=r"not a valid \.mcpb bundle"):
        unpacked(file, tmp_path)
    assert list((tmp_path / "into").iterdir()) == []


def test_a_list_of_files_too_long_to_read_is_refused(tmp_path: Path) -> None:
    file = packed(tmp_path)
    data = bytearray(Path(file).read_bytes())
    at = data.rindex(b"PK\5\6") + 12
    data[at : at + 4] = (33 * 1024 * 1024).to_bytes(4, "little")
    Path(file).write_bytes(data)
    with pytest.raises(PublishedError, match="list of files is larger than 32 MB"):
        unpacked(file, tmp_path)


@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04", b"PK\x03\x04" + bytes(100), b"PK\5\6" + bytes(18), b"no zip"]
)
def test_a_file_that_is_no_bundle_is_refused(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "x.mcpb"
    file.write_bytes(data)
    with pytest.raises(PublishedError), open_bundle(str(file)) as bundle:
        bundle.manifest()


def test_a_damaged_file_leaves_nothing_behind(tmp_path: Path) -> None:
    content = os.urandom(5000)
    file = packed(tmp_path, ("first", b"1", 0), ("second", content, 0))
    patched(file, content[1000:1100], bytes(100))
    with pytest.raises(PublishedError, match=r"not a valid \.mcpb bundle"):
        unpacked(file, tmp_path)
    assert list((tmp_path / "into").iterdir()) == []
