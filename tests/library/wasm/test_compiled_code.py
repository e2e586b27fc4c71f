"""Compiled code is kept privately, and loaded only as Portico wrote it."""

import os
import shutil
from pathlib import Path

import pytest

from portico.library.wasm.compiled_code import CompiledCode, CompileError
from tests.library.wasm.building import wat
from tests.library.wasm.wat_guests import CLASHING, SLEEPER

COMPONENT = wat(SLEEPER)


@pytest.fixture
def code(tmp_path: Path) -> CompiledCode:
    return CompiledCode(str(tmp_path / "cache"), str(tmp_path / "state"))


def kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("*.cwasm"))


async def test_compiled_code_is_found_by_content(tmp_path: Path, code: CompiledCode) -> None:
    assert code.load(COMPONENT) is None
    await code.compile(COMPONENT)
    assert code.load(COMPONENT) is not None
    assert code.load(wat(CLASHING)) is None
    assert os.stat(tmp_path / "cache").st_mode & 0o777 == 0o700


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-64])


def _linked(path: Path) -> None:
    other = path.with_name("other")
    path.rename(other)
    path.symlink_to(other)


def _writable_by_all(path: Path) -> None:
    path.chmod(0o666)


def _in_a_folder_of_all(path: Path) -> None:
    path.parent.chmod(0o777)


def _unsigned(path: Path) -> None:
    Path(f"{path}.sig").unlink()


def _signed_by_another(path: Path) -> None:
    Path(f"{path}.sig").write_bytes(b"0" * 128)


@pytest.mark.parametrize(
    "change",
    [
        *(_flipped, _truncated, _linked, _writable_by_all, _in_a_folder_of_all),
        *(_unsigned, _signed_by_another),
    ],
)
async def test_changed_or_foreign_code_is_never_loaded(
    tmp_path: Path, code: CompiledCode, change: object
) -> None:
    assert callable(change)
    await code.compile(COMPONENT)
    change(*kept(tmp_path))
    assert code.load(COMPONENT) is None
    await code.compile(COMPONENT)
    assert code.load(COMPONENT) is not None


async def test_code_of_another_component_does_not_take_its_place(
    tmp_path: Path, code: CompiledCode
) -> None:
    await code.compile(COMPONENT)
    [mine] = kept(tmp_path)
    await code.compile(wat(CLASHING))
    [other] = [path for path in kept(tmp_path) if path != mine]
    for ending in ("", ".sig"):
        shutil.copy(f"{other}{ending}", f"{mine}{ending}")
    assert code.load(COMPONENT) is None


async def test_the_code_that_was_not_used_for_longest_is_removed(tmp_path: Path) -> None:
    code = CompiledCode(str(tmp_path / "cache"), str(tmp_path / "state"), limit=1)
    await code.compile(COMPONENT)
    await code.compile(wat(CLASHING))
    assert code.load(COMPONENT) is None
    assert code.load(wat(CLASHING)) is not None
    assert len(kept(tmp_path)) == 1


async def test_a_component_that_takes_too_long_to_compile_is_refused(code: CompiledCode) -> None:
    with pytest.raises(CompileError, match=r"takes longer than 0\.01 s to compile"):
        await code.compile(COMPONENT, within_s=0.01)


async def test_a_damaged_component_is_refused_by_the_compiler(code: CompiledCode) -> None:
    with pytest.raises(CompileError, match="cannot be compiled"):
        await code.compile(COMPONENT[:8] + b"\xff" * 40)


async def test_a_compiler_that_needs_too_much_memory_is_ended(code: CompiledCode) -> None:
    with pytest.raises(CompileError, match="ran out of memory or time"):
        await code.compile(bomb(), max_memory=64 * 1024 * 1024)


def bomb() -> bytes:
    """Return a component whose code costs far more to compile than to send."""
    body = "".join(
        f"(local.set {i % 400} (i32.add (local.get {i * 7 % 400}) (local.get {i * 13 % 400})))"
        f"(br_if 0 (local.get {i * 3 % 400}))"
        for i in range(20_000)
    )
    function = f"(func (local {'i32 ' * 400}) (block {body}))"
    return wat(f"(component (core module {function}))")


async def test_a_folder_that_cannot_be_written_costs_only_the_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code = CompiledCode(str(tmp_path / "file" / "cache"), str(tmp_path / "state"))
    engine, component = await code.compile(COMPONENT)
    assert component.type.exports(engine)
