"""WebAssembly components in bundles: their interfaces, and the grants."""

import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from portico.bundles.bundle_writer import bundle_bytes, write_bundle
from portico.bundles.contents import BundleContents, BundledComponent, own_wishes
from tests.gateway.observed import portico
from tests.wasm.building import wat

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


def test_a_bundle_that_wants_grants_is_refused_before_it_runs(folder: Path) -> None:
    data = (folder / "sums.wasm").read_bytes()
    one = BundledComponent(
        name="sums",
        kind="wasm",
        interface="component@1",
        file="parts/0/sums.wasm",
        grants=("http=example.com",),
    )
    made = BundleContents(program="portico", format=1, name="", components=(one,))
    files = {"parts/0/sums.wasm": data}
    made = replace(made, wishes=tuple(own_wishes(made)))
    write_bundle(str(folder / "one.portico"), bundle_bytes(made, files))
    said = done(folder, "run", folder / "one.portico", code=1)
    assert "sums: gets http=example.com" in said
    done(folder, "approve", "-y", folder / "one.portico")
    said = done(folder, "run", folder / "one.portico", code=1)
    assert "sums requires http=example.com: this Portico gives no grants to bundles" in said


def test_an_interface_of_another_version_is_refused_with_both(folder: Path) -> None:
    (folder / "newer.wasm").write_bytes(wat(NEWER))
    said = done(folder, "compose", folder / "newer.wasm", "-o", folder / "x.portico", code=1)
    assert "made for portico:mcp@9.9.9, and this Portico knows portico:mcp@0.1.0" in said
