"""Files that lie, are damaged, or are made to keep the host busy, and what is said of them."""

import subprocess
import sys
from pathlib import Path

import pytest

from portico.core.config.schema import ComponentEntry
from portico.core.model.errors import TargetError
from portico.library.components.own_process import checked
from portico.library.wasm.binary import NotAComponent, outline
from portico.library.wasm.own_wit import IMPORTED
from tests.library.wasm.building import OWN_WIT
from tests.library.wasm.hosting import home, hosted, own_guest
from tests.library.wasm.wat_guests import exporting, importing, written
from tests.serve.components import CALC, Workshop
from tests.serve.gateway import Pipes

HEAD = b"\0asm\x0d\0\1\0"
OWN = "portico:mcp@0.1.0"


def portico(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["env", f"PORTICO_HOME={home(folder)}", sys.executable, "-m", "portico", *words],
        cwd=folder,
        input="",
        capture_output=True,
        text=True,
        check=False,
    )


def number(value: int) -> bytes:
    """Return a number as the binary format has it."""
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + number(high) if high else bytes([low])


def section(kind: int, body: bytes) -> bytes:
    return bytes([kind]) + number(len(body)) + body


def names(count: int) -> bytes:
    """Return a section that exports functions, all of one name."""
    return section(11, number(count) + b"\0\1a\1\0\0" * count)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (HEAD + b"\0\0" * 50_001, "more than 50,000 sections"),
        (HEAD + names(10_001), "more than 10,000 imports or exports"),
        (HEAD + names(1) * 10_001, "more than 10,000 imports or exports"),
        (HEAD + b"\0\xff\xff\xff\xff\xff", "is damaged"),
        (HEAD + b"\x0b\x7f", "is truncated"),
    ],
)
def test_a_file_that_would_keep_the_gateway_busy_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(NotAComponent, match=why):
        outline(data)


def test_a_file_of_many_names_is_read() -> None:
    assert len(outline(HEAD + names(10_000)).exports) == 10_000


def test_a_damaged_component_stops_only_itself(tmp_path: Path) -> None:
    cut = tmp_path / "cut.wasm"
    cut.write_bytes(own_guest().read_bytes()[:300_000])
    workshop = Workshop(tmp_path)
    workshop.file("plain.py", CALC)
    config = workshop.write({"cut": {"path": "cut.wasm"}, "plain": {"path": "plain.py"}})
    with Pipes(home(tmp_path), config) as gateway:
        gateway.initialize()
        assert gateway.said("plain__add", a=1, b=2) == "3"
    problem = checked(ComponentEntry(name="cut", path=str(cut))).problem
    assert problem == f"{cut}: the file is truncated; copy or build it again"


@pytest.mark.parametrize(
    ("interface", "known"),
    [
        ("portico:mcp/http@0.2.0", OWN),
        ("portico:mcp/http", OWN),
        ("portico:mcp/handler@1.0.0", OWN),
        ("wasi:io/poll@0.3.0", "WASI 0.2"),
    ],
)
async def test_an_import_of_an_unknown_version_is_refused_with_both_versions(
    tmp_path: Path, interface: str, known: str
) -> None:
    with pytest.raises(TargetError) as caught:
        async with hosted(written(importing(interface), tmp_path), tmp_path) as client:
            await client.list_tools()
    assert f"imports {interface}, but Portico knows {known}" in str(caught.value)


@pytest.mark.parametrize(
    "interface", ["portico:mcp/nothing@0.1.0", "wasi:cli/command@0.2.0", "wasi:nn/tensor@0.2.0"]
)
async def test_an_import_that_no_version_has_is_named(tmp_path: Path, interface: str) -> None:
    with pytest.raises(TargetError) as caught:
        async with hosted(written(importing(interface), tmp_path), tmp_path) as client:
            await client.list_tools()
    assert f"imports {interface}, which Portico does not have" in str(caught.value)


def test_all_interfaces_of_the_wit_may_be_imported() -> None:
    text = (OWN_WIT / "mcp.wit").read_text()
    world = text.partition("world host {")[2].partition("}")[0]
    imported = {line.split()[1].rstrip(";") for line in world.strip().splitlines()}
    assert {f"portico:mcp/{name}" for name in imported | {"handler"}} == IMPORTED


@pytest.mark.parametrize("version", ["9.9.9", "0.1.0-beta", "0.2.0"])
def test_middleware_of_an_unknown_version_is_refused_with_both_versions(
    tmp_path: Path, version: str
) -> None:
    guard = written(exporting(f"portico:mcp/handler@{version}", "handle"), tmp_path, "guard")
    (tmp_path / "plain.py").write_text(CALC)
    config = tmp_path / "portico.toml"
    config.write_text('[gateway]\nlinks = ["guard.wasm"]\n[components.plain]\npath = "plain.py"\n')
    why = f"exports portico:mcp/handler@{version}, but Portico knows {OWN}; build the component"
    for words in (
        ("run", str(guard), "plain.py"),
        ("serve", "--alone", "--config", str(config)),
        ("inspect", str(guard)),
        ("inspect", "--config", str(config)),
    ):
        done = portico(tmp_path, *words)
        assert done.returncode != 0, words
        assert why in done.stdout + done.stderr, words


def test_a_handler_of_the_known_version_is_shown_as_middleware(tmp_path: Path) -> None:
    written(exporting("portico:mcp/handler@0.1.0", "handle"), tmp_path, "guard")
    (tmp_path / "portico.toml").write_text('[gateway]\nlinks = ["guard.wasm"]\n')
    for words in (("guard.wasm",), ("--config", "portico.toml")):
        shown = portico(tmp_path, "inspect", *words)
        assert shown.returncode == 0, shown.stderr
        assert "guard: sandboxed middleware\n" in shown.stdout
        assert "a worker of its own, sandboxed" in shown.stdout


async def test_an_interface_of_other_types_is_refused_in_words(tmp_path: Path) -> None:
    lying = exporting("portico:mcp/tools-capability@0.1.0", "list-tools", "call-tool")
    with pytest.raises(TargetError) as caught:
        async with hosted(written(lying, tmp_path), tmp_path) as client:
            await client.list_tools()
    what = "list-tools of portico:mcp/tools-capability@0.1.0 has other types than the interface"
    assert what in str(caught.value)
