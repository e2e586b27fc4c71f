"""WebAssembly components in bundles: their interfaces, and the grants."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from portico.library.bundles.bundle_writer import bundle_bytes
from portico.library.bundles.contents import (
    BundleContents,
    BundledComponent,
    BundleError,
    own_wishes,
)
from portico.library.bundles.interfaces import newest
from tests.gateway.observed import portico
from tests.library.wasm import building
from tests.library.wasm.building import wat
from tests.library.wasm.hosting import home, trying_guest
from tests.support.running import WAIT_S

INTERFACE = {"wasm": "component", "definitions": "definitions"}

ADD = """(component
  (core module $m (func (export "add") (param i32 i32) (result i32)
    local.get 0 local.get 1 i32.add))
  (core instance $i (instantiate $m))
  (func (export "add") (param "a" s32) (param "b" s32) (result s32)
    (canon lift (core func $i "add"))))"""
NEWER = """(component
  (instance $i)
  (export "portico:mcp/tools-capability@9.9.9" (instance $i)))"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    (made / "sums.wasm").write_bytes(wat(ADD))
    (made / "sums.wasm.toml").write_text('[functions.add]\ndescription = "Adds."\n')
    return made


def done(folder: Path, *words: str | Path, code: int = 0) -> str:
    ran = portico(folder.parent, *map(str, words))
    assert ran.returncode == code, ran.stderr + ran.stdout
    return ran.stdout + ran.stderr


def call(folder: Path, bundle: Path) -> str:
    ran = portico(folder.parent, "call", str(bundle), "add", '{"a": 2, "b": 3}')
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def elsewhere(folder: Path, bundle: Path) -> Path:
    """A machine that has approved nothing, with this bundle."""
    away = folder.parent / "elsewhere" / "work"
    away.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(bundle, away))


def test_a_sandboxed_component_without_grants_needs_no_approval(folder: Path) -> None:
    bundle = folder / "one.portico"
    done(folder, "compose", folder / "sums.wasm", "-o", bundle)
    found = json.loads(done(folder, "inspect", bundle, "--json", "--verify"))
    assert found["components"][0]["interface"] == "component@1"
    assert [one["path"] for one in found["files"]] == [
        "parts/0/sums.wasm",
        "parts/0/sums.wasm.toml",
    ]
    away = elsewhere(folder, bundle)
    assert call(away.parent, away) == "5"


def test_middleware_of_wasmcp_is_middleware_in_a_bundle(folder: Path) -> None:
    early = building.javascript("early.js", building.WIT / "beta", "middleware")
    shutil.copy(early, folder / "guard.wasm")
    bundle, guarded = folder / "guard.portico", folder / "both.portico"
    done(folder, "compose", folder / "guard.wasm", "-o", bundle)
    done(folder, "compose", bundle, folder / "sums.wasm", "-o", guarded)
    assert call(folder, guarded) == "5"


def wanting(folder: Path, *grants: str, name: str = "one") -> Path:
    """Compose the component that tries everything, with wanted grants."""
    guest, bundle = folder / "trying.wasm", folder / f"{name}.portico"
    if not guest.exists():
        shutil.copy(trying_guest(), guest)
        for machine in (folder.parent, folder.parent / "elsewhere"):
            home(machine)  # to compile it takes a quarter of a minute, so both have its code
    options = [f"--grant=trying:{grant}" for grant in grants]
    done(folder, "compose", guest, *options, "--force", "-o", bundle)
    return bundle


def tried(bundle: Path, tool: str, **arguments: str) -> str:
    """Call a tool of a bundle, without a terminal."""
    words = ("call", str(bundle), tool, json.dumps(arguments), "--timeout", str(4 * WAIT_S))
    ran = portico(bundle.parent.parent, *words)
    return ran.stdout + ran.stderr


@pytest.mark.slow
def test_wanted_grants_are_given_once_they_are_approved(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = folder.parent / "data"
    data.mkdir()
    (data / "note.txt").write_text("a note")
    monkeypatch.setenv("NOTES", str(data))
    monkeypatch.setenv("KEY", "value-of-the-key")
    grants = ["files=${NOTES}:/notes:ro", "config=unit=km", "secrets=key=${KEY}"]
    made = wanting(folder, *grants)
    assert b"value-of-the-key" not in made.read_bytes()
    assert tried(made, "config", name="unit").strip() == "km", "its composer has approved it"
    away = elsewhere(folder, made)
    refused = tried(away, "config", name="unit")
    assert "it needs rights that are not approved here" in refused
    for grant in grants:
        assert f"trying: gets {grant}" in refused
    assert "trying: gets config=unit=km" in done(away.parent, "inspect", away)
    done(away.parent, "approve", "-y", away)
    assert tried(away, "config", name="unit").strip() == "km"
    assert tried(away, "secret", name="key").strip() == "value-of-the-key"
    assert tried(away, "read", path="/notes/note.txt").strip() == "a note"
    assert "PermissionError" in tried(away, "write", path="/notes/new.txt", text="x")
    assert not (data / "new.txt").exists()
    monkeypatch.delenv("KEY")
    said = tried(away, "secret", name="key")
    assert "the required grant trying:secrets: KEY is not set; set it" in said


@pytest.mark.slow
def test_grants_that_changed_are_asked_for_again(folder: Path) -> None:
    away = elsewhere(folder, wanting(folder, "config=unit=km"))
    done(away.parent, "approve", "-y", away)
    elsewhere(folder, wanting(folder, "config=unit=km", "http=example.com"))
    said = done(away.parent, "run", away, code=1)
    assert "trying: gets http=example.com" in said
    assert "unit" not in said, "it is approved already"
    elsewhere(folder, wanting(folder, "config=unit=mile"))
    assert "trying: gets config=unit=mile" in done(away.parent, "run", away, code=1)
    elsewhere(folder, wanting(folder))
    assert "the config 'unit' is not granted" in tried(away, "config", name="unit")


def test_other_code_does_not_get_what_was_granted(folder: Path) -> None:
    (folder / "words.json").write_text("[]")
    inner, outer = folder / "inner.portico", folder / "outer.portico"

    def compose() -> Path:
        grant = "--grant=sums:tools=a*"
        done(folder, "compose", folder / "sums.wasm", grant, "--force", "-o", inner)
        done(folder, "compose", inner, folder / "words.json", "--force", "-o", outer)
        return elsewhere(folder, outer)

    away = compose()
    done(away.parent, "approve", "-y", away)
    assert call(away.parent, away) == "5"
    (folder / "words.json").write_text('{"tools": []}')
    assert "all rights are approved already" in done(away.parent, "approve", compose())
    (folder / "sums.wasm").write_bytes(wat(ADD.replace("i32.add", "i32.sub")))
    said = done(away.parent, "run", compose(), code=1)
    assert "it has changed since it was approved, and needs rights" in said
    assert "inner/sums: gets tools=a*" in said
    said = done(away.parent, "approve", "-y", away)
    assert f"{away} has changed since it was approved, and needs:" in said
    assert call(away.parent, away) == "-1"


@pytest.mark.slow
def test_an_inner_bundle_gets_its_grants_in_its_own_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY", "value-of-the-key")
    wanting(folder, "config=unit=km", "secrets=key=${KEY}", name="inner")
    (folder / "plain.json").write_text("[]")
    made = folder / "one.portico"
    done(folder, "compose", folder / "inner.portico", folder / "plain.json", "-o", made)
    away = elsewhere(folder, made)
    refused = tried(away, "config", name="unit")
    for grant in ("config=unit=km", "secrets=key=${KEY}"):
        assert f"inner/trying: gets {grant}" in refused
    done(away.parent, "approve", "-y", away)
    assert tried(away, "config", name="unit").strip() == "km"
    assert tried(away, "secret", name="key").strip() == "value-of-the-key"
    assert "is not granted" in tried(away, "config", name="other")


@pytest.mark.parametrize("beside", [(), ("plain.json",)], ids=["alone", "in its own process"])
def test_grants_of_an_inner_bundle_are_asked_for_by_path(
    folder: Path, beside: tuple[str, ...]
) -> None:
    inner, outer = folder / "inner.portico", folder / "outer.portico"
    (folder / "plain.json").write_text("[]")
    for pattern, shows in (("a*", True), ("b*", False)):
        grant = f"--grant=sums:tools={pattern}"
        done(folder, "compose", folder / "sums.wasm", grant, "--force", "-o", inner)
        done(folder, "compose", inner, *(folder / one for one in beside), "--force", "-o", outer)
        away = elsewhere(folder, outer)
        said = done(away.parent, "run", away, code=1)
        assert f"inner/sums: gets tools={pattern}" in said
        done(away.parent, "approve", "-y", away)
        called = portico(away.parent.parent, "call", str(away), "add", '{"a": 2, "b": 3}')
        assert (called.stdout.strip() == "5") == shows, called.stderr
        assert ("no tool" in called.stderr) != shows
    said = done(
        folder, "compose", inner, "--grant=inner:http=any", "-o", folder / "x.portico", code=1
    )
    assert "inner is a bundle, which names its own grants; compose it again with them" in said


@pytest.mark.parametrize(
    ("grant", "why"),
    [
        ("sums:secrets=key=s3cr3t", "sums:secrets=key: its value would be in the bundle; write ${"),
        ("sums:secrets=key=${KEY:-s3cr3t}", "its value would be in the bundle"),
        ("sums:env=API_KEY=s3cr3t", "sums:env=API_KEY: its value would be in the bundle"),
        ("sums:secrets=key", "has no value"),
        ("sums:files=data", "depends on the folder in which it is run; write the whole path"),
        ("sums:filez=/data", "filez: not a grant; did you mean files"),
        ("sums:http=https://example.com", "not a host"),
        ("sums:memory=1TB", "not within its limits"),
        ("sum:http=any", "there is no component 'sum'; did you mean sums"),
        ("sums", "write NAME:KEY=VALUE"),
        ("plain:http=any", "plain is not sandboxed, so nothing can be granted to it"),
    ],
)
def test_a_grant_that_cannot_be_in_a_bundle_is_refused(folder: Path, grant: str, why: str) -> None:
    (folder / "plain.json").write_text('[{"name": "hello"}]')
    words = (folder / "sums.wasm", folder / "plain.json", "--grant", grant)
    ran = portico(folder.parent, "compose", *map(str, words), "-o", str(folder / "x.portico"))
    assert ran.returncode != 0
    assert why in ran.stderr
    assert "s3cr3t" not in ran.stderr
    assert not (folder / "x.portico").exists()


@pytest.mark.parametrize(
    ("kind", "grant", "why"),
    [
        ("wasm", "files=.", "depends on the folder in which it is run"),
        ("wasm", "everything=yes", "everything: not a grant"),
        ("definitions", "http=any", "'sums' requires grants, and is not sandboxed"),
    ],
)
def test_a_bundle_that_wants_a_wrong_grant_is_refused(kind: Any, grant: str, why: str) -> None:
    files, version = {"parts/0/sums": b"x"}, newest(INTERFACE[kind])
    one = BundledComponent(
        name="sums", kind=kind, interface=version, file="parts/0/sums", grants=(grant,)
    )
    made = BundleContents(program="portico", format=1, name="", components=(one,))
    with pytest.raises(BundleError, match=why):
        bundle_bytes(replace(made, wishes=tuple(own_wishes(made))), files)


def test_an_interface_of_another_version_is_refused_with_both(folder: Path) -> None:
    (folder / "newer.wasm").write_bytes(wat(NEWER))
    said = done(folder, "compose", folder / "newer.wasm", "-o", folder / "x.portico", code=1)
    assert "made for portico:mcp@9.9.9, and this Portico knows portico:mcp@0.1.0" in said
