"""The terminals of one turn: commands that the agent runs through us, in the task's folder."""

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from portico.core.model.errors import INVALID_PARAMS, RESOURCE_NOT_FOUND, McpError
from portico.upstream.process.child_process import ChildOutput, ChildProcess
from portico.upstream.process.family import Family

MAX_TERMINALS = 16
MAX_OUTPUT = 1024 * 1024
"""The bytes of output that are kept of one terminal; the beginning is dropped."""
_GRACE_S = 1.0
_FINAL_OUTPUT_S = 0.2
"""How long to read an exited command's output, which its descendants may keep open."""


class _Terminal:
    """One running or finished command."""

    def __init__(self, process: ChildProcess, limit: int, touched: Callable[[], None]) -> None:
        self.process = process
        self._output = bytearray()
        self._limit = limit
        self._is_cut = False
        self._touched = touched
        process.stdin.close()
        self._pipes = [ChildOutput(pipe, self._add) for pipe in (process.stdout, process.stderr)]

    def _add(self, data: bytes) -> None:
        self._touched()
        self._output += data
        if len(self._output) > 2 * self._limit:
            self._cut()

    def _cut(self) -> None:
        if len(self._output) > self._limit:
            self._is_cut = True
            del self._output[: len(self._output) - self._limit]
            # The first bytes may be the rest of a character that was cut.
            while self._output and self._output[0] & 0xC0 == 0x80:
                del self._output[0]

    def output(self) -> dict[str, Any]:
        """Return the result of `terminal/output`."""
        self._cut()
        result: dict[str, Any] = {
            "output": self._output.decode(errors="replace"),
            "truncated": self._is_cut,
        }
        if self.process.exited.is_set():
            result["exitStatus"] = self.status()
        return result

    def status(self) -> dict[str, Any]:
        """Return the exit status."""
        code = self.process.returncode
        if code is None or code >= 0:
            return {"exitCode": code, "signal": None}
        return {"exitCode": None, "signal": _signal_name(-code)}

    async def wait(self) -> dict[str, Any]:
        """Wait for the exit, and the rest of the output."""
        await self.process.exited.wait()
        try:
            async with asyncio.timeout(_FINAL_OUTPUT_S):
                for pipe in self._pipes:
                    await pipe.ended.wait()
        except TimeoutError:
            pass
        return self.status()

    async def end(self) -> None:
        """End the command and its descendants."""
        try:
            await self.process.end(0, _GRACE_S)
        finally:
            for pipe in self._pipes:
                pipe.close()


class Terminals:
    """The terminals of one turn. They run without a shell, and end with the turn."""

    def __init__(
        self, environment: Mapping[str, str], touched: Callable[[], None], family: Family
    ) -> None:
        self._environment = environment
        self._family = family
        self._touched = touched
        self._open: dict[str, _Terminal] = {}
        self._starting = 0
        self._last_id = 0

    async def create(
        self, argv: Sequence[str], env: Mapping[str, str], cwd: str, limit: int | None
    ) -> str:
        """Start a command, and return the id of its terminal."""
        if len(self._open) + self._starting >= MAX_TERMINALS:
            why = f"too many terminals (limit {MAX_TERMINALS}): release some"
            raise McpError(why, INVALID_PARAMS)
        self._starting += 1
        try:
            process = await ChildProcess.start(
                argv, {**self._environment, **env}, cwd, self._family
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise McpError(f"cannot run {argv[0][:200]!r}: {reason}", INVALID_PARAMS) from None
        finally:
            self._starting -= 1
        self._last_id += 1
        id = f"terminal-{self._last_id}"
        kept = MAX_OUTPUT if limit is None else min(limit, MAX_OUTPUT)
        self._open[id] = _Terminal(process, kept, self._touched)
        return id

    def output(self, id: str) -> dict[str, Any]:
        """Return the output so far."""
        return self._find(id).output()

    async def wait(self, id: str) -> dict[str, Any]:
        """Return the exit status, once there is one."""
        return await self._find(id).wait()

    def kill(self, id: str) -> None:
        """Kill the command; its output stays until the terminal is released."""
        self._find(id).process.signal(signal.SIGKILL)

    async def release(self, id: str) -> None:
        """End the command and forget the terminal."""
        terminal = self._find(id)
        del self._open[id]
        await terminal.end()

    async def close(self) -> None:
        """End all of them."""
        terminals, self._open = tuple(self._open.values()), {}
        await asyncio.gather(*(one.end() for one in terminals), return_exceptions=True)

    def _find(self, id: str) -> _Terminal:
        terminal = self._open.get(id)
        if terminal is None:
            raise McpError(f"there is no terminal {id[:80]!r}", RESOURCE_NOT_FOUND)
        return terminal


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
