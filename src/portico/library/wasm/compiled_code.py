"""Compiled code on disk: private, signed, found by content, and limited in size.

Compiled code is native code: loading a file of another user would run it. So the folder is
the user's alone, and each file is loaded only with a signature that Portico made.
"""

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from portico.core.model.errors import PorticoError
from portico.core.state import files
from portico.core.state.report import report
from portico.core.state.user_secret import user_secret
from portico.library.wasm.engine import SETTINGS, new_engine

if TYPE_CHECKING:
    from wasmtime import Engine
    from wasmtime.component import Component

COMPILE_S = 120.0
"""How long a component may take to compile."""
MAX_MEMORY = 3 * 1024 * 1024 * 1024
"""How much memory the compiler may use."""
MAX_CODE = 512 * 1024 * 1024
"""The largest compiled code of one component."""
CACHE_LIMIT = 1024 * 1024 * 1024
"""The size of all compiled code together; the files not used for longest are removed first."""
_CODE, _SIGNATURE = ".cwasm", ".sig"
_CHUNK = 1024 * 1024
_COMPILER = ("-P", "-m", "portico.library.wasm.compiler")


class CompileError(PorticoError):
    """A component cannot be compiled, or takes more time or memory than it may."""


class CompiledCode:
    """The compiled code of all components of this user."""

    def __init__(self, folder: str, state: str, *, limit: int = CACHE_LIMIT) -> None:
        """`state` is the folder with the secret that signs files."""
        self.folder = folder
        self.state = state
        self._secret = user_secret(state)
        self._limit = limit

    def load(self, data: bytes) -> "tuple[Engine, Component] | None":
        """Return the compiled component; None if it is not kept, or not as Portico wrote it."""
        from wasmtime import WasmtimeError
        from wasmtime.component import Component

        path = self.path_of(data)
        try:
            self._check(path)
        except OSError:
            return None
        engine = new_engine()
        try:
            component = Component.deserialize_file(engine, path)
        except WasmtimeError:  # of a machine with other features, in a shared home folder
            return None
        with suppress(OSError):
            os.utime(path)  # the date is that of the last use
        return engine, component

    async def compile(
        self, data: bytes, within_s: float = COMPILE_S, max_memory: int = MAX_MEMORY
    ) -> "tuple[Engine, Component]":
        """Compile a component in a process of its own, and keep the code; raises CompileError."""
        code = await _compiled(data, within_s, max_memory)
        return await asyncio.to_thread(self._keep, data, code)

    def _keep(self, data: bytes, code: bytes) -> "tuple[Engine, Component]":
        from wasmtime.component import Component

        path = self.path_of(data)
        try:
            files.make_private(self.folder)
            files.replace(path + _SIGNATURE, self._sign(path, [code]))
            files.replace(path, code)
        except OSError as error:
            why = f"the compiled code cannot be kept: {error.strerror or error}"
            report(f"{why}; check the folder {self.folder}")
        self._prune(keep=path)
        engine = new_engine()
        return self.load(data) or (engine, Component.deserialize(engine, code))

    def path_of(self, data: bytes) -> str:
        """Return the file of a component's code."""
        name = hashlib.sha256(data).hexdigest()
        settings = hashlib.sha256(SETTINGS.encode()).hexdigest()[:16]
        return os.path.join(self.folder, f"{name}-{settings}{_CODE}")

    def _check(self, path: str) -> None:
        """Raise OSError unless the file is our own, and unchanged."""
        with os.fdopen(os.open(path, files.READ), "rb", buffering=0) as file:
            for status in (os.fstat(file.fileno()), os.stat(self.folder)):
                if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                    raise PermissionError(path)
            signature, _ = files.read(path + _SIGNATURE, 256)
            if not is_same(signature, self._sign(path, iter(lambda: file.read(_CHUNK), b""))):
                raise PermissionError(path)

    def _sign(self, path: str, chunks: "Iterator[bytes] | list[bytes]") -> bytes:
        # The name is signed too: code of another component must not take its place.
        signed = hashlib.blake2b(key=self._secret, person=b"portico wasm")
        signed.update(os.path.basename(path).encode() + b"\0")
        for chunk in chunks:
            signed.update(chunk)
        return signed.hexdigest().encode()

    def _prune(self, keep: str) -> None:
        found = []
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.endswith(_CODE):
                    with suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        found.append((status.st_mtime, status.st_size, entry.path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._limit:
                return
            if path != keep:
                total -= size
                for one in (path, path + _SIGNATURE):
                    with suppress(OSError):
                        os.unlink(one)


def is_same(one: bytes, other: bytes) -> bool:
    """True if two signatures are equal, compared in constant time."""
    from hmac import compare_digest

    return compare_digest(one, other)


async def _compiled(data: bytes, within_s: float, max_memory: int) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *_COMPILER,
        str(max_memory),
        str(int(within_s) + 1),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={},
        limit=_CHUNK,
    )
    try:
        async with asyncio.timeout(within_s):
            out, err = await process.communicate(data)
    except TimeoutError:
        why = f"it takes longer than {within_s:g} s to compile"
        raise CompileError(f"{why}; make the component smaller") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return _checked_code(process.returncode, out, err.decode(errors="replace"))


def _checked_code(code: int | None, out: bytes, err: str) -> bytes:
    from portico.library.wasm.compiler import FAILED

    if code == FAILED:
        raise CompileError(f"it cannot be compiled: {_first_lines(err)}")
    if code == 0 and len(out) <= MAX_CODE:
        return out
    if code == 0:
        raise CompileError("its compiled code is too large; make the component smaller")
    if code in (-signal.SIGABRT, -signal.SIGKILL, -signal.SIGXCPU, -signal.SIGSEGV):
        why = "the compiler ran out of memory or time, or crashed"
        raise CompileError(f"it cannot be compiled: {why}; make the component smaller")
    raise CompileError(f"it cannot be compiled: the compiler failed ({_first_lines(err) or code})")


def _first_lines(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return "; ".join(lines[:3])[:400]
