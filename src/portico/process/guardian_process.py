"""The guardian process: it starts children for Portico, and ends them after Portico's death.

Two processes do this. The first works; the second, its *twin*, receives the same notes and takes
over if the first is killed. Both end the children they know when Portico's end of the pipe closes.

The clone flag of a start makes the child Portico's own, not the guardian's. So Portico waits for it
as for any other, the death of a guardian does not affect it, and the kernel signals it when Portico
dies. Portico cannot do this itself: it is large and has threads, so a fork would block its event
loop for tens of milliseconds.

An agent gets a *keeper* as its parent: a fork of the guardian to which the kernel gives all orphans
below it. So each process that an agent started has the keeper among its parents, however it was
started, and the keeper ends only after all of them.

Imports are few, and of C modules where possible, to keep the guardian small.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal, without its enums
import _socket
import errno
import marshal
import os
import select
import sys
import time

from portico.process.process_tree import KEEPER_NAME, ProcessTable, ProcessTree, start_of

TYPE_CHECKING = False  # as in typing, which is too large for the guardian
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, NoReturn

    Known = dict[str, tuple[int, int | None, int]]
    """By mark, a child's group and start time, and the seconds for which it may outlive Portico."""

_GRACE_S = 0.5
_KILL_S = 1.0
_POLL_S = 0.02
_REST_S = 0.1
"""The time for what an agent leaves behind to exit after SIGTERM."""
_SPARED_POLL_S = 0.5
_KILL, _TERM = 9, 15  # the signal module brings a megabyte of enums
_CHUNK = 64 * 1024
_FILES = 6
"""The number of files in a request: the command, three streams, the reply pipe and a folder."""
_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220}
"""The number of the clone system call, by machine."""
CAN_START = sys.platform == "linux" and sys.maxsize > 2**32 and os.uname().machine in _CLONE
"""True if a guardian can start children here."""
_CLONE_PARENT, _PDEATHSIG, _SIGCHLD = 0x8000, 1, 17
_SET_NAME, _SET_SUBREAPER = 15, 36
_NOTES = 0
"""The pipe for Portico's notes about its children, one per line."""


def main() -> None:
    """Run the guardian until Portico ends."""
    owner, channel = int(sys.argv[2]), int(sys.argv[4])
    known: Known = {}
    relay = _Relay(known, channel)
    serve = None
    if channel >= 0:
        os.set_inheritable(channel, False)  # children must not keep it open
        try:
            serve = _ChildStarter(channel, owner).serve
        except (ImportError, OSError, AttributeError):  # Portico starts its children itself
            os.close(channel)
    for data in _notes(channel, serve):
        relay.forward(data)
        for line in relay.lines.split(data):
            _record(known, line)
    end_children(known)
    relay.forward(b".\n")


def _notes(channel: int, serve: Callable[[], bool] | None) -> Iterator[bytes]:
    """Yield Portico's notes until its end; meanwhile serve its requests."""
    poll = select.poll()
    poll.register(_NOTES, select.POLLIN)
    if serve is not None:
        poll.register(channel, select.POLLIN)
    while True:
        for fd, _ in poll.poll():  # notes first: a child is announced before its request
            if fd == _NOTES:
                data = os.read(_NOTES, _CHUNK)
                if not data:
                    return
                yield data
            elif serve is not None and not serve():
                poll.unregister(channel)


def _record(known: Known, line: bytes) -> None:
    mark, *numbers = line[1:].decode().split(" ")
    if line[:1] == b"+":
        group, spared_s = map(int, numbers)
        known[mark] = group, start_of(group), spared_s
    elif line[:1] == b"-":
        known.pop(mark, None)
    elif line[:1] == b".":  # the first guardian has ended them all
        os._exit(0)


class _Lines:
    """Splits a stream into whole lines."""

    def __init__(self) -> None:
        self.rest = b""

    def split(self, data: bytes) -> list[bytes]:
        *lines, self.rest = (self.rest + data).split(b"\n")
        return lines


# The twin.


class _Relay:
    """The pipe to the twin, which is replaced if it dies."""

    def __init__(self, known: Known, channel: int) -> None:
        self.lines = _Lines()
        self._known = known
        self._channel = channel
        self._pipe = self._twin()

    def forward(self, data: bytes) -> None:
        """Send the notes to the twin too."""
        try:
            os.write(self._pipe, data)
        except OSError:
            os.close(self._pipe)
            self._pipe = self._twin()
            os.write(self._pipe, self.lines.rest + data)

    def _twin(self) -> int:
        """Start a second guardian, orphaned so that no process has to wait for it."""
        reader, writer = os.pipe()
        child = os.fork()
        if child:
            os.close(reader)
            os.waitpid(child, 0)
            return writer
        if os.fork():
            os._exit(0)
        os.close(writer)
        if self._channel >= 0:
            os.close(self._channel)  # else requests would wait for the twin
        for pipe in (reader, _NOTES):  # the twin takes over once the first guardian has ended
            lines = _Lines()
            while data := os.read(pipe, _CHUNK):
                for line in lines.split(data):
                    _record(self._known, line)
        end_children(self._known)
        os._exit(0)


# Ending children.


def end_children(known: Known) -> None:
    """End all children: first those that may not outlive Portico."""
    spared_s = 0
    for longest_s in sorted({one[2] for one in known.values()}):
        some = {mark: one for mark, one in known.items() if one[2] == longest_s}
        # A leader with another start time has only reused the pid.
        leaders = {group for group, start, _ in some.values() if start_of(group) in {start, None}}
        tree = ProcessTree(leaders - {0}, set(some))
        if not tree.find_descendants(ProcessTable([tree])):
            continue
        _until_gone(tree, 0, longest_s - spared_s, _SPARED_POLL_S)
        spared_s = longest_s
        tree.signal(_TERM)
        _until_gone(tree, 0, _GRACE_S)
        _until_gone(tree, _KILL, _KILL_S)


def _until_gone(tree: ProcessTree, number: int, within_s: float, poll_s: float = _POLL_S) -> None:
    limit = time.monotonic() + within_s
    while time.monotonic() < limit and tree.find_descendants(ProcessTable([tree])):
        tree.signal(number)
        time.sleep(poll_s)


# Starting children.


class _ChildStarter:
    """Starts a child for each request that comes over the channel."""

    def __init__(self, channel: int, owner: int) -> None:
        self._libc = _libc()
        self._clone = _CLONE[os.uname().machine]
        self._owner = owner
        self._requests = _socket.socket(fileno=channel)

    def serve(self) -> bool:
        """Start one child; return False once the channel is closed."""
        space = _socket.CMSG_SPACE(4 * _FILES)
        data, extra, *_ = self._requests.recvmsg(1, space, _socket.MSG_CMSG_CLOEXEC)
        if not data:
            return False
        files = [fd for *_, numbers in extra for fd in memoryview(numbers).cast("i").tolist()]
        if len(files) == _FILES:
            child = self._libc.syscall(self._clone, _CLONE_PARENT | _SIGCHLD, 0, 0, 0, 0)
            if child == 0:
                _run_child(files, self._libc, self._owner)
            if child < 0:
                os.write(files[4], b"!%d\n" % self._libc.get_errno())
        for fd in files:
            os.close(fd)
        return True


def _libc() -> Any:
    import ctypes

    libc: Any = ctypes.PyDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.get_errno = ctypes.get_errno
    return libc


def _run_child(files: list[int], libc: Any, owner: int) -> None:
    """Run the child: it replies with its pid, and with an error if no program can run."""
    what, stdin, stdout, stderr, answer, folder = files
    code = errno.EINVAL
    try:
        os.write(answer, b"%d\n" % os.getpid())
        programs, argv, env, cwd, is_kept, is_spared = marshal.loads(_read_all(what))
        os.setsid()
        if not is_spared:
            libc.prctl(_PDEATHSIG, _TERM, 0, 0, 0)
        if os.getppid() != owner:  # it died before it could be signalled
            os._exit(1)
        if is_kept:
            _keep(libc, owner)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores them
            _signal.signal(number, _signal.SIG_DFL)
        os.fchdir(folder)
        for fd, number in ((stdin, 0), (stdout, 1), (stderr, 2)):
            os.dup2(fd, number)
        if cwd and is_kept:
            _enter_resolved(cwd)
        elif cwd:
            os.chdir(cwd)
        code = _exec(programs, argv, env)
    except OSError as error:
        code = error.errno or code
    finally:
        try:
            os.write(answer, b"!%d\n" % code)
        finally:
            os._exit(127)


def _enter_resolved(path: bytes) -> None:
    """Enter a folder whose path was resolved: another agent may have replaced a part of it by a
    link since then, which is refused."""
    os.chdir(b"/")
    for name in path.split(b"/"):
        if name:
            folder = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            os.fchdir(folder)
            os.close(folder)


def _keep(libc: Any, owner: int) -> None:
    """Become the keeper of a child, in which alone this returns."""
    libc.prctl(_SET_NAME, KEEPER_NAME.encode(), 0, 0, 0)
    libc.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    _signal.pthread_sigmask(_signal.SIG_BLOCK, (_SIGCHLD,))
    keeper = os.getpid()
    child = os.fork()
    if child:
        _Keeper(child, owner).run()
    libc.prctl(_PDEATHSIG, _KILL, 0, 0, 0)
    if os.getppid() != keeper:
        os._exit(1)


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
        self._signal(_TERM)
        limit = time.monotonic() + grace_s
        while lives := self._reaped(_POLL_S):
            if time.monotonic() > limit:
                break
        while lives:
            self._signal(_KILL)
            lives = self._reaped(_POLL_S)

    def _reaped(self, within_s: float | None) -> bool:
        """Wait for a signal, and reap all children that have exited; return False if none live."""
        if within_s is None:
            _signal.sigwaitinfo((_SIGCHLD, _TERM))
        else:
            _signal.sigtimedwait((_SIGCHLD,), within_s)
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
        if -code != _KILL:
            _signal.signal(-code, _signal.SIG_DFL)
            _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (-code,))
        os.kill(os.getpid(), -code)
    os._exit(code)


def _exec(programs: list[bytes], argv: list[bytes], env: dict[bytes, bytes]) -> int:
    """Run the first program that exists; return the errno, preferably not of a missing file."""
    code = errno.ENOENT
    for program in programs:
        try:
            os.execve(program, argv, env)  # noqa: S606  (never through a shell)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                code = error.errno or code
    return code


def _read_all(file: int) -> bytes:
    data = b""
    while more := os.read(file, _CHUNK):
        data += more
    return data
