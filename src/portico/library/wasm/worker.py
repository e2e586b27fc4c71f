"""The process that hosts one component: it speaks MCP over stdio, like any server.

A component that is compiled already is loaded before the first request is read. Otherwise the
handshake is answered at once, and all else waits for the compiler, with progress.

A guest that cannot be interrupted costs the process: other calls get a moment to end, and the
process replaces itself by a fresh one on the same pipes, which runs the calls that have not begun.
"""

import asyncio
import os
import sys
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, NoReturn

import msgspec

from portico.core.model.context import WAITED
from portico.core.model.errors import PorticoError
from portico.core.model.types import Answer, Handler
from portico.core.state.client_sessions import SessionValues
from portico.core.state.report import report
from portico.core.state.stderr import STDERR
from portico.library.server import Server
from portico.library.wasm.binary import outline, read_component
from portico.library.wasm.detect import declared_kinds
from portico.library.wasm.failures import GuestFailure
from portico.library.wasm.middleware import HandlerProvider
from portico.library.wasm.process_limits import (
    limit_process,
    memory_limit,
    trim_memory,
    watch_memory,
)
from portico.library.wasm.provider import ComponentProvider
from portico.library.wasm.settings import MB, VARIABLE, HostSettings, decode_settings
from portico.library.wasm.worker_pipes import WorkerPipes, left_by_last_worker
from portico.upstream.process.hardening import harden

if TYPE_CHECKING:
    from wasmtime import Engine
    from wasmtime.component import Component

    from portico.core.model.context import Context
    from portico.core.model.message import Request, Response
    from portico.core.state.session_store import SessionStore
    from portico.library.wasm.calls import Calls
    from portico.library.wasm.compiled_code import CompiledCode

_IMMEDIATE = frozenset({"initialize", "server/discover", "ping"})
_PROGRESS_S = 1.0
_OTHERS_S = 2.0
"""How long the other calls have, once one is stuck."""


class Worker:
    """One component, from its file to the end of its client."""

    def __init__(self, settings: HostSettings, data: bytes, environment: Mapping[str, str]) -> None:
        """`environment` is for the process that replaces this one. Raises NotAComponent."""
        self._environment = environment
        self._settings = settings
        self._data = data
        declared = declared_kinds(outline(data).exports)
        self._provider = ComponentProvider(settings.name, declared, self._started)
        version = f"sha256-{sha256(data).hexdigest()[:12]}"
        self._handler = HandlerProvider(settings.name, self._started)
        self._server = Server.compose(settings.name, self._provider, self._handler, version=version)
        self._ready = asyncio.Event()
        self._sessions: SessionStore | None = None
        self._is_ending = False
        self._calls: Calls | None = None
        self._pipes: WorkerPipes | None = None
        self._waiting_requests: dict[int, Request] = {}
        """Requests that no guest has begun, by identity."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, left: bytes) -> None:
        """Serve until the client disconnects; raises PorticoError if it cannot be loaded.

        `left` is the input that the worker before this one has read and not handled.
        """
        from portico.library.wasm.compiled_code import CompiledCode

        code = CompiledCode(self._settings.cache, self._settings.state)
        cached = await asyncio.to_thread(code.load, self._data)
        if cached is not None:
            await self._load(*cached)
        self._pipes = WorkerPipes(self._server.endpoint([self._waiting]), left)
        if cached is None:
            self._start(self._compile(code))
        loop = asyncio.get_running_loop()
        watch_memory(self._settings, lambda: loop.call_soon_threadsafe(self._on_memory_exceeded))
        await self._pipes.serve()

    def _start(self, work: "Coroutine[object, object, None]") -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _compile(self, code: "CompiledCode") -> None:
        from portico.library.wasm.compile_job import compile_once

        try:
            await self._load(*await compile_once(code, self._data))
        except PorticoError as error:
            self._give_up(error)

    async def _load(self, engine: "Engine", component: "Component") -> None:
        from portico.library.wasm.calls import Calls
        from portico.library.wasm.loaded import LoadedComponent, ungranted

        settings = self._settings
        loaded = LoadedComponent(settings, engine, component)
        for line in ungranted(loaded.found.imports, settings):
            report(f"{settings.name}: {line}")
        for name, reason in loaded.found.skipped:
            report(f"{settings.name}: {name} is left out: it {reason}")
        self._calls = Calls(loaded, self._on_stuck)
        await self._handler.load(loaded.found.handler, self._calls, self._values)
        await self._provider.load(loaded, self._calls, self._values)
        self._data = b""  # it is in memory a second time, as code
        trim_memory()
        self._ready.set()

    def _give_up(self, why: PorticoError) -> NoReturn:
        """End the process: its client reads the reason on stderr."""
        report(f"{self._settings.name}: {why}")
        STDERR.flush()
        os._exit(1)

    def _values(self, session: str) -> "SessionValues | None":
        """Return what the component keeps for a session, by the id that its gateway sent."""
        if not session:
            return None
        if self._sessions is None:
            # SQLite is slow to load, and few components keep anything.
            from portico.core.state.session_store import sessions_in_folder

            self._sessions = sessions_in_folder(self._settings.state)
        return SessionValues(self._sessions, session)

    def _waiting(self, following: Handler) -> Handler:
        """Return the link that lets requests wait until the component is loaded."""

        def handle(request: "Request", context: "Context") -> Answer:
            if request.method in _IMMEDIATE or not request.id:
                return following(request, context)
            if not self._ready.is_set():
                return self._wait(following, request, context)
            answer = following(request, context)
            return answer if hasattr(answer, "result") else self._tracked(request, answer)

        return handle

    async def _wait(self, following: Handler, request: "Request", context: "Context") -> "Response":
        waited = 0.0
        while not self._ready.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_PROGRESS_S):
                    await self._ready.wait()
            waited += _PROGRESS_S
            await context.progress(waited * WAITED, message=f"compiling {self._settings.name}")
        return await self._tracked(request, following(request, context))

    async def _tracked(self, request: "Request", answer: Answer) -> "Response":
        self._waiting_requests[id(request)] = request
        try:
            return await answer
        finally:
            self._waiting_requests.pop(id(request), None)

    def _started(self, request: "Request") -> None:
        self._waiting_requests.pop(id(request), None)

    def _on_stuck(self, failure: GuestFailure) -> None:
        self._replace(_OTHERS_S, GuestFailure.beside_stuck())

    def _on_memory_exceeded(self) -> None:
        limit = memory_limit(self._settings) // MB
        self._replace(0.0, GuestFailure.out_of_memory(limit))

    def _replace(self, within_s: float, why: GuestFailure) -> None:
        pipes, calls = self._pipes, self._calls
        if self._is_ending:
            return
        if pipes is None or calls is None or not self._ready.is_set():
            self._give_up(why)  # it cannot even list its tools
        self._is_ending = True
        pipes.pause()

        async def replace() -> None:
            await calls.close(within_s, why)
            await pipes.replace_process(list(self._waiting_requests.values()), self._environment)

        self._start(replace())


def main(argv: list[str]) -> int:
    """Host the component in the settings; return the exit code."""
    environment = dict(os.environ)
    os.environ.clear()
    try:
        settings = decode_settings(environment.get(VARIABLE, ""))
    except msgspec.DecodeError:
        report("this process is started by Portico itself; run `portico run FILE.wasm` instead")
        return 2
    harden()
    limit_process(settings)
    try:
        asyncio.run(_serve(settings, environment, left_by_last_worker(argv)))
    except PorticoError as error:
        report(f"{settings.name}: {error}")
        return 1
    STDERR.flush()
    os._exit(0)  # a thread may still be in a guest


async def _serve(settings: HostSettings, environment: dict[str, str], left: bytes) -> None:
    await Worker(settings, read_component(settings.file), environment).serve(left)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
