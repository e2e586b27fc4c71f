"""One job compiles a component for all workers, and ends its work after them."""

import asyncio
import fcntl
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from portico.library.wasm.compile_job import compile_once
from portico.library.wasm.compiled_code import CompiledCode, CompileError
from tests.library.wasm.building import wat
from tests.library.wasm.wat_guests import SLEEPER

COMPONENT = wat(SLEEPER)


@pytest.fixture
def code(tmp_path: Path) -> CompiledCode:
    (tmp_path / "cache").mkdir(mode=0o700)
    return CompiledCode(str(tmp_path / "cache"), str(tmp_path / "state"))


def locked(code: CompiledCode) -> int:
    lock = os.open(f"{code.path_of(COMPONENT)}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def job(code: CompiledCode, lock: int, data: bytes) -> int:
    """Start a job, and return the exit code of its first process."""
    digest = sha256(COMPONENT).hexdigest()
    folders = code.folder, code.state, f"{code.path_of(COMPONENT)}.lock"
    command = [sys.executable, "-m", "portico.library.wasm.compile_job", *folders, digest]
    return subprocess.run(
        command, input=data, stdout=subprocess.DEVNULL, pass_fds=(lock,), check=False
    ).returncode


def test_an_orphaned_job_keeps_the_code_before_its_lock_is_free(code: CompiledCode) -> None:
    lock = locked(code)
    assert job(code, lock, COMPONENT) == 0
    os.close(lock)  # only the job has it now
    os.close(locked(code))
    assert code.load(COMPONENT) is not None


def test_a_job_compiles_nothing_if_its_worker_ended_while_it_wrote(code: CompiledCode) -> None:
    lock = locked(code)
    assert job(code, lock, COMPONENT[:-1]) == 1
    os.close(lock)
    os.close(locked(code))
    assert code.load(COMPONENT) is None


async def test_a_worker_waits_for_the_job_of_another_and_loads_its_code(code: CompiledCode) -> None:
    lock = locked(code)
    waiting = asyncio.create_task(compile_once(code, COMPONENT))
    await code.compile(COMPONENT)
    kept = os.stat(code.path_of(COMPONENT)).st_ino
    assert not waiting.done()
    os.close(lock)
    await waiting
    assert os.stat(code.path_of(COMPONENT)).st_ino == kept


async def test_a_component_is_compiled_by_a_job_that_leaves_only_the_code(
    code: CompiledCode,
) -> None:
    await compile_once(code, COMPONENT)
    path = Path(code.path_of(COMPONENT))
    assert set(path.parent.iterdir()) == {path, path.with_name(path.name + ".sig")}


async def test_the_reason_of_a_job_that_fails_reaches_its_worker(code: CompiledCode) -> None:
    with pytest.raises(CompileError, match="it cannot be compiled: "):
        await compile_once(code, COMPONENT[:8] + b"\xff" * 40)


async def test_a_component_is_compiled_where_no_code_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    code = CompiledCode(str(tmp_path / "cache"), str(tmp_path / "state"))
    engine, component = await compile_once(code, COMPONENT)
    assert component.type.exports(engine)
