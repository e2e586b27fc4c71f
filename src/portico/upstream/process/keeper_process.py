"""The keeper: the parent of an agent, to which the kernel gives all orphans below it.

So each process that an agent started has the keeper among its parents, however it was started. The
keeper ends after all of them, and ends them when the agent or Portico has ended.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from portico.upstream.process.process_tree import KEEPER_NAME, ProcessTable, ProcessTree

_GRACE_S = 0.5
_REST_S = 0.1
"""The time for what an agent leaves behind to exit after SIGTERM."""
_POLL_S = 0.02
_CHUNK = 64 * 1024
_PDEATHSIG, _SET_NAME, _SET_SUBREAPER = 1, 15, 36


def main() -> None:
    """Run a child, and wait for all that it leaves behind.

    The reply is a plus once the child is about to run, and then the errno if it cannot.
    """
    owner, order, reply = map(int, sys.argv[2:5])
    os.set_inheritable(reply, False)  # closed when the child runs
    code = 1
    try:
        is_spared, folder, argv, env = _read_order(order)
        _keep(owner, is_spared=is_spared)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
            signal.signal(number, signal.SIG_DFL)
        if folder:
            _enter_resolved(folder)
        os.write(reply, b"+")
        os.execvpe(argv[0], argv, env)  # noqa: S606  (never through a shell)
    except OSError as error:
        code = error.errno or code
    finally:
        os.write(reply, b"%d" % code)
        os._exit(127)


def _read_order(pipe: int) -> tuple[bool, bytes, list[bytes], dict[bytes, bytes]]:
    """Return whether it is spared, the folder, the command and the environment of the child."""
    data = b""
    while more := os.read(pipe, _CHUNK):
        data += more
    os.close(pipe)
    spared, folder, count, *words = data.split(b"\0")
    argv, variables = words[: int(count)], words[int(count) :]
    pairs = (variable.partition(b"=") for variable in variables)
    return spared == b"1", folder, argv, {name: value for name, _, value in pairs}


def _enter_resolved(path: bytes) -> None:
    """Enter a folder whose path was resolved: another agent may have replaced a part of it by a
    link since then, which is refused."""
    os.chdir(b"/")
    for name in path.split(b"/"):
        if name:
            folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            os.fchdir(folder)
            os.close(folder)


def _keep(owner: int, *, is_spared: bool) -> None:
    """Become the keeper of a child, in which alone this returns."""
    prctl = _prctl()
    if prctl is None:  # the child runs without a keeper
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGTERM))
    prctl(_SET_NAME, KEEPER_NAME.encode(), 0, 0, 0)
    prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    if not is_spared:  # also sent at the end of the thread that started us
        prctl(_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != owner:  # it died before it could be signalled
        os._exit(1)
    keeper = os.getpid()
    child = os.fork()
    if child:
        _Keeper(child, owner).run()
    prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != keeper:
        os._exit(1)


def _prctl() -> Callable[..., int] | None:
    try:
        import ctypes

        prctl: Callable[..., int] = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    return prctl


class _Keeper:
    """Waits for a child and for all that it leaves behind, which it ends."""

    def __init__(self, child: int, owner: int) -> None:
        self._child = child
        self._owner = owner
        self._status: int | None = None
        """The child's own, once it has exited."""

    def run(self) -> NoReturn:
        """Exit as the child did, once no descendant is left."""
        try:
            _close_files()
            while lives := self._reaped(None):
                if self._status is not None or os.getppid() != self._owner:
                    break
            if lives:
                self._end_all(_REST_S if self._status is not None else _GRACE_S)
            _exit_like(self._status or 0)
        finally:
            os._exit(1)

    def _end_all(self, grace_s: float) -> None:
        self._signal(signal.SIGTERM)
        limit = time.monotonic() + grace_s
        while lives := self._reaped(_POLL_S):
            if time.monotonic() > limit:
                break
        while lives:
            self._signal(signal.SIGKILL)
            lives = self._reaped(_POLL_S)

    def _reaped(self, within_s: float | None) -> bool:
        """Wait for a signal, and reap all children that have exited; return False if none live."""
        if within_s is None:
            signal.sigwait((signal.SIGCHLD, signal.SIGTERM))
        else:
            signal.sigtimedwait((signal.SIGCHLD,), within_s)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self._child:
                self._status = status

    def _signal(self, number: int) -> None:
        """Signal all descendants."""
        children = ProcessTable([ProcessTree(set())]).children
        found = children.get(os.getpid(), [])
        for pid in found:
            found += children.get(pid, ())
        for pid in found:
            try:
                os.kill(pid, number)
            except OSError:
                continue  # it has exited


def _close_files() -> None:
    """Close all files: others wait for their end."""
    for name in os.listdir("/proc/self/fd"):
        try:
            os.close(int(name))
        except OSError:
            continue  # that of the list


def _exit_like(status: int) -> NoReturn:
    """Exit as the child did."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (-code,))
        os.kill(os.getpid(), -code)
    os._exit(code)
