"""The lifespan of a server: entered before its first request, closed after its last one."""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from portico.core.model.errors import PorticoError, RegistrationError, StartError
from portico.core.state.error_location import error_location
from portico.library.functions.handler_exceptions import leaves

CLOSE_S = 30.0
"""How long a lifespan may take to close, before it is cancelled."""
_CANCEL_S = 1.0
"""How long a cancelled lifespan may take to end."""
_HINT = "decorate an async generator function with contextlib.asynccontextmanager"

log = logging.getLogger("portico")

LifespanFunction = Callable[..., AbstractAsyncContextManager[Any]]
"""Takes the server, or nothing, and returns an async context manager."""


class Lifespan:
    """The lifespan of one server. It runs once, however many users enter it."""

    def __init__(self, name: str, function: LifespanFunction, server: object) -> None:
        """`name` is the server's, for messages; `server` is passed to the function."""
        _check(function)
        self._name = name
        self._function = function
        self._server = server
        self._run: _LifespanRun | None = None

    @property
    def value(self) -> Any:
        """The value of the context manager; RuntimeError while it is not entered."""
        run = self._run
        if run is None or not run.is_open:
            why = "has ended" if run is not None and run.failure is not None else "is not running"
            raise RuntimeError(
                f"the lifespan of {self._name} {why}; "
                "serve requests inside `async with server.running():`"
            )
        return run.value

    @asynccontextmanager
    async def entered(self) -> AsyncGenerator[None, None]:
        """Start it, unless it is running; close it after its last user. Raises StartError."""
        run = await self._join()
        try:
            await run.ready.wait()
            if run.failure is not None:
                raise self._start_error(run.failure) from run.failure
            yield
        finally:
            await self._leave(run)

    async def _join(self) -> "_LifespanRun":
        """Return the current run with one user more, or a new one."""
        while True:
            run = self._run
            if run is None or run.loop.is_closed():
                run = self._run = _LifespanRun(self._name, self._opened)
            elif run.loop is not asyncio.get_running_loop():
                raise RuntimeError(f"the lifespan of {self._name} runs in another event loop")
            elif run.closing.is_set():
                await asyncio.wait({run.task})
                continue
            run.users += 1
            return run

    async def _leave(self, run: "_LifespanRun") -> None:
        run.users -= 1
        if not run.users:
            try:
                await run.close()
            finally:
                if self._run is run:
                    self._run = None

    def _opened(self) -> AbstractAsyncContextManager[Any]:
        function = self._function
        manager: Any = function(self._server) if _takes_server(function) else function()
        if not isinstance(manager, AbstractAsyncContextManager):
            if inspect.iscoroutine(manager):
                manager.close()
            what = type(manager).__name__
            raise RegistrationError(
                f"the lifespan returned {what}, not an async context manager; {_HINT}"
            )
        return manager

    def _start_error(self, error: BaseException) -> StartError:
        causes = "; ".join(map(_described, leaves(error)))
        code = getattr(self._function, "__wrapped__", self._function)
        file = getattr(getattr(code, "__code__", None), "co_filename", "")
        where = error_location(next(leaves(error)), file)
        return StartError(f"cannot start {self._name}: {causes}{f' ({where})' if where else ''}")


class _LifespanRun:
    """One run of a lifespan, in its own task: a context manager must be entered and exited in the
    same one (anyio's cancel scopes), and the last user may be in another task than the first."""

    def __init__(self, name: str, opened: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        self.loop = asyncio.get_running_loop()
        self.users = 0
        self.value: Any = None
        self.is_open = False
        """True while the value may be used."""
        self.failure: BaseException | None = None
        self.ready = asyncio.Event()
        """Set when it has started or failed."""
        self.closing = asyncio.Event()
        self._name = name
        self.task = asyncio.create_task(self._keep_open(opened), name=f"lifespan of {name}")

    async def _keep_open(self, opened: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        try:
            async with opened() as self.value:
                self.is_open = True
                self.ready.set()
                await self.closing.wait()
                self.is_open = False
        except BaseException as error:  # noqa: BLE001  (the user's code may raise anything)
            self._failed(error)
        finally:
            self.is_open = False
            self.ready.set()

    def _failed(self, error: BaseException) -> None:
        has_started = self.ready.is_set()
        if isinstance(error, asyncio.CancelledError):
            if self.closing.is_set():
                return  # we cancelled it
            error = RuntimeError("the lifespan was cancelled")
        self.failure = error
        if has_started:
            how = "failed to close" if self.closing.is_set() else "failed while it was running"
            log.error("the lifespan of %s %s", self._name, how, exc_info=error)

    async def close(self) -> None:
        """Close it, or interrupt its start; cancel it if that takes too long."""
        has_started = self.ready.is_set()
        self.closing.set()
        try:
            if has_started:
                await asyncio.wait({self.task}, timeout=CLOSE_S)
        finally:
            if not self.task.done():
                if has_started:
                    log.error("the lifespan of %s is cancelled: it does not close", self._name)
                self.task.cancel()
                await asyncio.wait({self.task}, timeout=_CANCEL_S)


def _check(function: Any) -> None:
    """Reject functions that cannot return an async context manager."""
    if not callable(function):
        raise RegistrationError(f"the lifespan {function!r:.80} is not a function; {_HINT}")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise RegistrationError(f"the lifespan is a generator function; {_HINT}")
    if inspect.iscoroutinefunction(function):
        raise RegistrationError(f"the lifespan is a coroutine function; {_HINT}")


def _takes_server(function: LifespanFunction) -> bool:
    """True if a function has a parameter for the server."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) for p in parameters
    )


def _described(error: BaseException) -> str:
    if isinstance(error, PorticoError):
        return str(error)
    words = str(error)
    kind = type(error).__name__
    return f"{kind}: {words}" if words else kind
