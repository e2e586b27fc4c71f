"""Compiles a component in a process that outlives the worker that needs its code.

A client may give up while code is compiled. If that ended the compiler too, each start would begin
again. So a job of its own session compiles the component and keeps the code, within the limits of
any compilation. It holds the lock of the component: other workers wait, and load what it has kept.
"""

import asyncio
import fcntl
import os
import signal
import sys
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from portico.core.state import files
from portico.library.wasm.compiled_code import COMPILE_S, CompiledCode, CompileError

if TYPE_CHECKING:
    from wasmtime import Engine
    from wasmtime.component import Component

_JOB = ("-P", "-m", "portico.library.wasm.compile_job")
_POLL_S = 0.1
_KEEP_S = 30
"""How long a job may take to read the component, and to keep the code."""


async def compile_once(code: CompiledCode, data: bytes) -> "tuple[Engine, Component]":
    """Return a compiled component, which one job compiles for all that need it; raises
    CompileError."""
    path = f"{code.path_of(data)}.lock"
    try:
        files.make_private(code.folder)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return await code.compile(data)  # which reports that it cannot be kept
    try:
        while not _is_locked(lock):  # noqa: ASYNC110  (a lock of files has no event)
            await asyncio.sleep(_POLL_S)
        known = await asyncio.to_thread(code.load, data)
        if known is None:
            await _run_job(code, data, lock, path)
            known = await asyncio.to_thread(code.load, data)
    finally:
        os.close(lock)
    return known or await code.compile(data)


def _is_locked(lock: int) -> bool:
    """True if the lock is ours now."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


async def _run_job(code: CompiledCode, data: bytes, lock: int, path: str) -> None:
    arguments = code.folder, code.state, path, sha256(data).hexdigest()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *_JOB,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,  # not ours: it would stay open after us
        env={},
        pass_fds=(lock,),
        start_new_session=True,
    )
    why, _ = await process.communicate(data)
    if why:
        raise CompileError(why.decode(errors="replace"))


def main(argv: list[str]) -> int:
    """Compile stdin and keep the code; an error is on stdout. `argv` has the folders, the lock and
    the digest of the component."""
    folder, state, lock, digest = argv
    signal.alarm(int(COMPILE_S) + _KEEP_S)
    data = sys.stdin.buffer.read()
    if sha256(data).hexdigest() != digest:  # the worker ended while it wrote
        return 1
    if os.fork():
        os._exit(0)  # the descendants of a worker end with it, but not orphans
    signal.alarm(int(COMPILE_S) + _KEEP_S)  # a fork clears it
    try:
        asyncio.run(CompiledCode(folder, state).compile(data))
    except CompileError as error:
        with suppress(OSError):
            sys.stdout.write(str(error))
            sys.stdout.flush()
    finally:
        with suppress(OSError):
            os.unlink(lock)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
