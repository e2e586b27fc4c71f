"""Starts a child process with pipes, through the guardian where possible.

The event loop does not wait for a program that is slow to load, and the kernel ends the child when
we die. If the guardian cannot start children, `subprocess` is the fallback.
"""

import asyncio
import errno
import marshal
import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import IO, NamedTuple

from portico.process.guardian import GUARDIAN

_TRIES = 3
ANSWER_S = 5.0
"""The timeout for a guardian's reply, after which it is replaced."""
_POLL_S = 0.005
_RETRYABLE = (errno.EAGAIN, errno.ETOOMANYREFS)
_EXHAUSTED = (errno.EAGAIN, errno.ENOMEM)


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


async def spawn(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str | None,
    *,
    is_kept: bool = False,
    is_spared: bool = False,
) -> Spawned:
    """Start a child, below a keeper if `is_kept`; raise OSError or ValueError on failure. The
    kernel does not end one that is spared when we die. The folder of one that is kept is a path
    without links, and none that has appeared in it is followed."""
    request = _encode_request(argv, env, cwd, (is_kept, is_spared))
    for _ in range(_TRIES):
        channel = GUARDIAN.channel
        if channel is None:
            break
        try:
            spawned = await _spawn_by_guardian(channel, request)
        except TimeoutError:
            await asyncio.to_thread(GUARDIAN.replace, channel, kill=True)
            continue
        if spawned is not None:
            return spawned
        await asyncio.to_thread(GUARDIAN.replace, channel, kill=False)
    return _spawn_directly(argv, env, cwd, is_kept=is_kept)


def _encode_request(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None, flags: tuple[bool, bool]
) -> bytes:
    """Encode the request to the guardian, with the paths where the program may be."""
    program, folder = os.fsencode(argv[0]), os.fsencode(cwd or "")
    programs = [program]
    if not os.path.dirname(program):
        programs = [os.path.join(os.fsencode(path), program) for path in os.get_exec_path(env)]
    words = [os.fsencode(word) for word in argv]
    variables = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    if any(b"\0" in text for text in (*words, *variables, *variables.values(), folder)):
        raise ValueError("embedded null byte")
    if any(not name or b"=" in name for name in variables):
        raise ValueError("illegal environment variable name")
    return marshal.dumps((programs, words, variables, folder, *flags))


async def _spawn_by_guardian(channel: socket.socket, request: bytes) -> Spawned | None:
    """Return None if the guardian cannot start children; raise TimeoutError if it hangs."""
    with ExitStack() as ours:
        with ExitStack() as theirs:
            try:
                folder = _owned(theirs, os.open(".", os.O_PATH | os.O_DIRECTORY))
            except PermissionError:  # we may not read our working directory
                return None
            ends = [_pipe(theirs, ours, written=n == 0) for n in range(3)]
            answer = _pipe(theirs, ours, written=False)
            what = _owned(theirs, os.memfd_create("portico-order"))
            os.write(what, request)
            os.lseek(what, 0, os.SEEK_SET)
            files = [what, *(their for their, _ in ends), answer[0], folder]
            if not await _send_request(channel, files):
                return None
        pid, code = await _read_answer(answer[1])
        if pid is None or code is not None:
            if pid is not None:
                _reap(pid)
            if code is None or (pid is None and code not in _EXHAUSTED):
                return None
            raise OSError(code, os.strerror(code))
        os.close(answer[1])
        ours.pop_all()
    stdin, stdout, stderr = (our for _, our in ends)
    return Spawned(
        pid,
        os.fdopen(stdin, "wb", buffering=0),
        os.fdopen(stdout, "rb", buffering=0),
        os.fdopen(stderr, "rb", buffering=0),
    )


def _pipe(theirs: ExitStack, ours: ExitStack, *, written: bool) -> tuple[int, int]:
    """Return the child's end and our end of a pipe, which we write to or read."""
    reader, writer = os.pipe()
    their, our = (reader, writer) if written else (writer, reader)
    return _owned(theirs, their), _owned(ours, our)


def _owned(stack: ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd


async def _send_request(channel: socket.socket, files: list[int]) -> bool:
    """Send the request once the socket has room; return False if the guardian has ended."""
    while True:
        try:
            socket.send_fds(channel, [b"*"], files)
        except OSError as error:
            if error.errno not in _RETRYABLE:
                return False
        else:
            return True
        await asyncio.sleep(_POLL_S)


async def _read_answer(pipe: int) -> tuple[int | None, int | None]:
    """Return the child's pid and the errno of a failed start, each None if not received."""
    loop = asyncio.get_running_loop()
    os.set_blocking(pipe, False)
    readable = asyncio.Event()
    loop.add_reader(pipe, readable.set)
    answer = b""
    try:
        while True:
            async with asyncio.timeout(None if answer else ANSWER_S):
                await readable.wait()
            readable.clear()
            try:
                data = os.read(pipe, 64)
            except BlockingIOError:
                continue
            if not data:
                break
            answer += data
    finally:
        loop.remove_reader(pipe)
    lines = answer.split(b"\n")
    pid = next((int(line) for line in lines if line.isdigit()), None)
    code = next((int(line[1:]) for line in lines if line[:1] == b"!"), None)
    return pid, code


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):  # the embedding program has waited for it
        os.waitpid(pid, 0)


def _spawn_directly(
    argv: Sequence[str], env: Mapping[str, str], cwd: str | None, *, is_kept: bool
) -> Spawned:
    if is_kept and cwd and os.path.realpath(cwd) != os.path.normpath(cwd):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), cwd)
    popen = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )
    assert popen.stdin is not None
    assert popen.stdout is not None
    assert popen.stderr is not None
    popen.returncode = 0  # ChildProcess waits for it
    return Spawned(popen.pid, popen.stdin, popen.stdout, popen.stderr)
