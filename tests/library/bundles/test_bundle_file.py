"""The file of a bundle: its bytes, and every way to make a wrong one."""

import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from portico.library.bundles.approvals import Approvals, wish_lines
from portico.library.bundles.bundle_reader import BundleReader, open_bundle_file, unpacked
from portico.library.bundles.bundle_writer import bundle_bytes, described_files, write_bundle
from portico.library.bundles.contents import (
    FORMAT,
    MANIFEST,
    BundleContents,
    BundledComponent,
    BundledFile,
    BundleError,
    Wish,
    encoded,
    inner_wishes,
    own_wishes,
)
from portico.library.bundles.layout import StoredFile, checksum, directory, local_header

CALC = b"from portico import Server\nserver = Server('calc')\n"
FILES = {"parts/0/calc.py": CALC, "parts/0/words.json": b'[{"name": "hello"}]'}
SAMPLE = Path(__file__).parent / "format-1.portico"
WITH_WISHES = SAMPLE.with_name("format-1-with-wishes.portico")
"""Names the wishes of its own components too, as the first bundles did."""


def contents(
    files: Mapping[str, bytes] = FILES, components: tuple[BundledComponent, ...] = (), **more: Any
) -> BundleContents:
    parts = components or (
        BundledComponent(name="calc", kind="python", interface="python@1", file="parts/0/calc.py"),
        BundledComponent(
            name="words", kind="definitions", interface="definitions@1", file="parts/0/words.json"
        ),
    )
    made = BundleContents(
        program="portico",
        format=FORMAT,
        name="sample",
        components=parts,
        files=described_files(files),
        **more,
    )
    return replace(made, wishes=(*own_wishes(made), *made.wishes))


def raw(manifest: bytes, files: list[tuple[str, bytes]]) -> bytes:
    """Return a bundle that is written as carelessly as this manifest."""
    parts, stored = [], []
    for name, data in [(MANIFEST, manifest), *files]:
        one = StoredFile(name, len(data), checksum(data))
        stored.append(one)
        parts += [local_header(one), data]
    return b"".join([*parts, directory(stored)])


def listed(files: list[tuple[str, bytes]], **more: Any) -> bytes:
    """Return a manifest that lists these files, whatever their names."""
    found = [described_files({path: data})[0] for path, data in files]
    return encoded(replace(contents(), files=tuple(found), **more))


def verify(path: Path) -> BundleContents:
    with open_bundle_file(str(path)) as bundle:
        bundle.verify()
        return bundle.contents


def refusal(tmp_path: Path, data: bytes) -> str:
    """Return why a bundle of these bytes is refused, also when it is unpacked: with no rest."""
    path, into = tmp_path / "bad.portico", tmp_path / "cache"
    path.write_bytes(data)
    with pytest.raises(BundleError), open_bundle_file(str(path)) as bundle:
        unpacked(bundle, str(into))
    assert not into.exists() or not os.listdir(into)
    with pytest.raises(BundleError) as error:
        verify(path)
    assert str(path) in str(error.value)
    return str(error.value)


def test_a_bundle_is_a_zip_file_that_other_programs_read(tmp_path: Path) -> None:
    path = tmp_path / "one.portico"
    write_bundle(str(path), bundle_bytes(contents(), FILES))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [MANIFEST, *FILES]
        assert archive.read("parts/0/calc.py") == CALC
    assert verify(path).name == "sample"


def test_files_come_out_as_they_went_in(tmp_path: Path) -> None:
    path = tmp_path / "one.portico"
    digest = write_bundle(str(path), bundle_bytes(contents(), FILES))
    with open_bundle_file(str(path)) as bundle:
        place = unpacked(bundle, str(tmp_path / "cache"))
        (Path(place) / "parts/0/calc.py").write_bytes(b"damaged")
        assert unpacked(bundle, str(tmp_path / "cache")) == place
        assert bundle.digest == digest
    assert {one: (Path(place) / one).read_bytes() for one in FILES} == FILES
    assert [one.name for one in (tmp_path / "cache").iterdir()] == [digest.partition(":")[2]]


class Overtaken(BundleReader):
    """A bundle that another process unpacks while this one does."""

    overtake: Callable[[], object]

    def verify(self, use: Any = None) -> None:
        super().verify(use)
        self.overtake()


def test_files_that_another_process_unpacked_meanwhile_are_left_alone(tmp_path: Path) -> None:
    path, folder = tmp_path / "one.portico", str(tmp_path / "cache")
    write_bundle(str(path), bundle_bytes(contents(), FILES))
    with path.open("rb") as file, open_bundle_file(str(path)) as other:
        bundle = Overtaken(file.fileno(), 0, path.stat().st_size)
        used: list[int] = []
        bundle.overtake = lambda: used.append(Path(unpacked(other, folder)).stat().st_ino)
        assert [Path(unpacked(bundle, folder)).stat().st_ino] == used
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_bundle_of_the_first_format_opens() -> None:
    found = verify(SAMPLE)
    assert (found.format, found.name) == (1, "sample")
    assert SAMPLE.read_bytes() == bundle_bytes(contents(), FILES)
    assert verify(WITH_WISHES) == found


def test_a_newer_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    data = msgspec.json.decode(encoded(contents()))
    newer = msgspec.json.encode({**data, "format": 7, "unheard_of": [1]})
    why = refusal(tmp_path, raw(newer, list(FILES.items())))
    assert f"its format is 7, and this Portico knows up to {FORMAT}; update Portico" in why


@pytest.mark.parametrize(
    "name",
    [
        "../out.py",
        "parts/../../out.py",
        "/etc/passwd",
        "parts//x.py",
        "parts/./x.py",
        "parts/c:x.py",
        "parts\\..\\x.py",
        "parts/0/__pycache__/calc.cpython-311.pyc",
        "outside.py",
        "parts/calc.py",
        "parts/new\nline.py",
        "parts/" + "x" * 600,
    ],
)
def test_a_path_that_leads_outside_is_refused(tmp_path: Path, name: str) -> None:
    files = [*FILES.items(), (name, b"x")]
    assert "is not a path inside of it" in refusal(tmp_path, raw(listed(files), files))


@pytest.mark.parametrize("second", ["parts/0/calc.py", "parts/0/CALC.py"])
def test_two_files_of_one_name_are_refused(tmp_path: Path, second: str) -> None:
    files = [*FILES.items(), (second, b"other")]
    assert "two files of the name" in refusal(tmp_path, raw(listed(files), files))


def test_a_file_that_is_a_folder_too_is_refused(tmp_path: Path) -> None:
    files = [*FILES.items(), ("parts/0/calc.py/x.py", b"other")]
    assert "both a file and a folder" in refusal(tmp_path, raw(listed(files), files))


def _as_link(mode: int) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(zipfile.ZipInfo(MANIFEST), encoded(contents()))
            for name, data in FILES.items():
                info = zipfile.ZipInfo(name)
                info.external_attr = mode << 16
                archive.writestr(info, data)

    return make


def _as_bomb(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        info = zipfile.ZipInfo(MANIFEST)
        archive.writestr(info, encoded(contents()))
        archive.writestr("parts/0/calc.py", bytes(50_000_000))


@pytest.mark.parametrize(
    "make",
    [_as_link(0o120777), _as_link(0o020666), _as_link(0o010666), _as_bomb],
    ids=["link", "device", "pipe", "bomb"],
)
def test_other_entries_than_plain_files_are_refused(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    made = tmp_path / "made.zip"
    make(made)
    why = refusal(tmp_path, made.read_bytes())
    assert (
        "bytes in place of" in why or "its bytes are not those that its manifest describes" in why
    )


def test_a_manifest_that_promises_more_than_there_is_is_refused(tmp_path: Path) -> None:
    huge = replace(contents(), files=(BundledFile("parts/0/calc.py", 10**12, "0" * 64),))
    assert "larger than 256 MB" in refusal(tmp_path, raw(encoded(huge), list(FILES.items())))
    many = tuple(BundledFile(f"parts/0/{n}", 0, "0" * 64) for n in range(6_000))
    big = encoded(replace(contents(), files=many)) + b" " * 1024 * 1024
    assert "portico.json is larger than" in refusal(tmp_path, raw(big, []))


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    data = bundle_bytes(contents(), FILES)
    path = tmp_path / "changed.portico"
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        with pytest.raises(BundleError):
            verify(path)
    path.write_bytes(data)
    assert verify(path).name == "sample"


def test_every_cut_and_every_addition_is_found(tmp_path: Path) -> None:
    data = bundle_bytes(contents(), FILES)
    path = tmp_path / "cut.portico"
    for wrong in (*(data[:at] for at in range(0, len(data), 7)), data + b"x", b"x" + data):
        path.write_bytes(wrong)
        with pytest.raises(BundleError):
            verify(path)


def test_a_bundle_is_hardly_larger_than_its_files(tmp_path: Path) -> None:
    files = {f"parts/0/tool{number:02}.py": CALC for number in range(12)}
    parts = tuple(
        BundledComponent(name=path[8:14], kind="python", interface="python@1", file=path)
        for path in files
    )
    data = bundle_bytes(contents(files, parts), files)
    assert len(data) <= len(CALC) * len(files) + 4096


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    files = [("parts/0/calc.py", CALC)]
    why = refusal(tmp_path, raw(listed(files), files))
    assert "the file 'parts/0/words.json' of 'words' is missing" in why


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.mkdir(), "it is a folder, not a bundle"),
        (lambda path: path.write_bytes(b""), "it is empty, not a bundle"),
        (lambda path: path.write_bytes(b"\x7fELF" + bytes(100)), "a file of another program"),
        (os.mkfifo, "not a regular file"),
        (lambda path: None, "No such file"),
        (lambda path: path.write_bytes(raw(b'{"program": "other"}', [])), "not a bundle of"),
        (lambda path: path.write_bytes(raw(b"[" * 100_000, [])), "cannot be read"),
        (lambda path: path.write_bytes(raw(b"\xff{}", [])), "cannot be read"),
    ],
)
def test_what_is_not_a_bundle_is_named(
    tmp_path: Path, make: Callable[[Path], object], why: str
) -> None:
    path = tmp_path / "other.portico"
    make(path)
    with pytest.raises(BundleError, match=why):
        verify(path)


@pytest.mark.parametrize(
    ("interface", "why"),
    [
        ("python@9", "made for python@9, and this Portico knows python@1"),
        ("basic@1", "the interface basic@1 is not known; this Portico knows python@1"),
        ("", "is not an interface"),
    ],
)
def test_another_interface_is_refused_with_both_versions(
    tmp_path: Path, interface: str, why: str
) -> None:
    one = BundledComponent(name="calc", kind="python", interface=interface, file="parts/0/calc.py")
    data = raw(encoded(contents(components=(one,))), list(FILES.items()))
    assert why in refusal(tmp_path, data)


def nested(inner: bytes, wishes: list[Wish]) -> tuple[BundleContents, dict[str, bytes]]:
    files = {"parts/0/inner.portico": inner}
    one = BundledComponent(name="inner", kind="bundle", file="parts/0/inner.portico")
    return contents(files, (one,), wishes=tuple(wishes)), files


def test_an_inner_bundle_may_not_need_more_than_its_parent(tmp_path: Path) -> None:
    command = BundledComponent(name="shell", kind="command", argv=("sh", "-c", "true"))
    inner = contents({}, (command,))
    data = bundle_bytes(inner, {})
    wishes = inner_wishes("inner", inner)
    good, files = nested(data, wishes)
    write_bundle(str(tmp_path / "good.portico"), bundle_bytes(good, files))
    assert wish_lines(verify(tmp_path / "good.portico").wishes) == [
        "inner/shell: starts the command: sh -c true"
    ]
    for wrong in ([], [replace(wishes[0], value=("sh", "-c", "other"))]):
        bad, files = nested(data, wrong)
        why = refusal(tmp_path, raw(encoded(bad), list(files.items())))
        assert "'inner/shell' needs command 'sh -c true', which the bundle around it" in why


def test_an_inner_bundle_may_not_want_other_grants_than_its_parent(tmp_path: Path) -> None:
    file = {"parts/0/sums.wasm": b"\0asm"}
    sums = BundledComponent(
        name="sums",
        kind="wasm",
        interface="component@1",
        file="parts/0/sums.wasm",
        grants=("files=/data:ro", "http=example.com"),
    )
    inner = contents(file, (sums,))
    data = bundle_bytes(inner, file)
    wishes = inner_wishes("inner", inner)
    good, files = nested(data, wishes)
    write_bundle(str(tmp_path / "good.portico"), bundle_bytes(good, files))
    assert wish_lines(verify(tmp_path / "good.portico").wishes) == [
        "inner/sums: gets files=/data:ro",
        "inner/sums: gets http=example.com",
    ]
    narrower = replace(wishes[0], value=("files=/data/public:ro",))
    for wrong in (wishes[1:], [narrower, wishes[1]]):
        bad, files = nested(data, wrong)
        why = refusal(tmp_path, raw(encoded(bad), list(files.items())))
        assert "'inner/sums' needs grant 'files=/data:ro', which the bundle around it" in why


def test_bundles_nest_eight_deep(tmp_path: Path) -> None:
    data, found = bundle_bytes(contents(), FILES), contents()
    for _ in range(8):
        found, files = nested(data, inner_wishes("inner", found))
        data = bundle_bytes(found, files)
    path = tmp_path / "deep.portico"
    write_bundle(str(path), data)
    assert verify(path).wishes[0].path == "inner/" * 8 + "calc"
    found, files = nested(data, inner_wishes("inner", found))
    assert "more than 8 deep" in refusal(tmp_path, bundle_bytes(found, files))


def test_a_changed_byte_of_an_inner_bundle_is_found(tmp_path: Path) -> None:
    inner = contents()
    data = bundle_bytes(inner, FILES).replace(b"server = Server", b"server = Sirver")
    outer, files = nested(data, inner_wishes("inner", inner))
    why = refusal(tmp_path, bundle_bytes(outer, files))
    assert "'inner' in it: 'parts/0/calc.py' in it does not have its digest" in why


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "one.portico"
    path.write_text("mine")
    data = bundle_bytes(contents(), FILES)
    with pytest.raises(BundleError, match="exists already; give another name, or --force"):
        write_bundle(str(path), data)
    assert path.read_text() == "mine"
    assert [one.name for one in tmp_path.iterdir()] == ["one.portico"]
    write_bundle(str(path), data, force=True)
    assert verify(path).name == "sample"


def test_approved_wishes_are_remembered_until_they_change(tmp_path: Path) -> None:
    approvals = Approvals(str(tmp_path / "state"))

    def missing(files: Mapping[str, bytes], origin: str, *, accept: bool = False) -> list[str]:
        path = tmp_path / "one.portico"
        write_bundle(str(path), bundle_bytes(contents(files), files), force=True)
        with open_bundle_file(str(path)) as bundle:
            found = approvals.missing(bundle, origin)
            if accept:
                approvals.accept(bundle, origin)
            return wish_lines(found)

    [words] = missing(FILES, "here", accept=True)
    assert "calc: runs Python code without a sandbox: it can read and change your files" in words
    assert missing(FILES, "here") == []
    assert missing(FILES, "moved elsewhere") == [], "the same bytes"
    changed = {**FILES, "parts/0/calc.py": CALC + b"import os\n"}
    assert missing(changed, "here") == [words]
    (tmp_path / "state/approvals").joinpath("x").write_text("")
    for one in (tmp_path / "state/approvals").iterdir():
        one.write_text("{damaged")
    assert missing(FILES, "here") == [words]
