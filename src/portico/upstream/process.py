"""A child process that leads a group of its own, and takes the whole group with it.

We start it and wait for it ourselves: uvloop's way of starting leaks descriptors into children, so
that one holds another's pipes open, and asyncio's way of waiting waits for grandchildren too.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

_POLL_S = 0.01
_REST_S = 0.2
"""How long what the child left behind may take to go; it is no child of ours to wait for."""


class Process:
    """A running child; made on the event loop that will hear of its end."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        self._popen = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self.stdin, self.stdout, self.stderr = (
            self._popen.stdin,
            self._popen.stdout,
            self._popen.stderr,
        )
        self.pid = self._popen.pid
        """Its number, which is also its group's."""
        self.exited = asyncio.Event()
        self._group_empty = False
        self._loop = asyncio.get_running_loop()
        self._watch()

    @property
    def returncode(self) -> int | None:
        """How it ended: its exit code, or minus the signal that ended it."""
        return self._popen.returncode

    def signal(self, number: int) -> bool:
        """Signal the whole group; False if nobody is left in it."""
        if self._group_empty:
            return False  # its number may be somebody else's by now
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS says EPERM for a group of zombies
            self._group_empty = self.exited.is_set()
            return False
        return True

    async def gone(self, within_s: float) -> bool:
        """Wait for its end."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.exited.wait(), within_s)
        return self.exited.is_set()

    async def end(self, grace_s: float, term_grace_s: float) -> None:
        """Let it leave by itself, then SIGTERM, then SIGKILL, to the whole group."""
        try:
            if not await self.gone(grace_s):
                self.signal(signal.SIGTERM)
                await self.gone(term_grace_s)
            if self.exited.is_set():
                await self._end_the_rest()
        finally:
            # Also when we are cancelled half-way: nothing of it may stay.
            self.signal(signal.SIGKILL)
            await self.gone(term_grace_s)

    async def _end_the_rest(self) -> None:
        self.signal(signal.SIGTERM)
        for _ in range(int(_REST_S / _POLL_S)):
            if not self.signal(0):
                return
            await asyncio.sleep(_POLL_S)

    def _watch(self) -> None:
        try:
            handle = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not Linux, or an old one
            threading.Thread(target=self._wait, daemon=True).start()
            return
        self._loop.add_reader(handle, self._readable, handle)

    def _readable(self, handle: int) -> None:
        self._loop.remove_reader(handle)
        os.close(handle)
        self._ended()

    def _wait(self) -> None:
        self._popen.wait()
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._ended)

    def _ended(self) -> None:
        self._popen.wait()  # over already: this only takes its exit code
        self.exited.set()
        self.signal(0)
