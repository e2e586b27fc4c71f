"""Starts a child process with pipes, in a thread of its own: the event loop does not wait for it.

An agent is started below a keeper where the kernel has keepers, which is on Linux.
"""

import asyncio
import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, NamedTuple

from portico.upstream.process.guardian import GUARDIAN, program, program_variables
from portico.upstream.process.process_tree import KEEPER_NAME

_HEAD = 256
_NO_KEEPER = "the process above the agent fails to start; was Portico upgraded or removed?"


class Spawned(NamedTuple):
    """A child that leads its own session, and our ends of its pipes."""

    pid: int
    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]

    def close(self) -> None:
        """Close the pipes."""
        for pipe in (self.stdin, self.stdout, self.stderr):
            pipe.close()

    def kill(self) -> None:
        """End a child after its caller was cancelled."""
        self.close()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):  # the embedding program has waited for it
            os.waitpid(self.pid, 0)


async def spawn(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
    mark: str,
    *,
    is_kept: bool = False,
    is_spared: bool = False,
) -> Spawned:
    """Start a child, below a keeper if `is_kept`; raise OSError or ValueError on failure. A keeper
    that is spared does not end it when we die. The folder of one that is kept is a path without
    links, and none that has appeared in it is followed."""
    loop = asyncio.get_running_loop()
    starting: asyncio.Future[Spawned] = loop.create_future()

    def start() -> Spawned:
        GUARDIAN.wait_until_known()
        if is_kept:
            child = _start_below_keeper(argv, env, cwd, is_spared=is_spared)
        else:
            _load(argv[0], env, cwd)
            child = _start(argv, env, cwd)
        GUARDIAN.register(mark, child.pid)
        return child

    def run() -> None:
        outcome: Spawned | Exception
        try:
            outcome = start()
        except Exception as error:  # noqa: BLE001  (the caller's)
            outcome = error
        if starting.cancelled():  # the loop may close before it would settle this
            discard(outcome)
            return
        try:
            loop.call_soon_threadsafe(settle, outcome)
        except RuntimeError:  # the loop has closed
            discard(outcome)

    def settle(outcome: Spawned | Exception) -> None:
        if starting.done():  # the loop is about to close
            discard(outcome)
        elif isinstance(outcome, Exception):
            starting.set_exception(outcome)
        else:
            starting.set_result(outcome)

    def discard(outcome: Spawned | Exception) -> None:
        if isinstance(outcome, Spawned):
            outcome.kill()
        GUARDIAN.forget(mark)

    try:
        threading.Thread(target=run, name="portico-start", daemon=True).start()
    except RuntimeError:  # no more threads
        run()
    return await starting


def _load(program: str, env: Mapping[str, str], cwd: str | None) -> None:
    """Read the head of a program and of its interpreter: while a slow disk finds them, the kernel
    would hold up all our threads."""
    paths = [program]
    if not os.path.dirname(program):
        paths = [os.path.join(path, program) for path in os.get_exec_path(env)]
    for path in paths:
        head = _head_of(os.path.join(cwd or "", path))
        if head[:2] == b"#!":
            words = head[2:].partition(b"\n")[0].split()
            _head_of(os.fsdecode(words[0]) if words else "")
        if head:
            return


def _head_of(path: str) -> bytes:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return b""
        fd = os.open(path, os.O_RDONLY)
        try:
            return os.read(fd, _HEAD)
        finally:
            os.close(fd)
    except OSError:  # the start will say why
        return b""


def _start(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
    pass_fds: tuple[int, ...] = (),
) -> Spawned:
    popen = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=env,
        cwd=cwd,
        pass_fds=pass_fds,
        start_new_session=True,
    )
    assert popen.stdin is not None
    assert popen.stdout is not None
    assert popen.stderr is not None
    popen.returncode = 0  # ChildProcess waits for it
    return Spawned(popen.pid, popen.stdin, popen.stdout, popen.stderr)


def _start_below_keeper(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None, *, is_spared: bool
) -> Spawned:
    if sys.platform != "linux" or not sys.executable or getattr(sys, "frozen", False):
        if cwd and os.path.realpath(cwd) != os.path.normpath(cwd):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), cwd)
        return _start(argv, env, cwd)
    words = _order(argv, env, cwd or "", is_spared=is_spared)
    with _pipe() as (order, to_keeper), _pipe() as (from_keeper, reply):
        files = order.fileno(), reply.fileno()
        command = program(KEEPER_NAME, os.getpid(), *files)
        child = _start(command, program_variables(), None, files)
        order.close()
        reply.close()
        with suppress(BrokenPipeError):
            to_keeper.write(words)
            to_keeper.close()
        answer = from_keeper.read()
    if answer == b"+":
        return child
    child.kill()
    code = answer.removeprefix(b"+")
    raise OSError(int(code), os.strerror(int(code))) if code else OSError(_NO_KEEPER)


def _order(argv: Sequence[str], env: Mapping[str, str], folder: str, *, is_spared: bool) -> bytes:
    """Encode what a keeper has to start."""
    variables = [f"{name}={value}" for name, value in env.items()]
    if any("\0" in text for text in (folder, *argv, *variables)):
        raise ValueError("embedded null byte")
    if any(not name or "=" in name for name in env):
        raise ValueError("illegal environment variable name")
    words = "1" if is_spared else "0", folder, str(len(argv)), *argv, *variables
    return os.fsencode("\0".join(words))


@contextmanager
def _pipe() -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yield the reader and the writer of a pipe."""
    reader, writer = os.pipe()
    with open(reader, "rb") as readable, open(writer, "wb") as writable:
        yield readable, writable
