"""Bundles that mislead: tricks of zip files, of names, of kinds and of terminals."""

import struct
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from portico.core.model.errors import PorticoError
from portico.library.bundles.approvals import Approvals
from portico.library.bundles.bundle_reader import BundleReader, open_bundle_file
from portico.library.bundles.bundle_writer import bundle_bytes, described_files
from portico.library.bundles.contents import (
    MANIFEST,
    BundleContents,
    BundledComponent,
    BundleError,
    encoded,
    own_wishes,
)
from portico.library.bundles.layout import StoredFile, checksum, directory, local_header
from portico.library.components.bundled import BundleOpener
from portico.library.components.classify import classify
from portico.library.components.resolver import RequestedComponent
from tests.gateway.observed import portico

WORDS = b'{"tools": []}'
FILES = {"parts/0/one.json": WORDS, "parts/0/two.json": WORDS}
ONE = BundledComponent(
    name="one", kind="definitions", interface="definitions@1", file="parts/0/one.json"
)
END = struct.Struct("<4s4H2LH")


def contents(*components: BundledComponent, files: dict[str, bytes] = FILES) -> BundleContents:
    found = described_files(files)
    made = BundleContents(
        program="portico", format=1, name="", components=components or (ONE,), files=found
    )
    return replace(made, wishes=tuple(own_wishes(made)))


def good() -> bytes:
    return bundle_bytes(contents(), FILES)


def careless(files: list[tuple[str, bytes]]) -> bytes:
    """Return a bundle with these files, whatever their names."""
    listed = tuple(described_files({path: data})[0] for path, data in files)
    parts, stored = [], []
    for name, data in [(MANIFEST, encoded(replace(contents(), files=listed))), *files]:
        one = StoredFile(name, len(data), checksum(data))
        stored.append(one)
        parts += [local_header(one), data]
    return b"".join([*parts, directory(stored)])


def refusal(tmp_path: Path, data: bytes) -> str:
    path = tmp_path / "bad.portico"
    path.write_bytes(data)
    with pytest.raises(BundleError) as error, open_bundle_file(str(path)) as bundle:
        bundle.verify()
    return str(error.value)


def central(data: bytes) -> int:
    """Return where the list at the end begins."""
    return int(END.unpack(data[-END.size :])[6])


def with_end(data: bytes, added: int, comment: bytes = b"") -> bytes:
    """Return a zip file whose list at the end begins later, and has a comment."""
    fields = list(END.unpack(data[-END.size :]))
    fields[6] += added
    fields[7] = len(comment)
    return data[: -END.size] + END.pack(*fields) + comment


def commented(data: bytes) -> bytes:
    return with_end(data, 0, b"a comment with code")


def prepended(data: bytes) -> bytes:
    return with_end(b"#!/bin/sh\n" + data, 0)


def between(data: bytes) -> bytes:
    at = central(data)
    return with_end(data[:at] + b"hidden data" + data[at:], len(b"hidden data"))


def more_listed(data: bytes) -> bytes:
    """The list at the end names a file that the manifest does not."""
    fields = list(END.unpack(data[-END.size :]))
    entry = data[central(data) : data.index(b"PK\1\2", central(data) + 4)]
    fields[3] = fields[4] = fields[3] + 1
    fields[5] += len(entry)
    return data[: -END.size] + entry + END.pack(*fields)


def zip64(data: bytes) -> bytes:
    fields = END.unpack(data[-END.size :])
    at = len(data) - END.size
    record = struct.pack(
        "<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, fields[3], fields[4], *fields[5:7]
    )
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, at, 1)
    return data[:at] + record + locator + END.pack(*fields)


def patched(offset: int, value: bytes, *, in_list: bool = False) -> Callable[[bytes], bytes]:
    """Change a field of the second file: before its bytes, or in the list at the end."""

    def change(data: bytes) -> bytes:
        magic = b"PK\1\2" if in_list else b"PK\3\4"
        at = data.index(magic, data.index(magic, central(data) if in_list else 0) + 4) + offset
        return data[:at] + value + data[at + len(value) :]

    return change


TRICKS: dict[str, Callable[[bytes], bytes]] = {
    "a comment": commented,
    "bytes before": prepended,
    "bytes between": between,
    "a file in the list alone": more_listed,
    "zip64": zip64,
    "the flag of encryption": patched(6, b"\x01\x08"),
    "sizes after the data": patched(6, b"\x08\x08"),
    "compressed": patched(8, b"\x08\x00"),
    "an extra field": patched(28, b"\x04\x00"),
    "another name in the list": patched(46, b"parts/0/2ne.json", in_list=True),
    "another place in the list": patched(42, b"\x00\x00\x00\x00", in_list=True),
    "a link in the list": patched(38, struct.pack("<L", 0o120777 << 16), in_list=True),
    "a comment in the list": patched(32, b"\x05\x00", in_list=True),
    "another disk": patched(34, b"\x01\x00", in_list=True),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_of_zip_files_is_refused(tmp_path: Path, trick: str) -> None:
    data = TRICKS[trick](good())
    assert data != good()
    why = refusal(tmp_path, data)
    assert "it was " in why or "not a bundle" in why


@pytest.mark.parametrize("trick", ["a comment", "bytes before", "a file in the list alone"])
def test_other_programs_would_open_them(tmp_path: Path, trick: str) -> None:
    path = tmp_path / "tricky.zip"
    path.write_bytes(TRICKS[trick](good()))
    with zipfile.ZipFile(path) as archive:
        assert archive.read("parts/0/one.json") == WORDS


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("parts/0/caf\u00e9.py", "parts/0/cafe\u0301.py"),
        ("parts/0/stra\u00dfe.py", "parts/0/STRASSE.py"),
        ("parts/0/one.py", "parts/0/ONE.PY"),
    ],
)
def test_names_that_are_one_file_somewhere_are_refused(
    tmp_path: Path, first: str, second: str
) -> None:
    files = [*FILES.items(), (first, b"good"), (second, b"bad")]
    assert "it has two files of the name" in refusal(tmp_path, careless(files))


@pytest.mark.parametrize(
    "name",
    [
        "parts/0/" + "x" * 256,
        "parts/0/" + "\u00e9" * 128,
        "parts/" + "deep/" * 200 + "x.py",
        "parts/0/one.py.",
        "parts/0/one.py ",
        "parts/0 /one.py",
    ],
)
def test_names_that_no_system_keeps_are_refused(tmp_path: Path, name: str) -> None:
    files = [*FILES.items(), (name, b"x")]
    assert "is not a path inside of it" in refusal(tmp_path, careless(files))


async def opened(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open a bundle as `run` does."""
    monkeypatch.setenv("PORTICO_HOME", str(tmp_path / "home"))
    path = tmp_path / "one.portico"
    path.write_bytes(data)

    def approve(bundle: BundleReader, path: str, origin: str) -> None:
        assert not bundle.contents.wishes, "it would be asked for"

    entry = RequestedComponent(argument=str(path), component=classify(str(path)))
    await BundleOpener(approve).expand([entry])


PYTHON = b"#!/usr/bin/env python3\nfrom portico import Server\nserver = Server('evil')\n"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("wasm", PYTHON),
        ("wasm", b"#!/bin/sh\ntrue\n"),
        ("wasm", WORDS),
        ("wasm", good()),
        ("bundle", PYTHON),
        ("bundle", WORDS),
    ],
)
async def test_code_cannot_pass_as_a_kind_that_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, code: bytes
) -> None:
    interface = "component@1" if kind == "wasm" else ""
    file = "parts/0/evil.py"
    one = BundledComponent(name="evil", kind=kind, interface=interface, file=file)  # type: ignore[arg-type]
    files = {file: code}
    data = bundle_bytes(contents(one, files=files), files)
    why = "not a WebAssembly component" if kind == "wasm" else "not a bundle|other program"
    with pytest.raises(PorticoError, match=why):
        await opened(tmp_path, data, monkeypatch)


@pytest.mark.parametrize(
    "one",
    [
        BundledComponent(name="c", kind="command", argv=("sh", "-c", "a\0b")),
        BundledComponent(name="c", kind="url", url="http://example.com/\r\nX-Evil: 1"),
        BundledComponent(name="c", kind="url", url="http://exa mple.com/"),
        BundledComponent(name="c", kind="command", argv=("true",), variables=("",)),
        BundledComponent(name="c", kind="command", argv=("true",), variables=("A=B",)),
        BundledComponent(name="c", kind="command", argv=("true",), variables=("A\0",)),
    ],
)
def test_what_cannot_be_started_is_refused(one: BundledComponent) -> None:
    with pytest.raises(BundleError, match="that cannot exist"):
        bundle_bytes(contents(one, files={}), {})


@pytest.mark.parametrize(
    "argv",
    [
        ("{bundle}/parts/1/other.sh",),
        ("sh", "{bundle}/parts/0/run.sh"),
        ("{python}", "{bundle}/parts/0/run.sh", "{bundle}/parts/1/other.sh"),
    ],
)
def test_a_program_starts_the_file_whose_digest_is_approved(argv: tuple[str, ...]) -> None:
    files = {"parts/0/run.sh": b"#!/bin/sh\n", "parts/1/other.sh": b"#!/bin/sh\n"}
    one = BundledComponent(name="c", kind="program", file="parts/0/run.sh", argv=argv)
    with pytest.raises(BundleError, match="'c' does not start its own file"):
        bundle_bytes(contents(one, files=files), files)


def test_changed_code_is_asked_for_again_wherever_it_is(tmp_path: Path) -> None:
    names = ["parts/0/server.py", "parts/0/other.py", "parts/0/deep/er.py"]
    one = BundledComponent(name="c", kind="python", interface="python@1", file=names[0])
    approvals, path = Approvals(str(tmp_path / "state")), tmp_path / "one.portico"

    def missing(files: dict[str, bytes], *, accept: bool = False) -> int:
        path.write_bytes(bundle_bytes(contents(one, files=files), files))
        with open_bundle_file(str(path)) as bundle:
            found = approvals.missing(bundle, "origin")
            if accept:
                approvals.accept(bundle, "origin")
        return len(found)

    files = dict.fromkeys(names, b"import other\n")
    assert missing(files, accept=True) == 1
    assert missing(files) == 0
    for name in names:
        assert missing({**files, name: b"import os\n"}) == 1
    for name in ("parts/other.py", "parts/0.py"):
        with pytest.raises(BundleError, match="is not a path inside of it"):
            missing({**files, name: b""})


def test_a_terminal_never_sees_its_control_characters(tmp_path: Path) -> None:
    clear = "\x1b[2J\x1b]0;title\a"
    one = BundledComponent(
        name="c",
        kind="command",
        argv=("sh", "-c", f"{clear}true"),
        overrides=clear,
        requires=(clear,),
        variables=(f"X{clear}",),
    )
    made = replace(contents(one, files={}), name=clear, shadows=(clear,))
    path = tmp_path / "one.portico"
    path.write_bytes(bundle_bytes(made, {}))
    shown = []
    for words in (["inspect", path], ["run", path], ["approve", "-y", path], ["run", path]):
        ran: subprocess.CompletedProcess[str] = portico(tmp_path, *map(str, words))
        shown.append(ran.stdout + ran.stderr)
        assert ran.returncode in (0, 1)
    assert "sh -c '\\x1b[2J" in shown[0]
    assert all("\x1b" not in text and "\a" not in text for text in shown)
    assert all("Traceback" not in text for text in shown)


def test_thousands_of_components_share_the_digest_of_their_folder(tmp_path: Path) -> None:
    files = {f"parts/0/m{number}.py": b"" for number in range(3_000)}
    some = tuple(
        BundledComponent(name=f"m{number}", kind="python", interface="python@1", file=path)
        for number, path in enumerate(files)
    )
    path = tmp_path / "many.portico"
    path.write_bytes(bundle_bytes(contents(*some, files=files), files))
    with open_bundle_file(str(path)) as bundle:
        bundle.verify()
        assert len(bundle.contents.wishes) == 3_000
        assert len({one.value for one in bundle.contents.wishes}) == 1


def holding(inner: bytes, times: int) -> bytes:
    """Return a bundle in which many components share one inner bundle."""
    files = {"parts/0/inner.portico": inner}
    some = tuple(
        BundledComponent(name=f"c{number}", kind="bundle", file="parts/0/inner.portico")
        for number in range(times)
    )
    return bundle_bytes(contents(*some, files=files), files)


def test_a_small_bundle_of_many_bundles_is_refused_at_once(tmp_path: Path) -> None:
    data = good()
    for _ in range(8):  # 10 to the power of 8, in a few kilobytes
        data = holding(data, 10)
    assert len(data) < 20_000
    assert "it holds more than 1,000 bundles; compose it flatter" in refusal(tmp_path, data)
    path = tmp_path / "fine.portico"
    path.write_bytes(holding(holding(good(), 10), 10))
    with open_bundle_file(str(path)) as bundle:
        bundle.verify()
        assert bundle.count_inner() == 110
